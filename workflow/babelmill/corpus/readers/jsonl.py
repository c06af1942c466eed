"""JSON lines: each line is an object, one key of which holds the text."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from babelmill.core.files import UserError
from babelmill.corpus.batches import METADATA, batch_of
from babelmill.corpus.readers.text import decoded_lines
from babelmill.corpus.tally import Tally

DECODER = json.JSONDecoder()


class BadLine(Exception):
    """A line that is no document; the message says why."""


class NoKey(BadLine):
    """An object without the key that holds the text."""


def read_jsonl(path: Path, stream: pa.NativeFile, tally: Tally, column: str) -> Iterator[pa.RecordBatch]:
    """Yield one document per line, its text and metadata; the other keys are left out.

    Bad lines are reported. A file whose first object lacks the key `column` is an error even where bad lines are
    skipped: the key is wrong, not the line.
    """
    first = True
    for number, lines in decoded_lines(path, stream, tally):
        rows = []
        for i, line in enumerate(lines, number):
            if not line or line.isspace():
                continue
            try:
                rows.append(_row(line, column))
                first = False
            except BadLine as problem:
                if first and isinstance(problem, NoKey):
                    raise UserError(f"{path}: line {i}: {problem}; set corpus.text_column") from None
                tally.bad_document("malformed", path, f"line {i}", str(problem))
        columns = {name: [row.get(name) for row in rows] for name in METADATA}
        yield batch_of({"text": [row[column] for row in rows]} | columns, tally)


def _row(line: str, column: str) -> dict[str, Any]:
    """Return the object of a line, whose `column` is text or null. BadLine: there is none."""
    try:
        row = _parse(line)
    except (ValueError, RecursionError) as error:
        raise BadLine(f"not JSON: {error}") from None
    if not isinstance(row, dict):
        raise BadLine("not a JSON object")
    if column not in row:
        raise NoKey(f"no key {column!r}; there are {', '.join(map(repr, row)) or 'none'}")
    text = row[column]
    if text is not None and not isinstance(text, str):
        raise BadLine(f"{column!r} is no text: {text!r:.60}")
    return row


def _parse(line: str) -> Any:
    """Return the JSON value of a line. What begins and ends with the object is parsed without looking for white space.

    ValueError, RecursionError: it is not JSON.
    """
    if line[0] == "{":
        value, end = DECODER.raw_decode(line)
        if end == len(line):
            return value
    return json.loads(line)  # white space around the value, or an error
