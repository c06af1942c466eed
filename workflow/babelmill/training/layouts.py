"""Which part of a language's stream is a row: `Packed`, strides over the stream.

A plan and the micro-batches ask a layout for everything that they need to know of rows: how many there are, how many
targets each has, and where each lies in the stream. Another layout is another class with the same members. All of it is
looked up, for the rows in question, in the list of where documents, and the responses to their prompts, start: the
tokens need not be read, and nothing is made that grows with the corpus.
"""

from typing import Protocol

import numpy as np


class Layout(Protocol):
    """The rows of a language's shard.

    Attributes:
        tokens: of the stream.
        documents: of the stream.
    """

    tokens: int
    documents: int

    def rows(self, length: int) -> int:
        """Return the number of rows of at most this length."""
        ...

    def bounds(self, row: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
        """Return where in the stream the targets of rows begin, and before what they end."""
        ...

    def targets(self, row: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
        """Return how many targets of each row may be hidden (no special tokens), and all (ends of documents too).

        What belongs to a prompt is no target. A row may have none.
        """
        ...


class Packed:
    """Rows are strides over the stream: row r of length T has the T targets from r T; the last one may be shorter."""

    def __init__(self, offsets: np.ndarray, responses: np.ndarray | None = None):
        """`offsets`: [documents + 1] and `responses`: [documents], as in the shard; maps of its file are not copied."""
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
        begin, end = self.bounds(row, length)
        starts, ends = (self._documents_before(end + i) - self._documents_before(begin + i) for i in range(2))
        every = end - begin - starts - self._in_prompts(begin, end)
        return every - ends, every

    def _documents_before(self, place: np.ndarray) -> np.ndarray:
        """Return how many documents begin before places in the stream; a document ends just before the next begins."""
        return np.searchsorted(self._offsets, place)

    def _in_prompts(self, begin: np.ndarray, end: np.ndarray) -> np.ndarray | int:
        """Return how many tokens between `begin` and `end` belong to prompts."""
        if self._responses is None:
            return 0
        first = np.searchsorted(self._offsets, begin, side="right") - 1
        count = self._documents_before(end) - first  # documents that have a token in the row
        row = np.repeat(np.arange(len(begin)), count)
        document = np.arange(len(row)) + np.repeat(first - (np.cumsum(count) - count), count)
        after = np.minimum(self._responses[document], end[row])
        inside = np.maximum(0, after - np.maximum(self._offsets[document] + 1, begin[row]))
        return np.bincount(row, inside, len(begin)).astype(np.int64)
