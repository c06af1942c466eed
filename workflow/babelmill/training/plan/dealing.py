"""Divide a step's work: distribute the rows of a global batch over the processes, and cut them into forward passes.

Which process computes a row changes only the order in which floating-point numbers are added.
"""

import heapq
from dataclasses import replace

import numpy as np

from babelmill.training.plan.rows import Rows


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


def without_targets(rows: Rows) -> Rows:
    """Return the rows without their targets, so that a forward pass with them does not change any sum."""
    return replace(rows, targets=np.zeros_like(rows.targets))
