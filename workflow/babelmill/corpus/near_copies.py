"""Find documents that are nearly the same as an earlier one (`corpus.near_duplicates`).

The similarity of two texts is that of their sets of shingles, which are each five words in a row: the number that both
have, divided by the number that at least one has (the Jaccard index). Texts are compared in their order. Each one that
is not similar enough to an earlier one stays, and later ones are compared with it. So the first of several copies
stays, and whatever is dropped has a copy that stays.

Comparing all pairs would take too long. MinHash gives each text a signature of which two texts share a share of the
numbers that is about their similarity. The numbers are cut into bands, and only texts with an equal band are compared,
by their real shingles. At the threshold, `FOUND` of the pairs have one (in theory; a test counts). Of the texts with
an equal band, `MEMBERS` that stay are compared with later ones. So more copies are missed where many texts are somewhat
less alike than the threshold, such as pages of one template: about 1 in 25 of those just at it.

A word is a run of characters without white space and without the punctuation of ASCII. In scripts that put no spaces
between words (Chinese, Japanese, Thai, Lao, Khmer, Burmese, Tibetan), each character counts as a word. Upper and lower
case differ. Words are cut and hashed as UTF-8 bytes, many texts at once. This depends on no table of Unicode and no
library's hash function, so a text has the same shingles on any machine and in any version of Python.
"""

# pyright: reportAttributeAccessIssue=false
# (pyarrow creates the functions of pyarrow.compute at import: a type checker cannot see them.)

import contextlib
import math
import os
import struct
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from rensa import RMinHash

from babelmill.core.bars import Bar
from babelmill.corpus.record_batches import PROMPT, Spool, bytes_of

BANDS = [f"band{i}" for i in range(16)]  # columns of a spool; 0 stands for a text without shingles
LENGTH = 5  # words of a shingle
FOUND = 0.99
MOST_ROWS = 8  # numbers in a band
SEED = 1  # of the signatures
AT_ONCE = 256  # texts; rensa returns lists, and long ones are slow
MEMBERS = 4
LARGEST = 1 << 16  # shingles; of a text with more, those with the smallest hashes stand for all (error below 0.005)
RECORD = struct.Struct("<Q160sI")  # number of the document, beginning, number of shingles
PIECE = 1 << 18  # bytes whose words are hashed at a time
_ODD = np.uint64(0x9E3779B97F4A7C15)
_MIX = np.uint64(0xBF58476D1CE4E5B9)
_SHIFT = np.uint64(29)


def _powers(base: int) -> np.ndarray:
    """Return base^i mod 2^64 for each i up to `PIECE`, uint64."""
    found = np.full(PIECE + 1, base, np.uint64)
    found[0] = 1
    return np.multiply.accumulate(found)


_BASE = 0x5851F42D4C957F2D  # odd, so that it has an inverse mod 2^64
_POWERS, _INVERSE = _powers(_BASE), _powers(pow(_BASE, -1, 2**64))
_BYTES = np.arange(256)
_SEPARATES = np.array([byte < 128 and not chr(byte).isalnum() for byte in range(256)])
# A different odd number for each byte; 0 for what stands between words.
_NUMBERS = np.where(_SEPARATES, np.uint64(0), (_BYTES.astype(np.uint64) + np.uint64(1)) * _ODD | np.uint64(1))
# The first bytes of the characters U+3000 to U+9FFF; of the others the second byte tells.
_STANDS_ALONE = (_BYTES >= 0xE3) & (_BYTES <= 0xE9)
_MAY_STAND_ALONE = (_BYTES == 0xE0) | (_BYTES == 0xE1) | (_BYTES == 0xF0)


def _stand_alone(data: np.ndarray) -> np.ndarray:
    """Return which UTF-8 bytes begin a character that counts as a word, bool [bytes]."""
    alone = _STANDS_ALONE[data]
    at = np.flatnonzero(_MAY_STAND_ALONE[data[:-1]])
    first, second = data[at], data[at + 1]
    south = (first == 0xE0) & (second >= 0xB8)  # Thai, Lao, Tibetan
    burmese_or_khmer = (first == 0xE1) & ((second == 0x80) | (second == 0x81) | (second == 0x9E) | (second == 0x9F))
    rare_chinese = (first == 0xF0) & (second >= 0xA0) & (second <= 0xAF)
    alone[at[south | burmese_or_khmer | rare_chinese]] = True
    return alone


def _begins(data: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Return the places where words begin in the UTF-8 bytes of texts that begin at `starts`, int64."""
    separates = _SEPARATES[data]
    begins = ~separates
    begins[1:] &= separates[:-1]
    begins[starts] = ~separates[starts]
    if data.max(initial=0) < 0xE0:
        return np.flatnonzero(begins)
    alone = _stand_alone(data)
    begins |= alone
    longer = np.flatnonzero(alone & (data == 0xF0))
    alone[longer] = False
    begins[3:] |= alone[:-3] & ~separates[3:]  # the character after one of three bytes
    after = longer[longer + 4 < len(data)] + 4
    begins[after] |= ~separates[after]
    return np.flatnonzero(begins)


def _words_of(data: np.ndarray, starts: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield hashes of words, and where each begins, in pieces of the UTF-8 bytes of texts that begin at `starts`."""
    at = 0
    while at < len(data):
        piece = data[at : at + PIECE]
        inside = starts[np.searchsorted(starts, at) : np.searchsorted(starts, at + len(piece))] - at
        begins = _begins(piece, inside)
        end = len(piece)
        if at + end < len(data) and len(begins) > 1:
            begins, end = begins[:-1], int(begins[-1])  # the last word may be longer than the piece
        sums = np.zeros(len(piece) + 1, np.uint64)
        np.cumsum(_NUMBERS[piece] * _POWERS[: len(piece)], out=sums[1:])
        of_words = np.diff(sums[np.append(begins, end)]) * _INVERSE[begins]
        yield (of_words ^ (of_words >> _SHIFT)) * _MIX, begins + at
        at += end


def compared(batch: pa.RecordBatch) -> pa.StringArray:
    """Return the texts of documents that are compared: with their prompts, if they have some."""
    if PROMPT not in batch.schema.names:
        return batch["text"]
    return pc.binary_join_element_wise(batch[PROMPT], batch["text"], "\n\n")


def shingles(text: pa.StringArray) -> tuple[np.ndarray, np.ndarray]:
    """Return the shingles of all texts one after another, uint64, and where each text begins and ends, int64 [N + 1].

    A text of fewer than five words has none. Nulls are not allowed. This takes about three times the memory of the
    text, since some documents have hundreds of megabytes.
    """
    counts, found = np.zeros(len(text), np.int64), [np.empty(0, np.uint64)]
    data, bounds = bytes_of(text)
    starts = bounds[:-1]
    words, places = np.empty(0, np.uint64), np.empty(0, np.int64)  # the last ones, which the next piece needs
    for more, where in _words_of(data, starts[np.diff(bounds) > 0]):
        words, places = np.concatenate((words, more)), np.concatenate((places, where))
        texts = np.searchsorted(starts, places, "right") - 1
        begin = np.flatnonzero(texts[LENGTH - 1 :] == texts[: max(0, len(texts) - LENGTH + 1)])
        joined = words[begin]
        for i in range(1, LENGTH):
            joined = (joined ^ (joined >> _SHIFT)) * _ODD + words[begin + i]
        found.append((joined ^ (joined >> _SHIFT)) * _MIX)
        counts += np.bincount(texts[begin], minlength=len(text))
        words, places = words[1 - LENGTH :], places[1 - LENGTH :]
    return np.concatenate(found), np.concatenate(([0], np.cumsum(counts)))


def rows_of(threshold: float) -> int:
    """Return how many numbers a band has, so that `FOUND` of the pairs at the threshold have an equal band."""
    if threshold == 1:
        return MOST_ROWS
    share = 1 - (1 - FOUND) ** (1 / len(BANDS))  # of the bands of such a pair that must be equal, on average
    return max(1, min(MOST_ROWS, math.floor(math.log(share) / math.log(threshold))))


def bands_of(text: pa.StringArray, threshold: float) -> np.ndarray:
    """Return the bands of each text, uint64 [texts, bands]: 0 if it has no shingles, so that it has no copies."""
    rows, count = rows_of(threshold), len(BANDS)
    found, bounds = shingles(text)
    bands = np.empty((len(text), count), np.uint64)
    row = struct.Struct(f"<{count * rows}I")
    for start in range(0, len(text), AT_ONCE):
        here = bounds[start : start + AT_ONCE + 1]
        matrix = RMinHash.digest_matrix_from_flat_token_hashes(
            found[here[0] : here[-1]], (here - here[0]).astype(np.uint64), count * rows, SEED
        )
        numbers = np.frombuffer(b"".join([row.pack(*numbers) for numbers in matrix.to_rows()]), "<u4")
        bands[start : start + AT_ONCE] = _joined(numbers.reshape(-1, count, rows))
    bands[np.diff(bounds) == 0] = 0
    return bands


def _joined(numbers: np.ndarray) -> np.ndarray:
    """Return a hash of each band [texts, bands, rows], uint64 [texts, bands]; different bands have different hashes."""
    joined = np.arange(1, len(BANDS) + 1, dtype=np.uint64) * _ODD
    for row in range(numbers.shape[2]):
        joined = (joined ^ numbers[:, :, row]) * _MIX
        joined ^= joined >> np.uint64(31)
    return joined


def similarity(one: np.ndarray, other: np.ndarray) -> float:
    """Return the Jaccard index of two sets of shingles, as `sample_of` returns them."""
    for sample in (one, other):
        if len(sample) == LARGEST:  # of both texts, all shingles up to this one are known
            one, other = one[one <= sample[-1]], other[other <= sample[-1]]
    both = int((one[np.minimum(np.searchsorted(one, other), len(one) - 1)] == other).sum())
    return both / (len(one) + len(other) - both)


def sample_of(found: np.ndarray) -> np.ndarray:
    """Return the different shingles of a text, sorted; of a very long text, the `LARGEST` smallest."""
    return np.unique(found)[:LARGEST]


class Copy(NamedTuple):
    """Says that a text is a near copy."""

    similarity: float  # the Jaccard index with the earlier text that stays
    of: int  # the number of that text
    beginning: str  # its first characters


def groups_of(documents: Spool, among: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """Return pairs of a document and a group of those with an equal band, sorted by document; and how many groups.

    `among`: bool [documents]. All groups have at least two documents.
    """
    rows = np.flatnonzero(among).astype(np.uint32)
    texts, groups, count = [np.empty(0, np.uint32)], [np.empty(0, np.uint32)], 0
    for band in BANDS:
        hashes = documents.numbers(band)[among]
        order = np.argsort(hashes, kind="stable")
        hashes = hashes[order]
        equal = (hashes[1:] == hashes[:-1]) & (hashes[1:] != 0)
        begins = ~np.append(False, equal)
        shared = ~begins | np.append(equal, False)[: len(begins)]
        texts.append(rows[order[shared]])
        groups.append((count + np.cumsum(begins[shared]) - 1).astype(np.uint32))
        count += int((begins & shared).sum())
    both = np.concatenate(texts), np.concatenate(groups)
    order = np.argsort(both[0], kind="stable")
    return both[0][order], both[1][order], count


def near_copies(
    documents: Spool, among: np.ndarray, held: int, threshold: float, scratch: Path | None
) -> Generator[tuple[int, str, Copy]]:
    """Yield which documents are near copies: number, text, and of what.

    A copy is at least as similar as the threshold. `among`: bool [documents], those that are looked at. The first
    `held` documents, the user's own validation text, all stay. `scratch` is the folder for temporary files.
    """
    texts, groups, count = groups_of(documents, among)
    members = np.zeros((count, MEMBERS), np.int64)  # places in `staying`; 0 stands for no text
    total, columns = documents.documents, [name for name in ("text", PROMPT) if name in documents.columns]
    with tempfile.TemporaryFile(dir=scratch, buffering=0) as staying, contextlib.closing(Bar(total)) as bar:
        end = staying.write(b"-")
        for first, batch in documents.batches(columns):
            begin, last = np.searchsorted(texts, (first, first + len(batch)))
            rows, starts = np.unique(texts[begin:last], return_index=True)
            of_rows = np.split(groups[begin:last], starts[1:])
            chosen = batch.take(pa.array(rows.astype(np.int64) - first))
            found, ends = shingles(compared(chosen))
            for i, (row, its_groups) in enumerate(zip(rows.tolist(), of_rows, strict=False)):
                own, text = sample_of(found[ends[i] : ends[i + 1]]), chosen["text"][i].as_py()
                mine = members[its_groups]
                places = sorted({*mine.ravel().tolist()} - {0}) if row >= held else []
                copies = (_copy(staying.fileno(), place, own, threshold) for place in places)
                if copy := next(filter(None, copies), None):
                    yield row, text, copy
                elif (free := (mine == 0).any(1)).any():
                    members[its_groups[free], (mine[free] == 0).argmax(1)] = end
                    beginning = compared(chosen.slice(i, 1))[0].as_py()[: RECORD.size].encode()
                    end += staying.write(RECORD.pack(row, beginning, len(own)) + own.tobytes())
            bar.show(first + len(batch), f"near copies: {first + len(batch):,}/{total:,} documents")


def _copy(staying: int, place: int, own: np.ndarray, threshold: float) -> Copy | None:
    """Return that a text is a copy of the one that is stored at a place; None if it is none."""
    row, beginning, size = RECORD.unpack(os.pread(staying, RECORD.size, place))
    found = similarity(own, np.frombuffer(os.pread(staying, 8 * size, place + RECORD.size), np.uint64))
    return Copy(found, row, beginning.rstrip(b"\0").decode(errors="ignore")) if found >= threshold else None
