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
import re
import unicodedata
from collections.abc import Collection, Sequence

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

Words = tuple[str, ...]


@functools.cache
def _becomes() -> dict[int, str]:
    """Return what code points become: a space for what stands between words, spaces around what is a word alone.

    Between words are punctuation, symbols, white space, and characters of control and format.
    """
    kinds = {point: unicodedata.category(chr(point)) for point in range(0x20000)}  # what comes after them are letters
    alone = {point: f" {chr(point)} " for first, last in ALONE for point in range(first, last + 1)}
    same = {point: chr(point) for point in range(0x3000)}  # str.translate is slow for what its table lacks
    return same | alone | {point: " " for point, kind in kinds.items() if kind[0] in "PSZ" or kind in ("Cc", "Cf")}


def words_of(text: str) -> list[str]:
    """Return the words of a text in lower case. Letters that have several forms get their composed one (NFC)."""
    if text.isascii():
        return re.findall("[a-z0-9]+", text.lower())
    return unicodedata.normalize("NFC", INVISIBLE.sub("", text)).lower().translate(_becomes()).split()


def stands_alone(word: str) -> bool:
    """Return whether a word is one character of a script without spaces."""
    return _becomes().get(ord(word[0])) == f" {word[0]} "


@dataclasses.dataclass(frozen=True, eq=False)
class Sought:
    """Holds the sequences of words that are looked for. Each has a number: its place in `words`."""

    words: list[Words]  # of each sequence
    numbers: dict[Words, int]  # the number of each sequence
    lengths: dict[Words, set[int]]  # {the first `LEAST` words of sequences: how many words these have}
    items: list[list[int]]  # the items that have each sequence, sorted
    short: list[int]  # the items of which no text is long enough

    def found_in(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the sequences that each text holds, sorted."""
        return [sorted(self._in_text(words_of(text))) for text in texts]

    def _in_text(self, words: list[str]) -> set[int]:
        found = set[int]()
        for first, beginning in enumerate(zip(*(words[place:] for place in range(LEAST)), strict=False)):
            if beginning in self.lengths:
                here = (tuple(words[first : first + length]) for length in self.lengths[beginning])
                found |= {self.numbers[sequence] for sequence in here if sequence in self.numbers}
        return found

    def items_of(self, sequences: Collection[int]) -> dict[int, str]:
        """Return the items that have one of these sequences, in order, and the words of the first that each one has."""
        found: dict[int, str] = {}
        for number in sorted(sequences):
            for item in self.items[number]:
                found.setdefault(item, " ".join(self.words[number]))
        return dict(sorted(found.items()))


def sought(texts: Sequence[Sequence[str]]) -> Sought:
    """Return what is looked for, given the texts of each item."""
    found = Sought([], {}, {}, [], [])
    for item, its_texts in enumerate(texts):
        looked_for = False
        for words in map(words_of, its_texts):
            unit = CHARACTERS if 2 * sum(map(stands_alone, words)) > len(words) else 1
            if len(words) < LEAST * unit:
                continue
            looked_for, length = True, min(len(words), LONGEST * unit)
            for first in range(len(words) - length + 1):
                sequence = tuple(words[first : first + length])
                number = found.numbers.setdefault(sequence, len(found.words))
                if number == len(found.words):
                    found.words.append(sequence)
                    found.items.append([])
                    found.lengths.setdefault(sequence[:LEAST], set()).add(length)
                if item not in found.items[number][-1:]:
                    found.items[number].append(item)
        if not looked_for:
            found.short.append(item)
    return found


def whole_texts(batch: pa.RecordBatch) -> pa.StringArray:
    """Return the documents of a batch, each with its prompt or context before it, as a model reads them."""
    columns = [batch[name] for name in TEXTS if name in batch.schema.names]
    return columns[0] if len(columns) == 1 else pc.binary_join_element_wise(*columns, " ")
