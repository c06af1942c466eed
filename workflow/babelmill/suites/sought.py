"""Look for the texts of test items in other texts: in the training text of a model, or in the documents of a corpus.

A text of 4 to 13 words is found where all of its words stand in a row. A longer one is found where any 13 of its words
in a row do. A text of fewer than 4 words says nothing, since its words may well stand together by chance: nobody looks
for it. Where characters count as words (`tokens/hashed_words.py`), two of them count as one word here.

Upper and lower case, punctuation, symbols and white space do not matter, nor where sentences and lines begin, nor
characters that nobody sees. So a test sentence is also found in the middle of a longer one. Words are compared by
hashes of 64 bits. The chance that a billion words of text hold a sequence that only seems to be one of a million test
texts is 1 in 10,000.
"""

# pyright: reportAttributeAccessIssue=false
# (pyarrow creates the functions of pyarrow.compute at import: a type checker cannot see them.)

import dataclasses
import functools
import itertools
import unicodedata
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from babelmill.tokens.hashed_words import bytes_of, mixed, stand_alone, with_word, words_of

TEXTS = ("prompt", "context", "text")  # columns of a corpus, in the order in which a model reads them
LEAST = 4  # words of a text that is looked for
LONGEST = 13  # words of a sequence that is looked for
CHARACTERS = 2  # that count as a word
BEGINNING = LEAST  # words by which most places in a text are ruled out at once
SPACE = ord(" ")
POINTS = 0x20000  # code points; what comes after them are letters
LEADS = [(np.uint8(0xE0), 0xC0, 2), (np.uint8(0xF0), 0xE0, 3), (np.uint8(0xF8), 0xF0, 4)]  # of characters in UTF-8
NOTHING = np.empty(0, np.int64)
SLICE = 4 << 20  # bytes
NEAR = 1 << 12  # bytes in which a letter is looked for
# Characters inside words that nobody sees: soft hyphens, joiners, and what chooses between forms of a character.
INVISIBLE = r"[\x{AD}\x{200C}\x{200D}\x{2060}\x{FE00}-\x{FE0F}\x{E0100}-\x{E01EF}]"


@functools.cache
def _between_words() -> np.ndarray:
    """Return which characters stand between words: punctuation, symbols, white space; bool by code point."""
    found = [unicodedata.category(chr(point)) for point in range(POINTS)]
    return np.array([each[0] in "PSZ" or each in ("Cc", "Cf") for each in found])


def plain(text: pa.StringArray) -> tuple[np.ndarray, np.ndarray]:
    """Return the UTF-8 bytes of texts in lower case, with spaces in place of all that stands between words.

    Letters that have several forms get their composed one (NFC). The second result is where each text begins and ends
    (see `bytes_of`). Nulls are not allowed. The work is done in slices, since it takes many times their memory.
    """
    raw, bounds = bytes_of(text)
    cuts, ends, done = [*_cuts(raw), len(raw)], bounds[1:], []
    bounds, size, first = [np.zeros(1, np.int64)], 0, 0
    for begin, end in itertools.pairwise(cuts):
        last = int(np.searchsorted(ends, end, "right"))
        edges = np.concatenate(([begin], ends[first:last], [end])) - begin
        buffers = pa.py_buffer(edges.astype(np.int32)), pa.py_buffer(np.ascontiguousarray(raw[begin:end]))
        data, inside = _plain(pa.StringArray.from_buffers(len(edges) - 1, *buffers))
        done.append(data)
        bounds.append(size + inside[1:-1])
        size, first = size + len(data), last
    return np.concatenate(done), np.concatenate(bounds)


def _cuts(raw: np.ndarray) -> list[int]:
    """Return where slices of UTF-8 bytes begin: before white space or, in text without it, before a letter.

    So no character is cut, nor what becomes one: neither combines with what stands before it.
    """
    cuts, at = [0], SLICE
    while at < len(raw):
        if len(gaps := np.flatnonzero(raw[at : at + SLICE] <= SPACE)):
            at += int(gaps[0])
            cuts.append(at)
        elif (letter := _first_letter(raw[at : at + NEAR])) is not None:
            at += letter
            cuts.append(at)
        at += SLICE
    return cuts


def _first_letter(raw: np.ndarray) -> int | None:
    """Return where the first letter begins in UTF-8 bytes that may begin inside a character; None without a letter.

    The parts of Korean syllables combine with what stands before them, so they do not count.
    """
    for at in np.flatnonzero(raw & 0xC0 != 0x80).tolist():
        character = raw[at : at + 4].tobytes().decode(errors="ignore")[:1]
        if character.isalpha() and not "\u1100" <= character <= "\u11ff":
            return at
    return None


def _plain(text: pa.StringArray) -> tuple[np.ndarray, np.ndarray]:
    """Return what `plain` does, for one slice."""
    is_ascii = pc.string_is_ascii(text)
    if not pc.all(is_ascii).as_py():
        others = pc.replace_substring_regex(text.filter(pc.invert(is_ascii)), INVISIBLE, "").to_pylist()
        others = [unicodedata.normalize("NFC", each) for each in others]
        text = pc.replace_with_mask(text, pc.invert(is_ascii), pa.array(others, pa.string()))
    data, bounds = bytes_of(pc.utf8_lower(text))
    data = data.copy()
    for mask, lead, size in LEADS if data.max(initial=0) >= 128 else ():
        at = np.flatnonzero(data & mask == lead)
        points = (data[at] & ~mask).astype(np.int64)
        for i in range(1, size):
            points = points << 6 | (data[at + i] & 0x3F)
        at = at[(points < POINTS) & _between_words()[np.minimum(points, POINTS - 1)]]
        for i in range(size):
            data[at + i] = SPACE
    return data, bounds


@dataclasses.dataclass(frozen=True, eq=False)
class Sought:
    """Holds the sequences of words that are looked for. Each has a number: its place in `hashes`."""

    beginnings: np.ndarray  # bool [2^k]: whether a sequence begins with words whose hash begins with these k bits
    hashes: dict[int, np.ndarray]  # {number of words: the hashes of the sequences, uint64, sorted}, by number of words
    # sequences, items: pairs of a sequence and an item that has it, each once, int64, sorted by sequence
    sequences: np.ndarray
    items: np.ndarray
    short: np.ndarray  # the items of which no text is long enough, int64
    # the bytes of the texts, and where each sequence begins and ends in them, for people
    words: tuple[bytes, np.ndarray, np.ndarray]

    def found_in(self, text: pa.StringArray) -> tuple[np.ndarray, np.ndarray]:
        """Return which texts hold which sequences: pairs of indices, sorted, int64. Nulls are not allowed."""
        if not self.hashes:
            return NOTHING, NOTHING
        found = [np.stack(pair) for pair in self._found_in(*plain(text))]
        both = np.unique(np.concatenate([np.empty((2, 0), np.int64), *found], 1), axis=1)
        return both[0], both[1]

    def items_with(self, sequence: int) -> np.ndarray:
        """Return the items that have a sequence, int64."""
        first, end = np.searchsorted(self.sequences, (sequence, sequence + 1))
        return self.items[first:end]

    @property
    def count(self) -> int:
        """Return the number of sequences."""
        return sum(map(len, self.hashes.values()))

    def items_of(self, sequences: np.ndarray) -> np.ndarray:
        """Return the items that have one of these sequences, sorted, int64."""
        return np.unique(self.items[np.isin(self.sequences, sequences)])

    def first_of(self, item: int, seen: np.ndarray) -> int:
        """Return the first sequence of an item that was seen; `seen`: bool [sequences]."""
        mine = self.sequences[self.items == item]
        return int(mine[seen[mine]][0])

    def words_of(self, sequence: int) -> str:
        """Return the words of a sequence."""
        data, begins, ends = self.words
        text = data[begins[sequence] : ends[sequence]].decode()
        return " ".join("".join(each if each.isalnum() or not each.isascii() else " " for each in text).split())

    def _found_in(self, data: np.ndarray, bounds: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield pairs of texts and the sequences in them; a pair may come twice."""
        starts, longest = bounds[:-1], max(self.hashes)
        words, places = np.empty(0, np.uint64), NOTHING  # the last ones, which the next piece needs
        for more, where in words_of(data, starts[np.diff(bounds) > 0]):
            words, places = np.concatenate((words, more)), np.concatenate((places, where))
            texts = np.searchsorted(starts, places, "right") - 1
            hashes = words[: max(0, len(words) - BEGINNING + 1)]
            for i in range(1, BEGINNING):
                hashes = with_word(hashes, words[i : i + len(hashes)])
            at = np.flatnonzero(self.beginnings[mixed(hashes) >> _shift(self.beginnings)])
            at = at[texts[at] == texts[at + BEGINNING - 1]]
            hashes, first = hashes[at], 0
            for length in range(BEGINNING, longest + 1):
                if length > BEGINNING:
                    last = at + length - 1
                    there = last < len(words)
                    there[there] = texts[last[there]] == texts[at[there]]
                    at, hashes = at[there], with_word(hashes[there], words[last[there]])
                if length in self.hashes:
                    known = self.hashes[length]
                    number = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
                    hit = known[number] == hashes
                    yield texts[at[hit]], first + number[hit]
                    first += len(known)
            words, places = words[1 - longest :], places[1 - longest :]


def sought(texts: Sequence[Sequence[str]]) -> Sought:
    """Return what is looked for, given the texts of each item."""
    item_of = np.repeat(np.arange(len(texts)), [len(each) for each in texts])
    data, bounds = plain(pa.array([text for each in texts for text in each], pa.string()))
    pieces = words_of(data, bounds[:-1][np.diff(bounds) > 0])
    words, places = map(np.concatenate, zip((np.empty(0, np.uint64), NOTHING), *pieces, strict=True))
    firsts = np.searchsorted(places, bounds)  # the first word of each text
    sizes = np.diff(firsts)
    characters = np.diff(np.append(0, np.cumsum(stand_alone(data)[places]))[firsts])
    unit = np.where(2 * characters > sizes, CHARACTERS, 1)
    enough = sizes >= LEAST * unit
    of_text = np.minimum(sizes, LONGEST * unit)[enough]
    count = sizes[enough] - of_text + 1
    # The sequences of all texts: the first word of each, its number of words, and the item that it belongs to.
    at = np.repeat(firsts[:-1][enough] + count - np.cumsum(count), count) + np.arange(count.sum())
    lengths, items = np.repeat(of_text, count), np.repeat(item_of[enough], count)
    hashes, beginnings = words[at], np.zeros(1 << max(16, (16 * len(at)).bit_length()), bool)
    for length in range(2, lengths.max(initial=0) + 1):
        longer = lengths >= length
        hashes[longer] = with_word(hashes[longer], words[at[longer] + length - 1])
        if length == BEGINNING:
            beginnings[mixed(hashes) >> _shift(beginnings)] = True
    order = np.lexsort((hashes, lengths))
    at, lengths, hashes, items = at[order], lengths[order], hashes[order], items[order]
    new = np.ones(len(at), bool)
    new[1:] = (hashes[1:] != hashes[:-1]) | (lengths[1:] != lengths[:-1])
    of_length = {int(length): hashes[new & (lengths == length)] for length in np.unique(lengths)}
    ends = np.append(places, len(data))[(at + lengths)[new]]
    short = np.setdiff1d(np.arange(len(texts)), items)
    numbers, pair = np.cumsum(new) - 1, new.copy()
    pair[1:] |= items[1:] != items[:-1]
    return Sought(beginnings, of_length, numbers[pair], items[pair], short, (data.tobytes(), places[at[new]], ends))


def whole_texts(batch: pa.RecordBatch) -> pa.StringArray:
    """Return the documents of a batch, each with its prompt or context before it, as a model reads them."""
    columns = [batch[name] for name in TEXTS if name in batch.schema.names]
    return columns[0] if len(columns) == 1 else pc.binary_join_element_wise(*columns, " ")


def _shift(beginnings: np.ndarray) -> np.uint64:
    """Return by how many bits a hash is shifted to be an index."""
    return np.uint64(65 - len(beginnings).bit_length())
