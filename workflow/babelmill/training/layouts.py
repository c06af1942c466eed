"""Which part of a language's stream is a row: `Packed`, strides over the stream.

A plan and the micro-batches ask a layout for everything that they need to know of rows: how many there are, how many
targets each has, and where each lies in the stream. Another layout is another class with the same four members. All of
it comes from where documents, and the responses to their prompts, start: the tokens need not be read.
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
        """Return for each row how many targets may be hidden (no special tokens), and all (ends of documents too).

        What belongs to a prompt is no target. A row may have none.
        """
        ...

    def bounds(self, row: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
        """Return where in the stream the targets of rows begin, and before what they end."""
        ...


class Packed:
    """Rows are strides over the stream: row r of length T has the T targets from r T; the last one may be shorter."""

    def __init__(self, offsets: np.ndarray, responses: np.ndarray | None = None):
        """`offsets`: [documents + 1] and `responses`: [documents], as in the shard."""
        self.tokens = int(offsets[-1])
        self._begins = np.asarray(offsets[:-1])
        self._ends = np.asarray(offsets[1:]) - 1
        self._prompts = None if responses is None else responses - self._begins - 1  # tokens of each
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
            every = valid - np.bincount(self._begins // length, minlength=rows) - self._in_prompts(length)
            self._rows[length] = every - np.bincount(self._ends // length, minlength=rows), every
        return self._rows[length]

    def _in_prompts(self, length: int) -> np.ndarray | int:
        """Return how many tokens of each row belong to prompts."""
        if self._prompts is None or not self.tokens:
            return 0
        before = np.concatenate([[0], np.cumsum(self._prompts)])
        cuts = np.minimum(np.arange(self.rows(length) + 1) * length, self.tokens)
        document = np.searchsorted(self._begins, cuts, side="right") - 1  # that a cut is in
        inside = np.clip(cuts - self._begins[document] - 1, 0, self._prompts[document])
        return np.diff(before[document] + inside)

    def bounds(self, row: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
        """See `Layout.bounds`."""
        return row * length, np.minimum((row + 1) * length, self.tokens)
