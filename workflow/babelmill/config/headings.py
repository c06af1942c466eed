"""Read the beginnings of tables, so that one without a row or column that is needed is refused before anything runs.

What cannot be read here is no error: the stage that reads the table reports it, with the line.
"""

import csv
import functools
import io
import json
import os
from typing import Any

from babelmill.core import escape
from babelmill.core.formats import DELIMITERS, split_name

BEGINNING = 1 << 20  # bytes of a file that are read

LONGEST_HEADING = 100_000  # bytes, also compressed: a larger file has rows


def missing_column(
    path: str, columns: dict[str, str | None], delimiter: str | None, encoding: str, quoting: str, delimiter_key: str
) -> tuple[str, str] | None:
    """Return the first key whose column a table lacks, and words about the table's columns; None if all are there.

    `columns`: {key: name of a column, or None}; `delimiter_key`: the key to set if the delimiter seems to be another.
    """
    there = heading_of(path, delimiter, encoding, quoting)
    for key, column in columns.items():
        if there and column is not None and column not in there:
            delimited = len(there) == 1 and split_name(path)[0] in DELIMITERS
            hint = f"; does the file have another delimiter ({delimiter_key})?" if delimited else ""
            return key, f"its columns are {escape.some(map(repr, there))}{hint}"
    return None


def has_no_row(path: str, encoding: str) -> bool:
    """Return whether a table certainly has no row, but at most a heading."""
    if (suffix := split_name(path)[0]) == ".parquet":
        return _of_parquet(path)[1] == 0
    text = beginning_of(path, encoding)
    if text is None or os.path.getsize(path) > LONGEST_HEADING:  # the first row may be longer than what was read
        return False
    return sum(bool(line.strip()) for line in text.splitlines()) <= (suffix in DELIMITERS)


def beginning_of(path: str, encoding: str = "utf-8") -> str | None:
    """Return the first lines of a text file; None if it cannot be read."""
    try:
        return _beginning(path, split_name(path)[1]).decode(encoding.replace("utf-8", "utf-8-sig"))
    except Exception:  # whatever a damaged file raises
        return None


def heading_of(path: str, delimiter: str | None, encoding: str, quoting: str) -> list[str]:
    """Return the names of a table's columns; an empty list if they are not known.

    Of JSON lines, these are the keys in the first megabyte.
    """
    try:
        changed = os.stat(path).st_mtime_ns
    except OSError:
        return []
    return _heading(path, delimiter, encoding, quoting, changed)


@functools.cache
def _heading(path: str, delimiter: str | None, encoding: str, quoting: str, _changed: int) -> list[str]:
    suffix, compression = split_name(path)
    if suffix == ".parquet" and not compression:
        return _of_parquet(path)[0]
    if suffix in (".jsonl", ".json"):
        encoding = "utf-8"
    elif suffix not in DELIMITERS:
        return []
    if (text := beginning_of(path, encoding)) is None:
        return []
    if suffix not in DELIMITERS:
        return _of_json(text)
    plain = quoting == "none" or (quoting == "format" and suffix == ".tsv")
    reading: Any = {"quoting": csv.QUOTE_NONE} if plain else {}
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter or DELIMITERS[suffix], **reading)
    try:
        return next(filter(None, rows), [])
    except csv.Error:
        return []


def _of_json(text: str) -> list[str]:
    try:
        rows = [json.loads(line) for line in text.split("\n") if line.strip()]
        return list({key: None for row in rows for key in row.keys()})
    except (ValueError, AttributeError, RecursionError):
        return []


def _beginning(path: str, compression: str | None) -> bytes:
    """Return the first lines of a file."""
    if not compression:
        with open(path, "rb") as file:
            raw = file.read(BEGINNING)
    else:
        import pyarrow as pa  # takes a while, and few tables are compressed

        with pa.OSFile(path) as file, pa.CompressedInputStream(file, compression) as stream:
            raw = stream.read(BEGINNING)
    return raw[: raw.rfind(b"\n") + 1] or raw


def _of_parquet(path: str) -> tuple[list[str], int | None]:
    """Return the names of a table's columns and the number of its rows; [] and None if it cannot be read."""
    import pyarrow as pa  # takes a while, and few tables are Parquet
    import pyarrow.parquet as pq

    try:
        return list(pq.read_schema(path).names), pq.read_metadata(path).num_rows
    except (pa.ArrowException, OSError):
        return [], None
