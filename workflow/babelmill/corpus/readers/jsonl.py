"""JSON lines: each line is an object, one key of which holds the text; others may hold its prompt, or its labels."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from babelmill.core import escape
from babelmill.core.files import UserError
from babelmill.corpus.columns import Columns
from babelmill.corpus.readers.text import Block, blocks, decoded
from babelmill.corpus.record_batches import METADATA, batch_of
from babelmill.corpus.tally import Tally
from babelmill.tables.columns import BadRow, NoColumn, check_cell, check_names
from babelmill.tables.json_lines import object_of
from babelmill.text_files.opening import Stream


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
        except BadRow as problem:
            if not found and not rows and isinstance(problem, NoColumn):
                raise UserError(f"{escape.line(path)}: line {i}: {problem}") from None
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
        except (BadRow, UnicodeDecodeError):
            continue
    return False


def _row(line: str, columns: Columns) -> dict[str, Any]:
    """Return the object of a line. Raise BadRow if it is none, or if a key is missing or does not hold what it should.

    Keys of labels and of context may hold numbers, too.
    """
    row = object_of(line)
    for asked in columns.asked:
        if asked.column not in row:
            check_names(list(row), columns.asked, "key")
        check_cell(asked, row[asked.column])
    return row
