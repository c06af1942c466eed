"""Look for the texts of test items in other texts: in the training text of a model, or in the documents of a corpus.

A text of 4 to 13 words is found where all of its words stand in a row. A longer one is found where any 13 of its words
in a row do. A text of fewer than 4 words says nothing, since its words may well stand together by chance: nobody looks
for it. In scripts that put no spaces between words each character is a word, and two of them count as one here.

Upper and lower case, punctuation, symbols and white space do not matter, nor where sentences and lines begin, nor
characters that nobody sees. So a test sentence is also found in the middle of a longer one. Sequences are found by
hashes of 64 bits, and then compared. (Two of a million have the same hash, so that one is missed, in 1 of 10^7 cases.)
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
BETWEEN = ""  # stands between the words of two texts
FACTOR = np.uint64(0x9E3779B97F4A7C15)
BITS = 24  # of a hash, so that hardly any place of a text passes for a beginning
SHIFT = np.uint64(64 - BITS)
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
    if text.isascii():
        return re.findall("[a-z0-9]+", text.lower())
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
    items: list[list[int]]  # the items that have each sequence, sorted
    short: list[int]  # the items of which no text is long enough
    ids: dict[str, int]  # a number above 0 for each word of a sequence
    # {number of words: (hashes of the sequences, sorted, and the number of each)}
    hashes: dict[int, tuple[np.ndarray, np.ndarray]]
    beginnings: np.ndarray  # bool [2^BITS]: whether the hash of a sequence's first `LEAST` words begins with these bits

    def found_in(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the sequences that each text holds, sorted."""
        words, ends, found = list[str](), list[int](), [set[int]() for _ in texts]
        for text in texts:
            words += [*words_of(text), BETWEEN]
            ends.append(len(words))
        ids = np.fromiter(map(self.ids.get, words, itertools.repeat(0)), np.uint64, len(words))
        at, hashes = np.arange(len(words)), np.zeros(len(words), np.uint64)
        for length in range(1, max(self.hashes, default=0) + 1):
            at = at[: np.searchsorted(at, len(words) - length, "right")]
            hashes = _with_word(hashes[: len(at)], ids[at + length - 1])
            if length == LEAST:  # hardly any place holds a beginning
                begins = self.beginnings[hashes >> SHIFT]
                at, hashes = at[begins], hashes[begins]
            if length in self.hashes:
                known, numbers = self.hashes[length]
                place = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
                hit = known[place] == hashes
                of_texts = np.searchsorted(ends, at[hit], "right")
                each_hit = zip(of_texts.tolist(), at[hit].tolist(), numbers[place[hit]].tolist(), strict=True)
                for text, first, number in each_hit:
                    if self.words[number] == tuple(words[first : first + length]):
                        found[text].add(number)
        return [sorted(each) for each in found]

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
    numbers, items, short = dict[tuple[str, ...], int](), list[list[int]](), list[int]()
    for item, its_texts in enumerate(texts):
        looked_for = False
        for words in map(words_of, its_texts):
            unit = CHARACTERS if 2 * sum(map(stands_alone, words)) > len(words) else 1
            if len(words) < LEAST * unit:
                continue
            looked_for, length = True, min(len(words), LONGEST * unit)
            for first in range(len(words) - length + 1):
                number = numbers.setdefault(tuple(words[first : first + length]), len(numbers))
                if number == len(items):
                    items.append([])
                if item not in items[number][-1:]:
                    items[number].append(item)
        if not looked_for:
            short.append(item)
    ids = {word: i for i, word in enumerate(dict.fromkeys(itertools.chain.from_iterable(numbers)), 1)}
    beginnings, hashes = np.zeros(1 << BITS, bool), dict[int, tuple[np.ndarray, np.ndarray]]()
    for length in sorted({*map(len, numbers)}):
        those = [sequence for sequence in numbers if len(sequence) == length]
        found = np.zeros(len(those), np.uint64)
        for place, column in enumerate(zip(*those, strict=True), 1):
            found = _with_word(found, np.fromiter(map(ids.__getitem__, column), np.uint64, len(those)))
            if place == LEAST:
                beginnings[found >> SHIFT] = True
        order = np.argsort(found)
        hashes[length] = found[order], np.array([numbers[sequence] for sequence in those])[order]
    return Sought(list(numbers), items, short, ids, hashes, beginnings)


def _with_word(hashes: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Return the hashes of sequences of words with one more word each, given the numbers of these words."""
    return (hashes + ids) * FACTOR


def whole_texts(batch: pa.RecordBatch) -> pa.StringArray:
    """Return the documents of a batch, each with its prompt or context before it, as a model reads them."""
    columns = [batch[name] for name in TEXTS if name in batch.schema.names]
    return columns[0] if len(columns) == 1 else pc.binary_join_element_wise(*columns, " ")
