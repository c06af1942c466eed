"""Parquet files: the columns of text, of labels and of metadata. UTF-8 is checked here: Parquet readers do not."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from babelmill.core.files import UserError
from babelmill.corpus.columns import Columns
from babelmill.corpus.readers.text import undecodable
from babelmill.corpus.record_batches import BLOCK, CONTEXT, LABELS, METADATA, ORIGIN, ROWS, as_text, lists_of
from babelmill.corpus.tally import Tally
from babelmill.text_files.opening import Stream


def read_parquet(
    path: Path,
    stream: Stream | pa.NativeFile,
    compression: str | None,
    tally: Tally,
    columns: Columns,
    scratch: Path | None,
) -> Iterator[pa.RecordBatch]:
    """Yield the file's rows as documents; report those whose text is not UTF-8."""
    with contextlib.ExitStack() as stack:
        if compression:  # Parquet is read from its end, so it needs a copy to seek in
            source = stack.enter_context(tempfile.TemporaryFile(dir=scratch))
            while chunk := stream.read(BLOCK):
                source.write(chunk)
        else:
            source = stream
        file = stack.enter_context(open_parquet(path, source, columns))
        number = 1
        for group in range(file.num_row_groups):
            yield from read_row_group(path, file, group, number, tally, columns)
            number += file.metadata.row_group(group).num_rows


def open_parquet(path: Path, source: IO[bytes] | pa.NativeFile, columns: Columns) -> pq.ParquetFile:
    """Open a file. Raise a UserError if one of `columns` is missing, or holds neither text nor labels."""
    file = pq.ParquetFile(source, pre_buffer=False, buffer_size=BLOCK, page_checksum_verification=True)
    for key, column in columns.named():
        _check_column(path, file.schema_arrow, key, column, column in columns.values)
    return file


def read_row_group(
    path: Path, file: pq.ParquetFile, group: int, number: int, tally: Tally, columns: Columns
) -> Iterator[pa.RecordBatch]:
    """Yield the documents of a row group, whose first row is `number` in the file, counted from 1."""
    names = file.schema_arrow.names
    mine = list(dict.fromkeys(column for _, column in columns.named()))
    wanted = [*mine, *(n for n in METADATA if n in names and n not in mine)]
    size = _rows_in_a_batch(file, group, list(columns.texts.values()))
    for batch in file.iter_batches(size, [group], columns=wanted, use_threads=False):
        yield _documents(path, batch, number, tally, columns)
        number += batch.num_rows


def _check_column(path: Path, schema: pa.Schema, key: str, column: str, numbers: bool) -> None:
    """Raise a UserError unless the column exists and holds text (or `numbers`); `key`: the setting that names it."""
    if column not in schema.names:
        raise UserError(f"{path}: no column {column!r}; there are {', '.join(map(repr, schema.names))}; set {key}")
    kind = schema.field(column).type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    types = pa.types
    if numbers and (types.is_integer(kind) or types.is_floating(kind) or types.is_null(kind)):
        return
    if not _is_text_or_bytes(kind):
        wanted = "neither text nor whole or floating-point numbers" if numbers else "not text"
        raise UserError(f"{path}: column {column!r} is {kind}, {wanted}; set {key}")


def _is_text_or_bytes(kind: pa.DataType) -> bool:
    types = pa.types
    return any(
        is_kind(kind) for is_kind in (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
    )


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
        values = _plain(batch.column(column))
        if not _is_text_or_bytes(values.type):
            return values
        strings = _as_strings(values)
        return _decode_each_text(path, values, number, tally, bad) if strings is None else strings

    arrays: dict[str, pa.Array] = {name: texts(column) for name, column in columns.texts.items()}
    cells = {column: texts(column).to_pylist() for column in columns.values}
    numbers = range(number, number + batch.num_rows)
    if labelled := columns.labelled(path, cells, "row", numbers):
        arrays |= {name: pa.array(labelled[name], pa.string()) for name in (CONTEXT, ORIGIN)}
        arrays[LABELS] = lists_of(labelled[LABELS])
    for name in METADATA:
        there = name in batch.schema.names
        arrays[name] = _metadata(_plain(batch.column(name))) if there else pa.nulls(batch.num_rows, pa.string())
    schema = columns.of_documents
    documents = pa.RecordBatch.from_arrays([arrays[name] for name in schema.names], schema=schema)
    return documents.filter(pa.array([i not in bad for i in range(batch.num_rows)])) if bad else documents


def _plain(array: pa.Array) -> pa.Array:
    """Return a column without dictionary encoding."""
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def _as_strings(array: pa.Array) -> pa.StringArray | None:
    """Return a column as valid strings; None if a value is not UTF-8 or has no form as text."""
    try:
        strings = array.cast(pa.string())
        strings.validate(full=True)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    return strings


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
    strings = _as_strings(array)
    if strings is not None:
        return strings
    if _is_text_or_bytes(array.type):
        values = [b if b is None else b.decode("utf-8", "replace") for b in array.cast(pa.binary()).to_pylist()]
    else:
        values = array.to_pylist()
    return pa.array([as_text(value) for value in values], pa.string())
