"""JSON lines: each line is an object, one key of which holds the text; others may hold its prompt, or its labels."""

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from babelmill.core.files import UserError
from babelmill.corpus.columns import Columns
from babelmill.corpus.readers.text import Block, blocks, decoded
from babelmill.corpus.record_batches import METADATA, batch_of
from babelmill.corpus.tally import Tally
from babelmill.text_files.opening import Stream

decode = json.JSONDecoder().raw_decode  # the value at the beginning of a text, and where it ends


class BadLine(Exception):
    """A line that is no document; the message says why."""


class NoKey(BadLine):
    """An object without a key that `setting` names."""

    def __init__(self, message: str, setting: str):
        super().__init__(message)
        self.setting = setting


def read_jsonl(path: Path, stream: Stream, tally: Tally, columns: Columns) -> Iterator[pa.RecordBatch]:
    """Yield one document per line: what the keys of `columns` hold, and metadata; other keys are left out.

    Bad lines are reported. A file whose first object lacks one of the keys is an error even where bad lines are
    skipped: the key is wrong, not the line.
    """
    found = False
    for block in blocks(path, stream):
        batch = parse_jsonl(path, block, tally, columns, found)
        found = found or batch.num_rows > 0
        yield batch


def parse_jsonl(path: Path, block: Block, tally: Tally, columns: Columns, found: bool) -> pa.RecordBatch:
    """Return the documents of a block. `found`: an earlier line of the file had all keys."""
    rows: list[dict[str, Any]] = []
    numbers: list[int] = []
    for i, line in enumerate(decoded(path, block, tally, columns.encoding), block.number):
        if not line or line.isspace():
            continue
        try:
            rows.append(_row(line, columns))
            numbers.append(i)
        except BadLine as problem:
            if not found and not rows and isinstance(problem, NoKey):
                raise UserError(f"{path}: line {i}: {problem}; set {problem.setting}") from None
            tally.bad_document("malformed", path, f"line {i}", str(problem))
    found_there = {name: [row.get(name) for row in rows] for name in METADATA}
    texts = {name: [row[key] for row in rows] for name, key in columns.texts.items()}
    cells = {key: [row[key] for row in rows] for key in columns.values}
    return batch_of(found_there | texts | columns.labelled(path, cells, "line", numbers), tally)


def has_document(block: Block, columns: Columns) -> bool:
    """Return whether a line of a block is a document."""
    for raw in io.BytesIO(block.raw):
        try:
            if raw.strip() and _row(raw.decode(columns.encoding).removesuffix("\n"), columns):
                return True
        except (BadLine, UnicodeDecodeError):
            continue
    return False


def _row(line: str, columns: Columns) -> dict[str, Any]:
    """Return the object of a line. Raise BadLine if it is none, or if a key of `columns` is missing or has no text.

    Keys of labels and of context may hold numbers, too.
    """
    if line[0] == "[":
        raise BadLine("not a JSON object; a file that is one array has to be cut into lines, an object each")
    try:
        row, end = decode(line) if line[0] == "{" else (None, 0)
        if end != len(line):
            row = json.loads(line)  # there is white space around the value, or it is no object, or no JSON
    except (ValueError, RecursionError) as error:
        raise BadLine(f"not JSON: {error}") from None
    if not isinstance(row, dict):
        raise BadLine("not a JSON object")
    if missing := columns.missing(list(row)):
        key, setting = missing
        raise NoKey(f"no key {key!r}; there are {', '.join(map(repr, row)) or 'none'}", setting)
    for key in columns.texts.values():
        if row[key] is not None and not isinstance(row[key], str):
            raise BadLine(f"{key!r} is no text: {row[key]!r:.60}")
    for key in columns.values:
        if isinstance(row[key], bool | list | dict):
            raise BadLine(f"{key!r} is neither text nor a number: {row[key]!r:.60}")
    return row
