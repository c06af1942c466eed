"""Hold the rows of a step; divide them over processes and into passes; and say where a row is in its stream.

Which process computes a row, in which pass, changes only the order in which floating-point numbers are added.

A layout says which part of a language's stream is a row: a piece of fixed length (`Packed`), or a whole text with
labels. It tells plans and micro-batches everything about rows: how many there are, how many targets each has, and where
each is in the stream. It looks up only the rows that it is asked for, in the lists of the places where documents and
their responses start. So it does not read tokens.

With `train.order: documents`, rows are cut from the documents in a random order (`Shuffled`), without writing the
stream anew. A row then consists of pieces of the stream: the end of one document, whole documents, the beginning of
another. This takes 16 bytes of memory per document.
"""

import heapq
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from babelmill.training.plan.randomness import permutation


@dataclass(frozen=True)
class Rows:
    """Holds rows to build: NumPy arrays [B], with one entry per row.

    Attributes:
        language: index of the language.
        row: number of the row in its language's stream.
        begin, end: where its targets begin and end (exclusive) in its language's stream.
        kind: index among the objective's kinds.
        targets: number of targets; in rows that hide tokens, the number of tokens to hide.
        number: number of the row in the whole run; masks are drawn from it.
        importance: how many targets each target stands for, float64; None if each stands for one.
        pieces: for each row int64 [pieces, 2], where its pieces begin and end (exclusive) in its language's stream;
            None: each row is one piece, from `begin` to `end`. If there are pieces, `begin` and `end` count the tokens
            of the documents in their order of this epoch (`Shuffled`).
    """

    language: np.ndarray
    row: np.ndarray
    begin: np.ndarray
    end: np.ndarray
    kind: np.ndarray
    targets: np.ndarray
    number: np.ndarray
    importance: np.ndarray | None = None
    pieces: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.row)

    def __getitem__(self, part: slice | np.ndarray) -> "Rows":
        columns: dict[str, Any] = {name: None if c is None else c[part] for name, c in vars(self).items()}
        return Rows(**columns)

    def places(self, length: int) -> np.ndarray:
        """Return where each row's tokens are in its language's stream, [B, length]. After its end, values mean nothing.

        `length`: at least the number of tokens of each row.
        """
        place = np.arange(length)
        if self.pieces is None:
            return self.begin[:, None] + place
        begin, end = np.concatenate([*self.pieces, np.empty((0, 2), np.int64)]).T
        size = end - begin
        found = np.zeros((len(self), length), dtype=np.int64)
        before = np.cumsum(size) - size
        found[place < (self.end - self.begin)[:, None]] = np.repeat(begin - before, size) + np.arange(size.sum())
        return found

    @property
    def stands_for(self) -> np.ndarray:
        """Return the number of targets that the targets of a row stand for together, [B] int64."""
        return self.targets if self.importance is None else np.rint(self.targets * self.importance).astype(np.int64)


def deal(costs: np.ndarray, processes: int) -> np.ndarray:
    """Return the process of each row, [rows] int64, so that all processes have about the same work.

    The most expensive remaining row always goes to the process with the least work so far (Graham, 1969, "longest
    processing time first"). A causal row costs more than a masked one: it has about six times as many targets.

    Args:
        costs: [rows], cost of each row, such as floating-point operations.
        processes: number of processes.
    """
    process = np.empty(len(costs), dtype=np.int64)
    work = [(0.0, number) for number in range(processes)]
    for row in np.argsort(-costs, kind="stable"):
        done, number = work[0]
        process[row] = number
        heapq.heapreplace(work, (done + float(costs[row]), number))
    return process


def passes(rows: Rows, most: int) -> list[Rows]:
    """Cut rows into as few forward passes as possible, of at most `most` rows. Their sizes differ by at most one."""
    count = -(-len(rows) // most)
    return [rows[part] for part in np.array_split(np.arange(len(rows)), count)] if count else []


def split(rows: Rows, size: int) -> list[Rows]:
    """Cut rows into parts of `size` rows; the last part may be shorter."""
    return [rows[i : i + size] for i in range(0, len(rows), size)]


def whole_rounds(parts: list[Rows], processes: int) -> list[Rows]:
    """Return parts and, after them, a row without targets, so that their number is a multiple of `processes`.

    A forward pass with such a row does not change any sum.
    """
    row = replace(parts[0][:1], targets=np.zeros(1, dtype=np.int64))
    return parts + [row] * (-len(parts) % processes)


class Packed:
    """Cuts a language's stream into rows. Row r of length T has the T targets from r T on; the last may be shorter.

    A subclass has rows of another kind (`labels/data.py`).

    Attributes:
        tokens: number of tokens of the stream.
        offsets: [documents + 1], where documents start in the stream.
    """

    def __init__(self, offsets: np.ndarray, responses: np.ndarray | None = None):
        """Take `offsets` [documents + 1] and `responses` [documents] of a shard. Memory maps are not copied."""
        self.tokens = int(offsets[-1])
        self.offsets, self._responses = offsets, responses

    def rows(self, length: int) -> int:
        """Return the number of rows of at most this length."""
        return -(-self.tokens // length)

    def bounds(self, row: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
        """Return where the targets of rows begin and end (exclusive) in the stream."""
        return row * length, np.minimum((row + 1) * length, self.tokens)

    def targets(self, row: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
        """Return how many targets of each row may be hidden (no special tokens), and how many targets it has.

        The second number includes ends of documents. Tokens of prompts are not targets. A row may have no target.
        """
        return self.targets_between(*self.bounds(row, length))

    def targets_between(self, begin: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the numbers of `targets` for any parts of the stream, from `begin` to `end` (exclusive)."""
        starts, ends = (self._documents_before(end + i) - self._documents_before(begin + i) for i in range(2))
        every = end - begin - starts - self._in_prompts(begin, end)
        return every - ends, every

    def _documents_before(self, place: np.ndarray) -> np.ndarray:
        """Return how many documents begin before each place of the stream. There are no gaps between documents."""
        return np.searchsorted(self.offsets, place)

    def _in_prompts(self, begin: np.ndarray, end: np.ndarray) -> np.ndarray | int:
        """Return how many tokens of each row, between `begin` and `end`, belong to prompts."""
        if self._responses is None:
            return 0
        first = np.searchsorted(self.offsets, begin, side="right") - 1
        count = self._documents_before(end) - first  # number of documents that have a token in the row
        row = np.repeat(np.arange(len(begin)), count)
        document = np.arange(len(row)) + np.repeat(first - (np.cumsum(count) - count), count)
        after = np.minimum(self._responses[document], end[row])
        inside = np.maximum(0, after - np.maximum(self.offsets[document] + 1, begin[row]))
        return np.bincount(row, inside, len(begin)).astype(np.int64)


class Shuffled:
    """Holds the documents of a stream in an order of their own.

    Args:
        offsets: [documents + 1], where documents start in the stream, see `ShardFile`.
        key: chooses the order, see `permutation`.
    """

    def __init__(self, offsets: np.ndarray, key: int):
        self._offsets, self._order = offsets, permutation(len(offsets) - 1, key)
        self._before = np.concatenate([[0], np.diff(offsets)[self._order].cumsum()])  # tokens before each document

    def pieces(self, begin: np.ndarray, end: np.ndarray) -> np.ndarray:
        """Return where rows are in the stream of the shard.

        Args:
            begin, end: [rows], where each row begins and ends (exclusive) among the tokens in this order. No row is
                empty.

        Returns:
            [rows] object: for each row int64 [pieces, 2], where its pieces begin and end, in the row's order.
        """
        first = np.searchsorted(self._before, begin, side="right") - 1
        count = np.searchsorted(self._before, end) - first  # documents that have a token in the row
        last = count.cumsum()
        row = np.repeat(np.arange(len(begin)), count)
        place = np.arange(len(row)) + np.repeat(first - last + count, count)
        before = self._before[place]
        inside = np.stack([np.maximum(before, begin[row]), np.minimum(self._before[place + 1], end[row])], 1)
        found = inside + (self._offsets[self._order[place]] - before)[:, None]
        pieces = np.empty(len(begin), dtype=object)
        for i, part in enumerate(np.split(found, last[:-1])):
            pieces[i] = part
        return pieces
