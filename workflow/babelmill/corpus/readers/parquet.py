"""Parquet files: the text column and the metadata columns. UTF-8 is checked: Parquet readers do not."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from babelmill.core.files import UserError
from babelmill.corpus.readers.text import undecodable
from babelmill.corpus.record_batches import BLOCK, METADATA, ROWS, SCHEMA, as_text
from babelmill.corpus.tally import Tally


def read_parquet(
    path: Path, stream: pa.NativeFile, compression: str | None, tally: Tally, column: str, scratch: Path | None
) -> Iterator[pa.RecordBatch]:
    """Yield the file's rows as documents; report those whose text is not UTF-8."""
    with contextlib.ExitStack() as stack:
        if compression:  # Parquet is read from its end, so it needs a copy to seek in
            source = stack.enter_context(tempfile.TemporaryFile(dir=scratch))
            while chunk := stream.read(BLOCK):
                source.write(chunk)
        else:
            source = stream
        file = stack.enter_context(
            pq.ParquetFile(source, pre_buffer=False, buffer_size=BLOCK, page_checksum_verification=True)
        )
        names = file.schema_arrow.names
        _check_text_column(path, file.schema_arrow, column)
        columns = [column, *(name for name in METADATA if name in names and name != column)]
        number = 1
        for group in range(file.num_row_groups):
            size = _rows_in_a_batch(file, group, column)
            for batch in file.iter_batches(size, [group], columns=columns, use_threads=False):
                yield _documents(path, batch, number, tally, column)
                number += batch.num_rows


def _check_text_column(path: Path, schema: pa.Schema, column: str) -> None:
    """Raise a UserError unless the file has a column of this name that holds text."""
    if column not in schema.names:
        raise UserError(
            f"{path}: no column {column!r}; there are {', '.join(map(repr, schema.names))}; set corpus.text_column"
        )
    kind = schema.field(column).type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if not _is_text_or_bytes(kind):
        raise UserError(f"{path}: column {column!r} is {kind}, not text; set corpus.text_column")


def _is_text_or_bytes(kind: pa.DataType) -> bool:
    types = pa.types
    return any(
        is_kind(kind) for is_kind in (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
    )


def _rows_in_a_batch(file: pq.ParquetFile, group: int, column: str) -> int:
    """Return how many rows of a row group make a batch of about 1 MB: documents can be words or books."""
    metadata = file.metadata.row_group(group)
    for i in range(metadata.num_columns):
        chunk = metadata.column(i)
        if chunk.path_in_schema == column:
            average = chunk.total_uncompressed_size / max(1, metadata.num_rows)
            return max(1, min(ROWS, int(BLOCK / max(1, average))))
    return 1


def _documents(path: Path, batch: pa.RecordBatch, number: int, tally: Tally, column: str) -> pa.RecordBatch:
    """Return a batch of the file, whose first row is `number`, as a batch of `SCHEMA`, without its bad rows."""
    text = _plain(batch.column(column))
    bad: set[int] = set()
    strings = _as_strings(text)
    if strings is None:
        strings, bad = _decode_each_text(path, text, number, tally)
    arrays = [strings]
    for name in METADATA:
        there = name in batch.schema.names
        arrays.append(_metadata(_plain(batch.column(name))) if there else pa.nulls(batch.num_rows, pa.string()))
    documents = pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
    return documents.filter(pa.array([i not in bad for i in range(len(text))])) if bad else documents


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


def _decode_each_text(path: Path, array: pa.Array, number: int, tally: Tally) -> tuple[pa.StringArray, set[int]]:
    """Decode a column of text or bytes; report what is not UTF-8. Returns the texts and the places of the bad ones."""
    texts: list[str | None] = []
    bad = set()
    for i, value in enumerate(array.cast(pa.binary()).to_pylist()):
        try:
            texts.append(None if value is None else value.decode("utf-8"))
        except UnicodeDecodeError as error:
            where = f"row {number + i} (its byte {error.start})"
            tally.bad_document("undecodable", path, where, undecodable(error))
            texts.append(None)
            bad.add(i)
    return pa.array(texts, pa.string()), bad


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
