"""Read the rows of a task's files: the text or pair of texts of each row, and its label."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from babelmill.core import escape
from babelmill.core.files import UserError
from babelmill.core.templates import columns_of
from babelmill.tables.rows import Asked, text_rows
from babelmill.tables.text import Form

SCHEMA = pa.schema([("text", pa.string()), ("pair", pa.string()), ("label", pa.string())])


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
