"""Find the columns of a table that are asked for, read a line of JSON, and check what its values hold."""

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from babelmill.core import escape
from babelmill.text_files.encodings import BOM, MARK_INSIDE


class Asked(NamedTuple):
    """A column that is asked for."""

    column: str  # its name
    setting: str  # what names it, for errors: the key of the configuration, or an argument
    text: bool = True  # whether its cells must hold text. If not, they may also hold numbers, as labels and contexts do
    truth: bool = False  # whether its cells may also be true or false, which are then text


class BadRow(Exception):
    """A row that cannot be read; the message says why."""


class NoColumn(BadRow):
    """There is no such column, or more than one; the file or the configuration is wrong, not the row."""


def check_names(there: Sequence[str], asked: Iterable[Asked], unit: str = "column") -> None:
    """Raise NoColumn unless each column that is asked for occurs exactly once; `unit` is what a column is called."""
    for column, setting, *_ in asked:
        count = there.count(column)
        shown = escape.line(repr(column), 100)
        if count > 1:
            raise NoColumn(f"{count} {unit}s are named {shown} ({setting}); rename all but one of them")
        if not count:
            raise NoColumn(f"no {unit} {shown}; there are {escape.some(map(repr, there)) or 'none'}; set {setting}")


def check_cell(asked: Asked, value: Any) -> None:
    """Raise BadRow if a value of JSON does not fit its column."""
    if value is None or isinstance(value, str) or (asked.truth and isinstance(value, bool)):
        return
    if asked.text:
        raise BadRow(f"{escape.line(repr(asked.column), 100)} is no text: {shown(value)}")
    if isinstance(value, bool | list | dict):
        raise BadRow(f"{escape.line(repr(asked.column), 100)} is neither text nor a number: {shown(value)}")


def shown(value: Any) -> str:
    """Return a value for an error. A list or an object may be nested so deeply that it cannot be written."""
    return {list: "a list", dict: "an object"}.get(type(value)) or escape.line(repr(value), 60)


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object of these keys and values, each key of which is there once."""
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for i, (key, _) in enumerate(pairs) if key in dict(pairs[:i]))
        raise BadRow(f"the key {escape.line(repr(twice), 100)} appears twice")
    return found


def object_of(line: str) -> dict[str, Any]:
    """Return the object of a line. Raise BadRow if the line is none, or has a key twice."""
    try:
        row, problem = json.loads(line, object_pairs_hook=_each_once), "not a JSON object"
    except (ValueError, RecursionError) as error:
        row, problem = None, f"not JSON: {error}"
    if isinstance(row, dict):
        return row
    if line.lstrip()[:1] == "[":
        problem = "not a JSON object; if the file is one array, write each of its objects into a line of its own"
    if line.startswith(BOM):
        problem = MARK_INSIDE
    raise BadRow(problem)
