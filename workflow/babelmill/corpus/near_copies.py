"""Find texts that are nearly the same as an earlier one, among any number of texts, in bounded memory.

The similarity of two texts is that of their sets of shingles (`shingles.py`): the number that both have, divided by the
number that at least one has (the Jaccard index). Texts are compared in their order. Each one that is not similar enough
to an earlier one stays, and later ones are compared with it. So the first of several copies stays, and whatever is
dropped has a copy that stays.

Comparing all pairs would take too long. MinHash gives each text a signature of which two texts share a share of the
numbers that is about their similarity. The numbers are cut into `BANDS`, and only texts with an equal band are
compared, by their real shingles. At the threshold, `FOUND` of the pairs have one (in theory; a test counts).

Nothing that grows with the number of texts is in memory. The bands go to temporary files, one for each part of all
possible hashes. In each part alone, equal bands make a group. The texts with groups are then read again in their order.
Of each group, up to `MEMBERS` texts that stay are remembered; their shingles are in a file, too. So more copies are
missed where many texts are somewhat less alike than the threshold, such as pages of one template: about 1 in 25 of
those just at it. A text takes 192 bytes on disk, and one with a group about ten times as much.
"""

import contextlib
import dataclasses
import math
import os
import struct
import tempfile
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
from rensa import RMinHash  # pyright: ignore[reportAttributeAccessIssue] (compiled, without types)

from babelmill.core.files import UserError
from babelmill.corpus.shingles import shingles

BANDS = 16
FOUND = 0.99
MOST_ROWS = 8  # numbers in a band
SEED = 1  # of the signatures
AT_ONCE = 256  # texts; rensa returns lists, and long ones are slow
PARTS = 128  # open files
SORTED = 1 << 20  # bands that are looked at at a time: among many copies of one text, a part is large
MEMBERS = 4
MOST = 2**32  # texts, since their numbers have 32 bits on disk
LARGEST = 1 << 16  # shingles; of a text with more, those with the smallest hashes stand for all (error below 0.005)
BAND = np.dtype([("hash", "<u8"), ("text", "<u4")])
GROUP = np.dtype([("text", "<u4"), ("group", "<u8")])
BANDS_TYPE = pa.binary(8 * BANDS)
RECORD = struct.Struct("<B160sI")  # mark, beginning, number of shingles


def rows_of(threshold: float) -> int:
    """Return how many numbers a band has, so that `FOUND` of the pairs at the threshold have an equal band."""
    if threshold == 1:
        return MOST_ROWS
    share = 1 - (1 - FOUND) ** (1 / BANDS)  # of the bands of such a pair that must be equal, on average
    return max(1, min(MOST_ROWS, math.floor(math.log(share) / math.log(threshold))))


def bands_of(text: pa.StringArray, threshold: float, least: int = 1) -> pa.FixedSizeBinaryArray:
    """Return the bands of each text. They are null if it has fewer than `least` shingles, so that it has no copies."""
    rows = rows_of(threshold)
    found, bounds = shingles(text)
    bands = np.empty((len(text), BANDS), np.uint64)
    row = struct.Struct(f"<{BANDS * rows}I")
    for start in range(0, len(text), AT_ONCE):
        here = bounds[start : start + AT_ONCE + 1]
        matrix = RMinHash.digest_matrix_from_flat_token_hashes(
            found[here[0] : here[-1]], (here - here[0]).astype(np.uint64), BANDS * rows, SEED
        )
        numbers = np.frombuffer(b"".join([row.pack(*numbers) for numbers in matrix.to_rows()]), "<u4")
        bands[start : start + AT_ONCE] = _joined(numbers.reshape(-1, BANDS, rows))
    missing = np.diff(bounds) < least
    validity = pa.array(~missing).buffers()[1] if missing.any() else None
    return pa.FixedSizeBinaryArray.from_buffers(BANDS_TYPE, len(text), [validity, pa.py_buffer(bands)])


def _joined(numbers: np.ndarray) -> np.ndarray:
    """Return a hash of each band [texts, bands, rows], uint64 [texts, bands]; different bands have different hashes."""
    joined = np.arange(1, BANDS + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for row in range(numbers.shape[2]):
        joined = (joined ^ numbers[:, :, row]) * np.uint64(0xBF58476D1CE4E5B9)
        joined ^= joined >> np.uint64(31)
    return joined


def similarity(one: np.ndarray, other: np.ndarray) -> float:
    """Return the Jaccard index of two sets of shingles, as `sample_of` returns them."""
    for sample in (one, other):
        if len(sample) == LARGEST:  # of both texts, all shingles up to this one are known
            one, other = one[one <= sample[-1]], other[other <= sample[-1]]
    places = np.minimum(np.searchsorted(one, other), len(one) - 1)
    both = int((one[places] == other).sum())
    return both / (len(one) + len(other) - both)


def sample_of(found: np.ndarray) -> np.ndarray:
    """Return the different shingles of a text, sorted; of a very long text, the `LARGEST` smallest."""
    if len(found) > 64 * LARGEST:  # most are not needed, and memory would be
        small = sample_of(found[found < np.uint64(2**64 // len(found) * 16 * LARGEST)])
        if len(small) == LARGEST:
            return small
    found = np.sort(found)
    new = np.ones(len(found), bool)
    new[1:] = found[1:] != found[:-1]
    return found[new][:LARGEST]


@dataclasses.dataclass(frozen=True)
class Copy:
    """Says that a text is a near copy."""

    similarity: float  # the Jaccard index with the earlier text that stays
    mark: int  # the mark of that text
    beginning: str  # its first characters


class NearCopies:
    """Finds near copies among texts. All are added, `group` is called, and then all are judged in the same order.

    A copy is at least as similar as the `threshold`; `files` closes the temporary files in the folder `scratch`.
    """

    def __init__(self, threshold: float, scratch: Path | None, files: contextlib.ExitStack) -> None:
        # added: the number of texts
        self.threshold, self.added = threshold, 0
        self._scratch, self._files = scratch, files
        self._parts = [self._file() for _ in range(PARTS)]

    def _file(self, buffering: int = -1) -> IO[bytes]:
        return self._files.enter_context(tempfile.TemporaryFile(dir=self._scratch, buffering=buffering))

    def add(self, bands: pa.FixedSizeBinaryArray) -> None:
        """Add the next texts, each with what `bands_of` returns for it."""
        texts = np.flatnonzero(bands.is_valid().to_numpy(zero_copy_only=False))
        if len(texts):
            hashes = np.frombuffer(bands.buffers()[1], np.uint64).reshape(-1, BANDS)[bands.offset :][texts]
            rows = np.empty(hashes.size, BAND)
            rows["hash"], rows["text"] = hashes.ravel(), np.repeat(texts + self.added, BANDS)
            _deal(rows, rows["hash"] % np.uint64(PARTS), self._parts)
        self.added += len(bands)
        if self.added > MOST:
            raise UserError(
                f"near copies can be found among {MOST:,} texts at most, and there are more: leave out"
                " corpus.near_duplicate_paragraphs and corpus.near_duplicates, or take a part of the files"
            )

    def group(self) -> None:
        """Find the texts with equal bands."""
        self._ranges = [self._file() for _ in range(PARTS)]  # of the texts
        groups = 0
        for part in self._parts:
            part.seek(0)
            rows = np.frombuffer(part.read(), BAND)
            part.close()
            order = np.argsort(rows["hash"], kind="stable")
            for start in range(0, len(rows), SORTED):
                here = order[start : start + SORTED]
                hashes = rows["hash"][order[max(0, start - 1) : start + SORTED + 1]]
                equal = hashes[1:] == hashes[:-1]
                before = equal[: len(here)] if start else np.append(False, equal)[: len(here)]
                after = np.append(equal, False)[-len(here) :] if start + SORTED >= len(rows) else equal[-len(here) :]
                has_equal = before | after
                found = np.empty(int(has_equal.sum()), GROUP)
                found["text"] = rows["text"][here[has_equal]]
                found["group"] = groups + np.cumsum(~before[has_equal]) - 1
                _deal(found, self._range_of(found["text"].astype(np.int64)), self._ranges)
                groups += int((~before & has_equal).sum())
        self._members = np.memmap(self._file(), np.int64, "w+", shape=(max(1, groups), MEMBERS))  # places in `_staying`
        self._staying = self._file(buffering=0)
        self._end = self._staying.write(b"-")  # place 0 stands for no text
        self._judged, self._range, self._rows = 0, -1, np.empty(0, GROUP)

    def _range_of(self, text: Any) -> Any:
        """Return the number of the file that has the groups of a text."""
        return text * PARTS // max(1, self.added)

    def judge(self, text: pa.StringArray, marks: np.ndarray, all_stay: bool = False) -> dict[int, Copy]:
        """Return which of the next texts are near copies, by their index; none if all of them stay.

        `marks` are small numbers, one a text.
        """
        rows = self._groups(len(text))
        bounds = np.flatnonzero(np.diff(rows["text"], prepend=-1, append=-1))
        numbers = rows["text"][bounds[:-1]].astype(np.int64) - (self._judged - len(text))
        chosen = text if len(numbers) == len(text) else text.take(pa.array(numbers))
        found, ends = shingles(chosen)
        copies: dict[int, Copy] = {}
        for k, (i, first, last) in enumerate(zip(numbers.tolist(), bounds[:-1], bounds[1:], strict=True)):
            own = sample_of(found[ends[k] : ends[k + 1]])
            groups = rows["group"][first:last]
            if not all_stay and (copy := self._copy(own, groups)):
                copies[i] = copy
            else:
                self._stays(own, groups, int(marks[i]), text[i].as_py())
        return copies

    def _groups(self, count: int) -> np.ndarray:
        """Return the groups of the next texts, in the texts' order."""
        self._judged += count
        while count and self._range < self._range_of(self._judged - 1):
            self._range += 1
            file = self._ranges[self._range]
            file.seek(0)
            rows = np.frombuffer(file.read(), GROUP)
            file.close()
            self._rows = np.concatenate((self._rows, rows[np.argsort(rows["text"], kind="stable")]))
        end = np.searchsorted(self._rows["text"], self._judged)
        found, self._rows = self._rows[:end], self._rows[end:]
        return found

    def _copy(self, own: np.ndarray, groups: np.ndarray) -> Copy | None:
        """Return the first text that stays, has one of the groups, and is similar enough to these shingles."""
        places = set(self._members[groups].ravel().tolist()) - {0}
        for place in sorted(places):
            mark, beginning, size = RECORD.unpack(os.pread(self._staying.fileno(), RECORD.size, place))
            other = np.frombuffer(os.pread(self._staying.fileno(), 8 * size, place + RECORD.size), np.uint64)
            found = similarity(own, other)
            if found >= self.threshold:
                return Copy(found, mark, beginning.rstrip(b"\0").decode(errors="ignore"))
        return None

    def _stays(self, own: np.ndarray, groups: np.ndarray, mark: int, text: str) -> None:
        """Remember a text that stays, in those of its groups that have less than `MEMBERS`."""
        members = self._members[groups]
        free = (members == 0).any(1)
        if free.any():
            self._members[groups[free], (members[free] == 0).argmax(1)] = self._end
            record = RECORD.pack(mark, text[: RECORD.size].encode(), len(own)) + own.tobytes()
            self._end += self._staying.write(record)


def _deal(rows: np.ndarray, part: np.ndarray, files: list[IO[bytes]]) -> None:
    """Append each row to the file of its part."""
    order = np.argsort(part, kind="stable")
    ends = np.searchsorted(part[order], np.arange(1, len(files)))
    for file, its_rows in zip(files, np.split(rows[order], ends), strict=True):
        file.write(its_rows.tobytes())
