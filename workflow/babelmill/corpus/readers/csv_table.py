"""Documents of .csv and .tsv files with a heading; `tables.delimited` reads their records.

Bytes that are not in the file's encoding travel through the parser as lone surrogates (PEP 383), so that the record
they belong to is known, however many lines it has.
"""

import io
import itertools
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from babelmill.core import escape
from babelmill.core.files import UserError
from babelmill.core.formats import split_name
from babelmill.corpus.columns import Columns
from babelmill.corpus.readers.lines import OTHER_ENCODING, Block, blocks, refuse_garbled
from babelmill.corpus.record_batches import BLOCK, METADATA, ROWS, SURROGATE, batch_of
from babelmill.corpus.tally import Tally
from babelmill.tables.columns import NoColumn
from babelmill.tables.delimited import Records, encloses
from babelmill.text_files.opening import Stream, Unreadable


def read_csv(path: Path, stream: Stream, tally: Tally, columns: Columns) -> Iterator[pa.RecordBatch]:
    """Yield one document per record: what its `columns` hold, and metadata. Report bad records."""
    records = _opened(path, stream, columns)
    header = records.heading
    if not header:
        return
    places = [header.index(name) for name in (*columns.texts.values(), *columns.values)]
    rows: list[tuple[int, list[str]]] = []
    size, enclosed, cut = 0, 0, None
    try:
        for number, row, problem in records:
            if problem:
                tally.bad_document("malformed", path, f"line {number}", problem)
            elif bad := next((byte for byte in (_bad_byte(row[place]) for place in places) if byte), None):
                problem = f"not {columns.encoding.replace('utf', 'UTF')}: byte 0x{bad:02x}"
                tally.bad_document("undecodable", path, f"line {number}", problem + OTHER_ENCODING)
            else:
                rows.append((number, row))
                size += sum(len(row[place]) for place in places)
                enclosed += not records.quoted and any(encloses(row[place]) for place in places)
            if size > BLOCK or len(rows) == ROWS:
                yield _batch(path, rows, header, columns)
                rows, size = [], 0
    except Unreadable as error:  # the file ends early: what came before is read
        cut = error
    if enclosed:
        tally.warn((Path(), "quoting"), records.about_enclosed(enclosed))
    if rows:
        yield _batch(path, rows, header, columns)
    if cut:
        raise cut


def _opened(path: Path, stream: Stream, columns: Columns) -> Records:
    """Return the records of a file. Raise a UserError if it is not CSV, or lacks one of `columns`."""
    suffix, problem = split_name(path, columns.format)[0], ""
    delimiter = None if suffix == ".tsv" else columns.delimiter
    try:
        records = Records(path, suffix, _lines(path, stream, columns.encoding), delimiter, columns.quoting, "corpus")
        if records.heading:
            if bad := _bad_byte("".join(records.heading)):
                problem = f", or corpus.encoding: the heading is not {columns.encoding} (byte 0x{bad:02x})"
            records.check(columns.read_from(records.heading))
    except NoColumn as error:
        raise UserError(f"{escape.line(path)}: {error}{problem}") from None
    return records


def _lines(path: Path, stream: Stream, encoding: str) -> Iterator[str]:
    """Yield the file's lines, newlines included, as the parser wants them."""

    def lines(block: Block) -> Iterator[str]:
        refuse_garbled(path, block, encoding)
        return io.StringIO(block.raw.decode(encoding, "surrogateescape"), newline="\n")

    return itertools.chain.from_iterable(map(lines, blocks(path, stream)))


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
