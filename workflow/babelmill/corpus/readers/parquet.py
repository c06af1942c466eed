"""Parquet files: the columns of text, of labels and of metadata. UTF-8 is checked here: Parquet readers do not."""

from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from babelmill.corpus.columns import Columns
from babelmill.corpus.readers.lines import undecodable
from babelmill.corpus.record_batches import BLOCK, CONTEXT, LABELS, METADATA, ORIGIN, ROWS, as_text, lists_of
from babelmill.corpus.tally import Tally
from babelmill.tables.parquet_file import as_strings, check, holds_text, opened, plain, seekable
from babelmill.text_files.opening import Stream


def read_parquet(
    path: Path,
    stream: Stream | pa.NativeFile,
    tally: Tally,
    columns: Columns,
    scratch: Path | None,
) -> Iterator[pa.RecordBatch]:
    """Yield the file's rows as documents; report those whose text is not UTF-8."""
    with seekable(stream, scratch) as source, open_parquet(path, source, columns) as file:
        number = 1
        for group in range(file.num_row_groups):
            yield from read_row_group(path, file, group, number, tally, columns)
            number += file.metadata.row_group(group).num_rows


def open_parquet(path: Path, source: IO[bytes] | pa.NativeFile, columns: Columns) -> pq.ParquetFile:
    """Open a file. Raise a UserError if one of `columns` is missing, or holds neither text nor labels."""
    file = opened(path, source, columns.asked)
    check(path, file.schema_arrow.names, columns.read_from(file.schema_arrow.names))
    return file


def read_row_group(
    path: Path, file: pq.ParquetFile, group: int, number: int, tally: Tally, columns: Columns
) -> Iterator[pa.RecordBatch]:
    """Yield the documents of a row group, whose first row is `number` in the file, counted from 1."""
    names = file.schema_arrow.names
    wanted = list(dict.fromkeys(asked.column for asked in columns.read_from(names)))
    size = _rows_in_a_batch(file, group, list(columns.texts.values()))
    for batch in file.iter_batches(size, [group], columns=wanted, use_threads=False):
        yield _documents(path, batch, number, tally, columns)
        number += batch.num_rows


def _rows_in_a_batch(file: pq.ParquetFile, group: int, columns: list[str]) -> int:
    """Return how many rows of a row group make a batch of about 1 MB: documents can be words or books."""
    metadata = file.metadata.row_group(group)
    chunks = [metadata.column(i) for i in range(metadata.num_columns)]
    sizes = [chunk.total_uncompressed_size for chunk in chunks if chunk.path_in_schema in columns]
    return max(1, min(ROWS, int(BLOCK / max(1, sum(sizes) / max(1, metadata.num_rows))))) if sizes else 1


def _documents(path: Path, batch: pa.RecordBatch, number: int, tally: Tally, columns: Columns) -> pa.RecordBatch:
    """Convert a batch of the file, whose first row is `number`, to a batch of documents without bad rows."""
    bad: set[int] = set()

    def texts(column: str) -> pa.Array:
        values = plain(batch.column(column))
        if not holds_text(values.type):
            return values
        strings = as_strings(values)
        return _decode_each_text(path, values, number, tally, bad) if strings is None else strings

    arrays: dict[str, pa.Array] = {name: texts(column) for name, column in columns.texts.items()}
    cells = {column: texts(column).to_pylist() for column in columns.values}
    numbers = range(number, number + batch.num_rows)
    if labelled := columns.labelled(path, cells, "row", numbers):
        arrays |= {name: pa.array(labelled[name], pa.string()) for name in (CONTEXT, ORIGIN)}
        arrays[LABELS] = lists_of(labelled[LABELS])
    for name in METADATA:
        there = name in batch.schema.names
        arrays[name] = _metadata(plain(batch.column(name))) if there else pa.nulls(batch.num_rows, pa.string())
    schema = columns.of_documents
    documents = pa.RecordBatch.from_arrays([arrays[name] for name in schema.names], schema=schema)
    return documents.filter(pa.array([i not in bad for i in range(batch.num_rows)])) if bad else documents


def _decode_each_text(path: Path, array: pa.Array, number: int, tally: Tally, bad: set[int]) -> pa.StringArray:
    """Decode a column of text or bytes. A row that is not UTF-8 is reported once, and its place is added to `bad`."""
    texts: list[str | None] = []
    for i, value in enumerate(array.cast(pa.binary()).to_pylist()):
        try:
            texts.append(None if value is None else value.decode("utf-8"))
        except UnicodeDecodeError as error:
            where = f"row {number + i} (its byte {error.start})"
            if i not in bad:
                tally.bad_document("undecodable", path, where, undecodable(error))
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
