"""Look for the texts of test items in other texts: in the training text of a model, or in the documents of a corpus.

A text of 4 to 13 words is found where all of its words stand in a row. A longer one is found where any 13 of its words
in a row do. A text of fewer than 4 words says nothing, since its words may well stand together by chance: nobody looks
for it. In scripts that put no spaces between words each character is a word, and two of them count as one here.

Upper and lower case, punctuation, symbols and white space do not matter, nor where sentences and lines begin, nor
characters that nobody sees. So a test sentence is also found in the middle of a longer one.
"""

# pyright: reportAttributeAccessIssue=false
# (pyarrow creates the functions of pyarrow.compute at import: a type checker cannot see them.)

import dataclasses
import functools
import itertools
import re
import unicodedata
from collections.abc import Collection, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

TEXTS = ("prompt", "context", "text")  # columns of a corpus, in the order in which a model reads them
LEAST = 4  # words of a text that is looked for
LONGEST = 13  # words of a sequence that is looked for
CHARACTERS = 2  # that count as a word
# Characters inside words that nobody sees: soft hyphens, joiners, and what chooses between forms of a character.
INVISIBLE = re.compile("[\u00ad\u200c\u200d\u2060\ufe00-\ufe0f\U000e0100-\U000e01ef]")
# Chinese, Japanese, Thai, Lao, Tibetan, Burmese and Khmer: each character is a word.
ALONE = ((0x3000, 0x9FFF), (0xE00, 0xFFF), (0x1000, 0x107F), (0x1780, 0x17FF), (0x20000, 0x2FFFF))


@functools.cache
def _characters() -> tuple[np.ndarray, np.ndarray]:
    """Return what each code point becomes, a space for what stands between words, and whether it is a word, [0x110000].

    Between words are punctuation, symbols, white space, and characters of control and format.
    """
    kinds = [unicodedata.category(chr(point)) for point in range(0x20000)]  # what comes after them are letters
    between = [point for point, kind in enumerate(kinds) if kind[0] in "PSZ" or kind in ("Cc", "Cf")]
    becomes, alone = np.arange(0x110000, dtype="<u4"), np.zeros(0x110000, bool)
    for first, last in ALONE:
        alone[first : last + 1] = True
    becomes[between], alone[between] = ord(" "), False
    return becomes, alone


def words_of(text: str) -> list[str]:
    """Return the words of a text in lower case. Letters that have several forms get their composed one (NFC)."""
    if not text.isascii():
        text = unicodedata.normalize("NFC", INVISIBLE.sub("", text))
    becomes, is_word = _characters()
    characters = becomes[np.frombuffer(text.lower().encode("utf-32-le", "surrogatepass"), "<u4")]
    alone = is_word[characters]
    if alone.any():
        spaced = np.full((len(characters), 3), ord(" "), "<u4")
        spaced[:, 1] = characters
        characters = spaced[np.stack((alone, np.ones_like(alone), alone), 1)]
    return characters.tobytes().decode("utf-32-le", "surrogatepass").split()


def stands_alone(word: str) -> bool:
    """Return whether a word is one character of a script without spaces."""
    return bool(_characters()[1][ord(word[0])])


@dataclasses.dataclass(frozen=True, eq=False)
class Sought:
    """Holds the sequences of words that are looked for. Each has a number: its place in `words`."""

    words: list[tuple[str, ...]]  # of each sequence
    sequences: dict[tuple[str, ...], int]  # {words: number}
    lengths: dict[tuple[str, ...], set[int]]  # {the first `LEAST` words of sequences: how many words these have}
    items: list[list[int]]  # the items that have each sequence, sorted
    short: list[int]  # the items of which no text is long enough

    def found_in(self, text: str) -> list[int]:
        """Return the sequences that a text holds, sorted."""
        words = words_of(text)
        beginnings = zip(*(words[first:] for first in range(LEAST)), strict=False)
        # No loop of Python's: hardly any place holds a beginning.
        places = itertools.compress(itertools.count(), map(self.lengths.__contains__, beginnings))
        sequences = (
            tuple(words[at : at + length]) for at in places for length in self.lengths[*words[at : at + LEAST],]
        )
        return sorted({self.sequences[sequence] for sequence in sequences if sequence in self.sequences})

    def items_of(self, sequences: Collection[int]) -> list[int]:
        """Return the items that have one of these sequences, sorted."""
        return sorted({item for sequence in sequences for item in self.items[sequence]})

    def first_of(self, item: int, seen: set[int]) -> int:
        """Return the first sequence of an item that was seen."""
        return min(sequence for sequence in seen if item in self.items[sequence])

    def words_of(self, sequence: int) -> str:
        """Return the words of a sequence."""
        return " ".join(self.words[sequence])


def sought(texts: Sequence[Sequence[str]]) -> Sought:
    """Return what is looked for, given the texts of each item."""
    numbers, lengths = dict[tuple[str, ...], int](), dict[tuple[str, ...], set[int]]()
    items, short = list[list[int]](), list[int]()
    for item, its_texts in enumerate(texts):
        looked_for = False
        for words in map(words_of, its_texts):
            unit = CHARACTERS if 2 * sum(map(stands_alone, words)) > len(words) else 1
            if len(words) < LEAST * unit:
                continue
            looked_for, length = True, min(len(words), LONGEST * unit)
            for first in range(len(words) - length + 1):
                sequence = tuple(words[first : first + length])
                number = numbers.setdefault(sequence, len(numbers))
                if number == len(items):
                    items.append([])
                    lengths.setdefault(sequence[:LEAST], set()).add(length)
                if item not in items[number][-1:]:
                    items[number].append(item)
        if not looked_for:
            short.append(item)
    return Sought(list(numbers), numbers, lengths, items, short)


def whole_texts(batch: pa.RecordBatch) -> pa.StringArray:
    """Return the documents of a batch, each with its prompt or context before it, as a model reads them."""
    columns = [batch[name] for name in TEXTS if name in batch.schema.names]
    return columns[0] if len(columns) == 1 else pc.binary_join_element_wise(*columns, " ")
