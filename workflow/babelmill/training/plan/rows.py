"""Hold the rows of a step, and divide them: over the processes, and into forward passes.

Which process computes a row, in which pass, changes only the order in which floating-point numbers are added.
"""

import heapq
from dataclasses import dataclass, replace
from typing import Any

import numpy as np


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
            of the documents in their order of this epoch (`layouts.Shuffled`).
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

    def parts(self) -> tuple[np.ndarray, np.ndarray]:
        """Return where all pieces of all rows begin and end in the streams, row after row."""
        if self.pieces is None:
            return self.begin, self.end
        return tuple(np.concatenate([*self.pieces, np.empty((0, 2), np.int64)]).T)

    def places(self, length: int) -> np.ndarray:
        """Return where each row's tokens are in its language's stream, [B, length]. After its end, values mean nothing.

        `length`: at least the number of tokens of each row.
        """
        place = np.arange(length)
        if self.pieces is None:
            return self.begin[:, None] + place
        begin, end = self.parts()
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


def without_targets(rows: Rows) -> Rows:
    """Return the rows without their targets, so that a forward pass with them does not change any sum."""
    return replace(rows, targets=np.zeros_like(rows.targets))


def whole_rounds(parts: list[Rows], processes: int) -> list[Rows]:
    """Return parts and, after them, rows without targets, so that their number is a multiple of `processes`."""
    return parts + [without_targets(parts[0][:1])] * (-len(parts) % processes)
