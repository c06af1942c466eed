"""JSON lines: each line is an object, one key of which holds the text, and perhaps one its prompt."""

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from babelmill.core.files import UserError
from babelmill.corpus.readers.text import Block, blocks, decoded
from babelmill.corpus.record_batches import METADATA, batch_of
from babelmill.corpus.tally import Tally

decode = json.JSONDecoder().raw_decode  # the value at the beginning of a text, and where it ends


class BadLine(Exception):
    """A line that is no document; the message says why."""


class NoKey(BadLine):
    """An object without a key that was named; `name` is what it holds."""

    def __init__(self, message: str, name: str):
        super().__init__(message)
        self.name = name


def read_jsonl(path: Path, stream: pa.NativeFile, tally: Tally, keys: dict[str, str]) -> Iterator[pa.RecordBatch]:
    """Yield one document per line: what its `keys` hold, {"text": key}, and metadata; other keys are left out.

    Bad lines are reported. A file whose first object lacks one of the keys is an error even where bad lines are
    skipped: the key is wrong, not the line.
    """
    found = False
    for block in blocks(path, stream):
        batch = parse_jsonl(path, block, tally, keys, found)
        found = found or batch.num_rows > 0
        yield batch


def parse_jsonl(path: Path, block: Block, tally: Tally, keys: dict[str, str], found: bool) -> pa.RecordBatch:
    """Return the documents of a block. `found`: the file has had a line with all keys before."""
    rows = []
    for i, line in enumerate(decoded(path, block, tally), block.number):
        if not line or line.isspace():
            continue
        try:
            rows.append(_row(line, keys))
        except BadLine as problem:
            if not found and not rows and isinstance(problem, NoKey):
                raise UserError(f"{path}: line {i}: {problem}; set corpus.{problem.name}_column") from None
            tally.bad_document("malformed", path, f"line {i}", str(problem))
    columns = {name: [row.get(name) for row in rows] for name in METADATA}
    return batch_of(columns | {name: [row[key] for row in rows] for name, key in keys.items()}, tally)


def has_document(block: Block, keys: dict[str, str]) -> bool:
    """Return whether a line of a block has all `keys`."""
    for raw in io.BytesIO(block.raw):
        try:
            if raw.strip() and _row(raw.decode("utf-8").removesuffix("\n"), keys):
                return True
        except (BadLine, UnicodeDecodeError):
            continue
    return False


def _row(line: str, keys: dict[str, str]) -> dict[str, Any]:
    """Return the object of a line, whose `keys` hold text or null. BadLine: there is none."""
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
    for name, key in keys.items():
        if key not in row:
            raise NoKey(f"no key {key!r}; there are {', '.join(map(repr, row)) or 'none'}", name)
        text = row[key]
        if text is not None and not isinstance(text, str):
            raise BadLine(f"{key!r} is no text: {text!r:.60}")
    return row
