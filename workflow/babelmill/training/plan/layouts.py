"""Say which part of a language's stream is a row: a piece of fixed length (`Packed`), or a whole text with labels.

A layout tells plans and micro-batches everything about rows: how many there are, how many targets each has, and where
each is in the stream. A new layout is a new class with the same members. A layout looks up only the rows that it is
asked for, in the lists of the places where documents and their responses start. So it does not read tokens, and its
memory does not grow with the corpus.
"""

from typing import Protocol

import numpy as np

from babelmill.training.plan.shuffle import Shuffled


class Layout(Protocol):
    """Describes the rows of a language's shard.

    Attributes:
        tokens: number of tokens of the stream.
        documents: number of documents of the stream.
    """

    tokens: int
    documents: int

    def rows(self, length: int) -> int:
        """Return the number of rows of at most this length."""
        ...

    def bounds(self, row: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
        """Return where the targets of rows begin and end (exclusive) in the stream."""
        ...

    def targets(self, row: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
        """Return how many targets of each row may be hidden (no special tokens), and how many targets it has.

        The second number includes ends of documents. Tokens of prompts are not targets. A row may have no target.
        """
        ...


class Packed:
    """Cuts the stream into rows. Row r of length T has the T targets from r T on; the last row may be shorter."""

    def __init__(self, offsets: np.ndarray, responses: np.ndarray | None = None):
        """Take `offsets` [documents + 1] and `responses` [documents] of a shard. Memory maps are not copied."""
        self.tokens, self.documents = int(offsets[-1]), len(offsets) - 1
        self._offsets, self._responses = offsets, responses
        self._shuffled: dict[int, Shuffled] = {}  # the last two orders: an epoch begins within a step

    def rows(self, length: int) -> int:
        """Return the number of rows of this length."""
        return -(-self.tokens // length)

    def bounds(self, row: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
        """See `Layout.bounds`."""
        return row * length, np.minimum((row + 1) * length, self.tokens)

    def targets(self, row: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
        """See `Layout.targets`."""
        return self.targets_between(*self.bounds(row, length))

    def targets_between(self, begin: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the numbers of `targets` for any parts of the stream, from `begin` to `end` (exclusive)."""
        starts, ends = (self._documents_before(end + i) - self._documents_before(begin + i) for i in range(2))
        every = end - begin - starts - self._in_prompts(begin, end)
        return every - ends, every

    def shuffled(self, key: int) -> Shuffled:
        """Return the documents in the order of this key."""
        if key not in self._shuffled:
            self._shuffled = dict([*self._shuffled.items()][-1:]) | {key: Shuffled(self._offsets, key)}
        return self._shuffled[key]

    def _documents_before(self, place: np.ndarray) -> np.ndarray:
        """Return how many documents begin before each place of the stream. There are no gaps between documents."""
        return np.searchsorted(self._offsets, place)

    def _in_prompts(self, begin: np.ndarray, end: np.ndarray) -> np.ndarray | int:
        """Return how many tokens of each row, between `begin` and `end`, belong to prompts."""
        if self._responses is None:
            return 0
        first = np.searchsorted(self._offsets, begin, side="right") - 1
        count = self._documents_before(end) - first  # number of documents that have a token in the row
        row = np.repeat(np.arange(len(begin)), count)
        document = np.arange(len(row)) + np.repeat(first - (np.cumsum(count) - count), count)
        after = np.minimum(self._responses[document], end[row])
        inside = np.maximum(0, after - np.maximum(self._offsets[document] + 1, begin[row]))
        return np.bincount(row, inside, len(begin)).astype(np.int64)
