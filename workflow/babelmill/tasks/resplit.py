"""Divide a task's rows anew, into the same parts as the multilingual track of the BabyLM challenge.

Its script (babylm-eval, multilingual/finetune/pos_data.py) shuffles and divides with the package `datasets`, whose
permutations are NumPy's: the same rows in the same order have the same parts here.
"""

import math

import numpy as np
import pyarrow as pa

PREDICTED = "predicted"  # the part that is only predicted
HELD_OUT = 0.2  # the share of the rows that are not trained on: one half is scored, the other one is predicted


def resplit(table: pa.Table, rows: int, seed: int) -> dict[str, pa.Table]:
    """Shuffle rows, keep some, and return the parts "train", "test" and PREDICTED; see `entries.Resplit`."""
    kept = shuffled(table, seed).slice(0, rows)
    train, rest = _divided(kept, HELD_OUT, seed)
    scored, predicted = _divided(rest, 0.5, seed)
    return {"train": train, "test": scored, PREDICTED: predicted}


def shuffled(table: pa.Table, seed: int) -> pa.Table:
    """Return rows in the order of `datasets.Dataset.shuffle`."""
    return table.take(np.random.default_rng(seed).permutation(len(table)))


def _divided(table: pa.Table, share: float, seed: int) -> tuple[pa.Table, pa.Table]:
    """Return the two parts of `datasets.Dataset.train_test_split`; `share`: that of the second one."""
    order, count = np.random.default_rng(seed).permutation(len(table)), math.ceil(share * len(table))
    return table.take(order[count:]), table.take(order[:count])
