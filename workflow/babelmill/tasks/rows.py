"""Read the rows of a task's files: the text or pair of texts of each row, and its label."""

import logging
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from babelmill.core import escape
from babelmill.core.files import UserError
from babelmill.core.formats import split_name
from babelmill.core.templates import OF_FILE, columns_of, fill
from babelmill.tables.columns import Asked
from babelmill.tables.table import Table

SCHEMA = pa.schema([("text", pa.string()), ("pair", pa.string()), ("label", pa.string())])

log = logging.getLogger("babelmill.task")


def read_rows(paths: Sequence[Path], columns: dict[str, str], task: str, scratch: Path | None = None) -> pa.Table:
    """Read the rows of files, plain or compressed, in order: a table with the columns of SCHEMA.

    `pair` is null for tasks of single texts. A UserError says that a column is missing, a label is empty, or there is
    no row.
    """
    section = f"tasks.{task}"
    named = [(key, name) for key in ("text", "pair") for name in columns_of(columns.get(key, ""))]
    asked = [Asked(name, f"{section}.{key}", True, False) for key, name in named]
    asked.append(Asked(columns["label"], f"{section}.label", False, False))
    rows: list[dict[str, str | None]] = []
    for path in paths:
        table = Table(
            path,
            asked,
            delimiter=columns.get("delimiter"),
            encoding=columns.get("encoding", "utf-8"),
            section=section,
            scratch=scratch,
        )
        for warning in table.warnings:
            log.warning("%s", warning)
        places = {name: table.place(name) for name in {name for _, name in named} | {columns["label"]}}
        stem = Path(path.stem).stem if split_name(path)[1] else path.stem
        templates = {key: columns[key] for key in ("text", "pair") if columns.get(key)}
        for number, row in enumerate(table, 1):
            cells = {name: row[place] for name, place in places.items()} | {OF_FILE: stem}
            label = cells[columns["label"]].strip()
            if not label:
                raise UserError(
                    f"{escape.line(path)}: row {number}: the label ({columns['label']!r}) is empty; correct the file"
                )
            rows.append({"pair": None, "label": label} | {key: fill(each, cells) for key, each in templates.items()})
    if not rows:
        raise UserError(f"{escape.some(paths, 3)}: {section}: these files have no row")
    return pa.Table.from_pylist(rows, SCHEMA)
