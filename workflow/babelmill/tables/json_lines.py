"""Read JSON lines: each line is an object."""

from typing import Any

from babelmill.core import outside
from babelmill.tables.columns import BadRow
from babelmill.text_files.encodings import BOM


def object_of(line: str) -> dict[str, Any]:
    """Return the object of a line. Raise BadRow if the line is none, or has a key twice."""
    try:
        row = outside.parse_json(line)
    except ValueError as error:
        raise BadRow(_mark(line) or _array(line) or str(error)) from None
    if not isinstance(row, dict):
        raise BadRow(_array(line) or "not a JSON object")
    return row


def _mark(line: str) -> str:
    """Return advice for a line that begins with a byte order mark; "" for another line."""
    joined = "begins with a byte order mark, as where files were joined; remove the mark (bytes EF BB BF)"
    return joined if line.startswith(BOM) else ""


def _array(line: str) -> str:
    """Return advice for a line that begins a list; "" for another line."""
    if line.lstrip()[:1] != "[":
        return ""
    return "not a JSON object; a file that is one array has to be cut into lines, an object each"
