"""Read the rows of a task's files: the text or pair of texts of each row, and its label; number classes, divide rows.

The multilingual track of the BabyLM challenge divides rows (babylm-eval, multilingual/finetune/pos_data.py) with the
package `datasets`, whose permutations are NumPy's: the same rows in the same order have the same parts here.
"""

import math
import re
import unicodedata
from collections.abc import Container, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from babelmill.config.entries import columns_of
from babelmill.core.files import UserError
from babelmill.tables.rows import Asked, text_rows
from babelmill.tables.text import Form
from babelmill.tokens.label_text import NO_LABEL

# `whole`: whether each column that the templates name holds text.
SCHEMA = pa.schema([("text", pa.string()), ("pair", pa.string()), ("label", pa.string()), ("whole", pa.bool_())])
PREDICTED = "predicted"  # the part that is only predicted
HELD_OUT = 0.2  # the share of the rows that are not trained on: one half is scored, the other one is predicted


def label_of(cell: str, where: str, unknown: Container[str] = NO_LABEL) -> str:
    """Return a label, composed letters as one (NFC); raise a UserError if it is empty or stands for none."""
    label = unicodedata.normalize("NFC", cell.strip())
    if label in unknown:
        shown = f"{label!r}, which stands for no label" if label else "empty"
        raise UserError(f"{where} is {shown}; leave such rows out, or give the class a name")
    return label


def read_rows(path: Path, columns: dict[str, str], task: str) -> pa.Table:
    """Read the rows of a file, plain or compressed: a table with the columns of SCHEMA.

    `pair` is null for tasks of single texts. A UserError says that a column is missing, or a row has no label.
    """
    section = f"tasks.{task}"
    templates = {key: columns[key] for key in ("text", "pair") if columns.get(key)}
    named = {name: f"{section}.{key}" for key, template in templates.items() for name in columns_of(template)}
    asked = [Asked(name, setting) for name, setting in named.items()]
    asked.append(Asked(columns["label"], f"{section}.label", "value"))
    rows: list[dict[str, Any]] = []
    for row in text_rows([path], asked, Form.of(section, columns)):
        label = label_of(row.cells[columns["label"]], f"{row.where}: the label ({columns['label']!r})")
        whole = all(row.cells[name].strip() for name in named)
        texts = {key: row.filled(template) for key, template in templates.items()}
        rows.append({"pair": None, "label": label, "whole": whole} | texts)
    return pa.Table.from_pylist(rows, SCHEMA)


def keys_of(table: pa.Table) -> list[str]:
    """Return what tells texts and sentences apart, without case and blanks: a model reads such rows (nearly) alike."""
    if "words" in table.column_names:
        rows = [" ".join(words) for words in table["words"].to_pylist()]
    else:
        pairs = zip(table["text"].to_pylist(), table["pair"].to_pylist(), strict=True)
        rows = [f"{text}\0{pair or ''}" for text, pair in pairs]
    return ["".join(row.casefold().split()) for row in rows]


def classes_of(labels: Iterable[str]) -> list[str]:
    """Return the classes among labels, in the order of their numbers: sorted as numbers if all are, else as text."""
    found = set(labels)
    if all(re.fullmatch(r"-?\d+", label) for label in found):
        return sorted(found, key=int)
    return sorted(found)


def resplit(table: pa.Table, rows: int, seed: int) -> dict[str, pa.Table]:
    """Shuffle rows, keep some, and return the parts "train", "test" and PREDICTED; see `entries.Resplit`."""

    def shuffled(table: pa.Table) -> pa.Table:
        """Return rows in the order of `datasets.Dataset.shuffle`, which `train_test_split` begins with, too."""
        return table.take(np.random.default_rng(seed).permutation(len(table)))

    kept = shuffled(shuffled(table).slice(0, rows))
    count = math.ceil(HELD_OUT * len(kept))
    rest = shuffled(kept.slice(0, count))
    half = math.ceil(count / 2)
    return {"train": kept.slice(count), "test": rest.slice(half), PREDICTED: rest.slice(0, half)}
