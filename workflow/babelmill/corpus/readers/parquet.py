"""Parquet files: the columns of text, of labels and of metadata. UTF-8 is checked here: Parquet readers do not."""

from collections.abc import Iterator
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from babelmill.corpus.readers.lines import undecodable
from babelmill.corpus.reading import SourceFile
from babelmill.corpus.record_batches import BLOCK, CONTEXT, LABELS, METADATA, ORIGIN, ROWS, as_text, lists_of
from babelmill.tables.parquet_file import as_strings, check, holds_text, opened, plain, seekable
from babelmill.text_files.opening import Stream


def read_parquet(file: SourceFile, stream: Stream | pa.NativeFile) -> Iterator[pa.RecordBatch]:
    """Yield the file's rows as documents; report those whose text is not UTF-8."""
    with seekable(stream, file.reading.scratch) as source, open_parquet(file, source) as parquet:
        number = 1
        for group in range(parquet.num_row_groups):
            yield from read_row_group(file, parquet, group, number)
            number += parquet.metadata.row_group(group).num_rows


def open_parquet(file: SourceFile, source: IO[bytes] | pa.NativeFile) -> pq.ParquetFile:
    """Open a file. Raise a UserError if one of its columns is missing, or holds neither text nor labels."""
    parquet = opened(file.path, source, file.asked)
    check(file.path, parquet.schema_arrow.names, file.read_from(parquet.schema_arrow.names))
    return parquet


def read_row_group(file: SourceFile, parquet: pq.ParquetFile, group: int, number: int) -> Iterator[pa.RecordBatch]:
    """Yield the documents of a row group, whose first row is `number` in the file, counted from 1.

    A batch has about 1 MB, so its number of rows depends on the row group: documents can be words or books.
    """
    wanted = list(dict.fromkeys(asked.column for asked in file.read_from(parquet.schema_arrow.names)))
    metadata = parquet.metadata.row_group(group)
    chunks = [metadata.column(i) for i in range(metadata.num_columns)]
    sizes = [chunk.total_uncompressed_size for chunk in chunks if chunk.path_in_schema in file.texts.values()]
    rows = max(1, min(ROWS, int(BLOCK / max(1, sum(sizes) / max(1, metadata.num_rows))))) if sizes else 1
    for batch in parquet.iter_batches(rows, [group], columns=wanted, use_threads=False):
        yield _documents(file, batch, number)
        number += batch.num_rows


def _documents(file: SourceFile, batch: pa.RecordBatch, number: int) -> pa.RecordBatch:
    """Convert a batch of the file, whose first row is `number`, to a batch of documents without bad rows."""
    bad: set[int] = set()

    def texts(column: str) -> pa.Array:
        values = plain(batch.column(column))
        if not holds_text(values.type):
            return values
        strings = as_strings(values)
        return _decode_each_text(file, values, number, bad) if strings is None else strings

    arrays: dict[str, pa.Array] = {name: texts(column) for name, column in file.texts.items()}
    cells = {column: texts(column).to_pylist() for column in file.values}
    numbers = range(number, number + batch.num_rows)
    if labelled := file.labelled(cells, "row", numbers):
        arrays |= {name: pa.array(labelled[name], pa.string()) for name in (CONTEXT, ORIGIN)}
        arrays[LABELS] = lists_of(labelled[LABELS])
    for name in METADATA:
        there = name in batch.schema.names
        arrays[name] = _metadata(plain(batch.column(name))) if there else pa.nulls(batch.num_rows, pa.string())
    schema = file.reading.of_documents
    documents = pa.RecordBatch.from_arrays([arrays[name] for name in schema.names], schema=schema)
    return documents.filter(pa.array([i not in bad for i in range(batch.num_rows)])) if bad else documents


def _decode_each_text(file: SourceFile, array: pa.Array, number: int, bad: set[int]) -> pa.StringArray:
    """Decode a column of text or bytes. A row that is not UTF-8 is reported once, and its place is added to `bad`."""
    texts: list[str | None] = []
    for i, value in enumerate(array.cast(pa.binary()).to_pylist()):
        try:
            texts.append(None if value is None else value.decode("utf-8"))
        except UnicodeDecodeError as error:
            where = f"row {number + i} (its byte {error.start})"
            if i not in bad:
                file.bad_document("undecodable", where, undecodable(error))
            texts.append(None)
            bad.add(i)
    return pa.array(texts, pa.string())


def _metadata(array: pa.Array) -> pa.StringArray:
    """Return a column of metadata as strings, whatever it holds; U+FFFD stands for what is not UTF-8."""
    strings = as_strings(array)
    if strings is not None:
        return strings
    if holds_text(array.type):
        values = [b if b is None else b.decode("utf-8", "replace") for b in array.cast(pa.binary()).to_pylist()]
    else:
        values = array.to_pylist()
    return pa.array([as_text(value) for value in values], pa.string())
