"""Read the rows of a task's files: the text or pair of texts of each row, and its label; number classes, divide rows.

The multilingual track of the BabyLM challenge divides rows (babylm-eval, multilingual/finetune/pos_data.py) with the
package `datasets`, whose permutations are NumPy's: the same rows in the same order have the same parts here.
"""

import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from babelmill.core import escape
from babelmill.core.files import UserError
from babelmill.core.templates import columns_of
from babelmill.tables.rows import Asked, text_rows
from babelmill.tables.text import Form

SCHEMA = pa.schema([("text", pa.string()), ("pair", pa.string()), ("label", pa.string())])
PREDICTED = "predicted"  # the part that is only predicted
HELD_OUT = 0.2  # the share of the rows that are not trained on: one half is scored, the other one is predicted


def read_rows(paths: Sequence[Path], columns: dict[str, str], task: str) -> pa.Table:
    """Read the rows of files, plain or compressed, in order: a table with the columns of SCHEMA.

    `pair` is null for tasks of single texts. A UserError says that a column is missing, a label is empty, or there is
    no row.
    """
    section = f"tasks.{task}"
    named = [(key, name) for key in ("text", "pair") for name in columns_of(columns.get(key, ""))]
    asked = [Asked(name, f"{section}.{key}") for key, name in named]
    asked.append(Asked(columns["label"], f"{section}.label", "value"))
    rows: list[dict[str, str | None]] = []
    templates = {key: columns[key] for key in ("text", "pair") if columns.get(key)}
    for row in text_rows(paths, asked, Form.of(section, columns)):
        label = row.cells[columns["label"]].strip()
        if not label:
            raise UserError(f"{row.where}: the label ({columns['label']!r}) is empty; correct the file")
        rows.append({"pair": None, "label": label} | {key: row.filled(each) for key, each in templates.items()})
    if not rows:
        raise UserError(f"{escape.some(paths, 3)}: {section}: these files have no row")
    return pa.Table.from_pylist(rows, SCHEMA)


def classes_of(labels: Iterable[str]) -> list[str]:
    """Return the classes among labels, in the order of their numbers: sorted as numbers if all are, else as text."""
    found = set(labels)
    if all(re.fullmatch(r"-?\d+", label) for label in found):
        return sorted(found, key=int)
    return sorted(found)


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
