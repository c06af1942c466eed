"""Documents of .csv and .tsv files with a heading; `tables.delimited` reads their records.

Bytes that are not in the file's encoding travel through the parser as lone surrogates (PEP 383), so that the record
they belong to is known, however many lines it has.
"""

import io
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from babelmill.core import escape
from babelmill.core.files import UserError
from babelmill.corpus.readers.lines import OTHER_ENCODING, blocks, refuse_garbled
from babelmill.corpus.reading import SourceFile
from babelmill.corpus.record_batches import BLOCK, ROWS, SURROGATE
from babelmill.tables.columns import NoColumn
from babelmill.tables.delimited import Records, encloses
from babelmill.text_files.opening import Stream, Unreadable


def read_csv(file: SourceFile, stream: Stream) -> Iterator[pa.RecordBatch]:
    """Yield one document per record: what its columns hold, and metadata. Report bad records."""
    records = _opened(file, stream)
    header = records.heading
    if not header:
        return
    places = [header.index(name) for name in (*file.texts.values(), *file.values)]
    rows: list[tuple[int, list[str]]] = []
    size, enclosed, cut = 0, 0, None

    def batch() -> pa.RecordBatch:
        read = {asked.column: header.index(asked.column) for asked in file.read_from(header)}
        cells = {name: [row[place] for _, row in rows] for name, place in read.items()}
        return file.documents(cells, [number for number, _ in rows])

    try:
        for number, row, problem in records:
            if problem:
                file.bad_document("malformed", f"line {number}", problem)
            elif bad := next((byte for byte in (_bad_byte(row[place]) for place in places) if byte), None):
                problem = f"not {file.corpus.encoding.replace('utf', 'UTF')}: byte 0x{bad:02x}"
                file.bad_document("undecodable", f"line {number}", problem + OTHER_ENCODING)
            else:
                rows.append((number, row))
                size += sum(len(row[place]) for place in places)
                enclosed += not records.quoted and any(encloses(row[place]) for place in places)
            if size > BLOCK or len(rows) == ROWS:
                yield batch()
                rows, size = [], 0
    except Unreadable as error:  # the file ends early: what came before is read
        cut = error
    if enclosed:
        file.tally.warn((Path(), "quoting"), records.about_enclosed(enclosed))
    if rows:
        yield batch()
    if cut:
        raise cut


def _opened(file: SourceFile, stream: Stream) -> Records:
    """Return the records of a file. Raise a UserError if it is not CSV, or lacks one of the columns."""
    corpus, problem = file.corpus, ""
    delimiter = None if file.suffix == ".tsv" else corpus.delimiter
    try:
        records = Records(file.path, file.suffix, _lines(file, stream), delimiter, corpus.quoting, "corpus")
        if records.heading:
            if bad := _bad_byte("".join(records.heading)):
                problem = f", or corpus.encoding: the heading is not {corpus.encoding} (byte 0x{bad:02x})"
            records.check(file.read_from(records.heading))
    except NoColumn as error:
        raise UserError(f"{escape.line(file.path)}: {error}{problem}") from None
    return records


def _lines(file: SourceFile, stream: Stream) -> Iterator[str]:
    """Yield the file's lines, newlines included, as the parser wants them."""
    for block in blocks(file.path, stream):
        refuse_garbled(file, block)
        yield from io.StringIO(block.raw.decode(file.corpus.encoding, "surrogateescape"), newline="\n")


def _bad_byte(text: str) -> int | None:
    """Return the first byte of a text that could not be decoded, None if all could; such a byte is never 0."""
    found = None if text.isascii() else SURROGATE.search(text)
    return found[0].encode("utf-8", "surrogateescape")[0] if found else None
