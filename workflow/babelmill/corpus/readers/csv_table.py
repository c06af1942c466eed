"""Comma-separated values with a header line (RFC 4180), or with another delimiter. Fields are text.

Bytes that are not in the file's encoding travel through the parser as lone surrogates (PEP 383), so that the record
they belong to is known, however many lines it has.
"""

import csv
import io
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from babelmill.core.files import UserError
from babelmill.core.formats import split_name
from babelmill.corpus.columns import Columns
from babelmill.corpus.readers.text import OTHER_ENCODING, Block, blocks, refuse_garbled
from babelmill.corpus.record_batches import BLOCK, MAX_DOCUMENT, METADATA, ROWS, SURROGATE, batch_of
from babelmill.corpus.tally import Tally
from babelmill.text_files.opening import Stream, Unreadable

if TYPE_CHECKING:
    from _csv import Reader  # what `csv.reader` returns; `csv` has no name for it


def read_csv(path: Path, stream: Stream, tally: Tally, columns: Columns) -> Iterator[pa.RecordBatch]:
    """Yield one document per record: what its `columns` hold, and metadata. Report bad records."""
    csv.field_size_limit(MAX_DOCUMENT)
    delimiter = "\t" if split_name(path, columns.format)[0] == ".tsv" else columns.delimiter
    reader = csv.reader(_lines(path, stream, columns.encoding), strict=True, delimiter=delimiter)
    header = _header(path, reader, columns)
    if not header:
        return
    places = [header.index(name) for name in (*columns.texts.values(), *columns.values)]
    rows, size, cut = [], 0, None
    records = _records(path, reader, len(header), places, tally, columns.encoding)
    while True:
        try:
            number, row = next(records)
        except StopIteration:
            break
        except Unreadable as problem:  # the file ends early: what came before is read
            cut = problem
            break
        rows.append((number, row))
        size += sum(len(row[place]) for place in places)
        if size > BLOCK or len(rows) == ROWS:
            yield _batch(path, rows, header, columns)
            rows, size = [], 0
    if rows:
        yield _batch(path, rows, header, columns)
    if cut:
        raise cut


def _lines(path: Path, stream: Stream, encoding: str) -> Iterator[str]:
    """Yield the file's lines, newlines included, as the parser wants them."""

    def lines(block: Block) -> Iterator[str]:
        refuse_garbled(path, block, encoding)
        return io.StringIO(block.raw.decode(encoding, "surrogateescape"), newline="\n")

    return itertools.chain.from_iterable(map(lines, blocks(path, stream)))


def _header(path: Path, reader: "Reader", columns: Columns) -> list[str]:
    """Return the column names, [] for an empty file. Raise a UserError if it is not CSV or lacks one of `columns`."""
    try:
        header = next(reader, [])
    except csv.Error as error:
        raise UserError(f"{path}: line 1: not CSV: {error}") from None
    if header and (missing := columns.missing(header)):
        column, setting = missing
        problem = f"no column {column!r}; there are {', '.join(map(repr, header))}; set {setting}"
        if bad := _bad_byte("".join(header)):
            problem = f"{problem}, or corpus.encoding: the header is not {columns.encoding} (byte 0x{bad:02x})"
        raise UserError(f"{path}: {_other_delimiter(path, header, columns) or problem}")
    return header


def _other_delimiter(path: Path, header: list[str], columns: Columns) -> str | None:
    """Return advice if the header is one column because another character separates its names; else None."""
    found = next((mark for mark in "\t;,|" if mark in header[0]), None) if len(header) == 1 else None
    if found is None:
        return None
    advice = "set corpus.delimiter: " + ('"\\t"' if found == "\t" else repr(found))
    if split_name(path, columns.format)[0] == ".tsv":
        more = "" if found == columns.delimiter else f", and {advice}"
        advice = f"of a .tsv, tabs stand between the columns; name it .csv{more}"
    return f"the header is one column, {header[0]!r}: {advice}"


def _records(
    path: Path, reader: "Reader", width: int, places: list[int], tally: Tally, encoding: str
) -> Iterator[tuple[int, list[str]]]:
    """Yield the records of `width` fields, each with the line in which it begins.

    Records of another width, or with undecodable bytes at `places`, are reported.
    """
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
        elif bad := next((byte for byte in (_bad_byte(row[place]) for place in places) if byte), None):
            problem = f"not {encoding.replace('utf', 'UTF')}: byte 0x{bad:02x}"
            tally.bad_document("undecodable", path, f"line {start}", problem + OTHER_ENCODING)
        else:
            yield start, row


def _bad_byte(text: str) -> int | None:
    """Return the first byte of a text that could not be decoded, None if all could; such a byte is never 0."""
    found = None if text.isascii() else SURROGATE.search(text)
    return found[0].encode("utf-8", "surrogateescape")[0] if found else None


def _batch(path: Path, rows: list[tuple[int, list[str]]], header: list[str], columns: Columns) -> pa.RecordBatch:
    """Return records, each with its line, as a batch."""

    def cells(name: str) -> list[str]:
        place = header.index(name)
        return [row[place] for _, row in rows]

    found = {name: cells(name) for name in METADATA if name in header}
    texts = {name: cells(column) for name, column in columns.texts.items()}
    values = {name: cells(name) for name in columns.values}
    return batch_of(found | texts | columns.labelled(path, values, "line", [number for number, _ in rows]))
