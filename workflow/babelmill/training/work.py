"""Who does what in a step: the rows of a global batch dealt to processes, and cut into forward passes.

Which process makes a row changes nothing but the order in which floating-point numbers are added.
"""

import heapq
from dataclasses import replace

import numpy as np

from babelmill.training.batches import Rows


def deal(costs: np.ndarray, processes: int) -> np.ndarray:
    """Return the process of each row, [rows] int64, so that all have about the same work.

    The most expensive row that is left goes to the process with the least work (Graham, 1969, "longest processing time
    first"). A causal row costs more than a masked one: it has about six times the targets.

    Args:
        costs: [rows], such as floating-point operations.
        processes: their number.
    """
    process = np.empty(len(costs), dtype=np.int64)
    work = [(0.0, number) for number in range(processes)]
    for row in np.argsort(-costs, kind="stable"):
        done, number = work[0]
        process[row] = number
        heapq.heapreplace(work, (done + float(costs[row]), number))
    return process


def passes(rows: Rows, most: int) -> list[Rows]:
    """Cut rows into as few forward passes as fit, of equal size within one; `most`: rows of one pass."""
    count = -(-len(rows) // most)
    return [rows[part] for part in np.array_split(np.arange(len(rows)), count)] if count else []


def without_targets(rows: Rows) -> Rows:
    """Return rows that have nothing to learn: a forward pass of them changes no sum."""
    return replace(rows, targets=np.zeros_like(rows.targets))
