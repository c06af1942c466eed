"""Comma-separated values with a header line (RFC 4180). Every field is text as it stands.

Bytes that are not UTF-8 travel through the parser as lone surrogates (PEP 383), so that the record they belong to is
known, however many lines it has.
"""

import csv
import io
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from babelmill.core.files import UserError
from babelmill.corpus.readers.text import blocks
from babelmill.corpus.record_batches import BLOCK, MAX_DOCUMENT, METADATA, ROWS, SURROGATE, batch_of
from babelmill.corpus.tally import Tally

if TYPE_CHECKING:
    from _csv import Reader  # what `csv.reader` returns; `csv` has no name for it


def read_csv(path: Path, stream: pa.NativeFile, tally: Tally, columns: dict[str, str]) -> Iterator[pa.RecordBatch]:
    """Yield one document per record: what its `columns` hold, {"text": name}, and metadata. Report bad records."""
    csv.field_size_limit(MAX_DOCUMENT)
    reader = csv.reader(_lines(path, stream), strict=True)
    header = _header(path, reader, columns)
    if not header:
        return
    texts = {name: header.index(column) for name, column in columns.items()}
    places = {name: header.index(name) for name in METADATA if name in header} | texts
    rows, size = [], 0
    for row in _records(path, reader, len(header), list(texts.values()), tally):
        rows.append(row)
        size += sum(len(row[place]) for place in texts.values())
        if size > BLOCK or len(rows) == ROWS:
            yield _batch(rows, places)
            rows, size = [], 0
    if rows:
        yield _batch(rows, places)


def _lines(path: Path, stream: pa.NativeFile) -> Iterator[str]:
    """Yield the file's lines, newlines included, as the parser wants them."""
    decoded = (block.raw.decode("utf-8", "surrogateescape") for block in blocks(path, stream))
    return itertools.chain.from_iterable(io.StringIO(block, newline="\n") for block in decoded)


def _header(path: Path, reader: "Reader", columns: dict[str, str]) -> list[str]:
    """Return the names of the columns, none for an empty file. UserError: no CSV, or one of `columns` is missing."""
    try:
        header = next(reader, [])
    except csv.Error as error:
        raise UserError(f"{path}: line 1: not CSV: {error}") from None
    for name, column in columns.items() if header else ():
        if column not in header:
            raise UserError(
                f"{path}: no column {column!r}; there are {', '.join(map(repr, header))}; set corpus.{name}_column"
            )
    return header


def _records(path: Path, reader: "Reader", width: int, texts: list[int], tally: Tally) -> Iterator[list[str]]:
    """Yield the records of `width` fields whose `texts` are UTF-8; report the others by the line they begin in."""
    while True:
        start = reader.line_num + 1
        try:
            row = next(reader, None)
        except csv.Error as error:
            tally.bad_document("malformed", path, f"line {start}", f"not CSV: {error}")
            continue
        if row is None:
            return
        if not row:
            continue  # a blank line
        if len(row) != width:
            problem = f"{len(row)} fields, but the header has {width}"
            tally.bad_document("malformed", path, f"line {start}", problem)
        elif bad := next((byte for byte in (_bad_byte(row[place]) for place in texts) if byte), None):
            tally.bad_document("undecodable", path, f"line {start}", f"not UTF-8: byte 0x{bad:02x}")
        else:
            yield row


def _bad_byte(text: str) -> int | None:
    """Return the first byte of a text that was not UTF-8, None if all were; such a byte is never 0."""
    found = None if text.isascii() else SURROGATE.search(text)
    return found[0].encode("utf-8", "surrogateescape")[0] if found else None


def _batch(rows: list[list[str]], places: dict[str, int]) -> pa.RecordBatch:
    """Return records as a batch; `places`: where each column of it stands in a record."""
    return batch_of({name: [row[place] for row in rows] for name, place in places.items()})
