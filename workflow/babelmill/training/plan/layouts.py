"""Say which part of a language's stream is a row: a piece of fixed length (`Packed`), or a whole text with labels.

A layout tells plans and micro-batches everything about rows: how many there are, how many targets each has, and where
each is in the stream. A new layout is a new class with the same members. A layout looks up only the rows that it is
asked for, in the lists of the places where documents and their responses start. So it does not read tokens.

With `train.order: documents`, rows are cut from the documents in a random order (`Shuffled`), without writing the
stream anew. A row then consists of pieces of the stream: the end of one document, whole documents, the beginning of
another. This takes 16 bytes of memory per document.
"""

from typing import Protocol

import numpy as np

from babelmill.training.plan.randomness import permutation


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

    def shuffled(self, key: int) -> "Shuffled":
        """Return the documents in the order of this key."""
        return Shuffled(self._offsets, key)

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
