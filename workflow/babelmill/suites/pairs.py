"""Read minimal pairs from files, check them, and return them as one table."""

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from babelmill.core import escape
from babelmill.core.files import UserError
from babelmill.core.formats import split_name
from babelmill.tables.columns import Asked
from babelmill.tables.table import Table

log = logging.getLogger("babelmill.suite")
SCHEMA = pa.schema([(name, pa.string()) for name in ("good", "bad", "phenomenon", "paradigm")])
OF_FILE = "{file}"  # in place of a column's name: take the name of the file


def read(paths: Iterable[Path], columns: dict[str, str], suite: str = "mine", scratch: Path | None = None) -> pa.Table:
    """Read the pairs of files, in order.

    Args:
        paths: .csv, .tsv, .jsonl or .parquet files, plain or compressed.
        columns: the keys of `schema.Suite` that say how to read the files. Without `quoting`, quotation marks
            enclose fields.
        suite: the name of the suite, for errors.
        scratch: the folder for unpacked copies.

    Returns:
        A table with the columns of SCHEMA. If the files have no phenomenon, it is "all"; if they have no paradigm, it
        is the phenomenon.

    Raises:
        UserError: a column is missing, a sentence is empty, or there is no pair.
    """
    rows: list[tuple[str, ...]] = []
    paths = list(paths)
    for path in paths:
        rows += _of_file(path, columns, f"suites.{suite}", scratch)
    if not rows:
        raise UserError(f"{escape.some(paths, 3)}: these files contain no pair of sentences")
    return pa.Table.from_arrays([pa.array(column, pa.string()) for column in zip(*rows, strict=True)], schema=SCHEMA)


def _of_file(path: Path, columns: dict[str, str], section: str, scratch: Path | None) -> list[tuple[str, ...]]:
    """Return (good, bad, phenomenon, paradigm) of each row."""
    named = {key: columns[key] for key in ("phenomenon", "paradigm") if key in columns}
    asked = [Asked(columns[key], f"{section}.{key}") for key in ("good", "bad")]
    asked += [Asked(name, f"{section}.{key}", text=False, truth=True) for key, name in named.items() if name != OF_FILE]
    table = Table(
        path,
        asked,
        delimiter=columns.get("delimiter"),
        encoding=columns.get("encoding", "utf-8"),
        quoting=columns.get("quoting", "csv"),
        section=section,
        scratch=scratch,
    )
    for warning in table.warnings:
        log.warning("%s", warning)
    sentences = {key: table.place(columns[key]) for key in ("good", "bad")}
    groups = {key: None if name == OF_FILE else table.place(name) for key, name in named.items()}
    stem = Path(path.stem).stem if split_name(path)[1] else path.stem
    found = []
    for number, row in enumerate(table, 1):
        for key, place in sentences.items():
            if not row[place].strip():
                raise UserError(
                    f"{escape.line(path)}: row {number}: the {key} sentence ({columns[key]!r}) is empty; correct the"
                    " file"
                )
        group = {key: stem if place is None else row[place] for key, place in groups.items()}
        phenomenon = group.get("phenomenon") or "all"
        found.append((row[sentences["good"]], row[sentences["bad"]], phenomenon, group.get("paradigm") or phenomenon))
    return found


def figures(pairs: pa.Table) -> dict[str, Any]:
    """Return counts: of pairs, of phenomena and paradigms, and of pairs that may be wrong."""
    rows = pairs.to_pylist()
    sentences = [(row["good"], row["bad"]) for row in rows]
    words = [len(good.split()) != len(bad.split()) for good, bad in sentences]
    return {
        "pairs": len(rows),
        "phenomena": len({row["phenomenon"] for row in rows}),
        "paradigms": len({row["paradigm"] for row in rows}),
        "identical": sum(good == bad for good, bad in sentences),
        "duplicates": len(rows) - len(set(sentences)),
        "different_word_counts": sum(words),
    }
