"""Which part of a language's stream is a row: `Packed`, strides over the stream.

A plan and the micro-batches ask a layout for everything that they need to know of rows: how many there are, how many
targets each has, and where each lies in the stream. Another layout is another class with the same four members. All of
it comes from document starts alone: the tokens need not be read.
"""

from typing import Protocol

import numpy as np


class Layout(Protocol):
    """The rows of a language's shard.

    Attributes:
        tokens: of the stream.
    """

    tokens: int

    def rows(self, length: int) -> int:
        """Return the number of rows of at most this length."""
        ...

    def targets(self, length: int) -> tuple[np.ndarray, np.ndarray]:
        """Return for each row how many targets may be hidden (no special tokens), and all (ends of documents too)."""
        ...

    def bounds(self, row: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
        """Return where in the stream the targets of rows begin, and before what they end."""
        ...


class Packed:
    """Rows are strides over the stream: row r of length T has the T targets from r T; the last one may be shorter."""

    def __init__(self, offsets: np.ndarray):
        """`offsets`: [documents + 1], as in the shard."""
        self.tokens = int(offsets[-1])
        self._begins = np.asarray(offsets[:-1])
        self._ends = np.asarray(offsets[1:]) - 1
        self._rows: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def rows(self, length: int) -> int:
        """Return the number of rows of this length."""
        return -(-self.tokens // length)

    def targets(self, length: int) -> tuple[np.ndarray, np.ndarray]:
        """See `Layout.targets`."""
        if length not in self._rows:
            rows = self.rows(length)
            valid = np.full(rows, length)
            valid[-1:] = self.tokens - (rows - 1) * length
            every = valid - np.bincount(self._begins // length, minlength=rows)
            self._rows[length] = every - np.bincount(self._ends // length, minlength=rows), every
        return self._rows[length]

    def bounds(self, row: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
        """See `Layout.bounds`."""
        return row * length, np.minimum((row + 1) * length, self.tokens)
