"""Parquet files: the columns of text and of metadata. UTF-8 is checked: Parquet readers do not."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from babelmill.core.files import UserError
from babelmill.corpus.readers.text import undecodable
from babelmill.corpus.record_batches import BLOCK, METADATA, PROMPT, ROWS, SCHEMA, WITH_PROMPTS, as_text
from babelmill.corpus.tally import Tally


def read_parquet(
    path: Path,
    stream: pa.NativeFile,
    compression: str | None,
    tally: Tally,
    columns: dict[str, str],
    scratch: Path | None,
) -> Iterator[pa.RecordBatch]:
    """Yield the file's rows as documents; report those whose text is not UTF-8. `columns`: {"text": name}."""
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


def open_parquet(path: Path, source: IO[bytes] | pa.NativeFile, columns: dict[str, str]) -> pq.ParquetFile:
    """Open a file whose `columns`, {"text": name}, hold text. UserError: one is not there, or holds something else."""
    file = pq.ParquetFile(source, pre_buffer=False, buffer_size=BLOCK, page_checksum_verification=True)
    for name, column in columns.items():
        _check_text_column(path, file.schema_arrow, name, column)
    return file


def read_row_group(
    path: Path, file: pq.ParquetFile, group: int, number: int, tally: Tally, columns: dict[str, str]
) -> Iterator[pa.RecordBatch]:
    """Yield the documents of a row group, whose first row is `number` in the file, counted from 1."""
    names = file.schema_arrow.names
    wanted = [*columns.values(), *(n for n in METADATA if n in names and n not in columns.values())]
    size = _rows_in_a_batch(file, group, list(columns.values()))
    for batch in file.iter_batches(size, [group], columns=wanted, use_threads=False):
        yield _documents(path, batch, number, tally, columns)
        number += batch.num_rows


def _check_text_column(path: Path, schema: pa.Schema, name: str, column: str) -> None:
    """Raise a UserError unless the file has a column that holds text; `name`: what it is to us."""
    if column not in schema.names:
        raise UserError(
            f"{path}: no column {column!r}; there are {', '.join(map(repr, schema.names))}; set corpus.{name}_column"
        )
    kind = schema.field(column).type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if not _is_text_or_bytes(kind):
        raise UserError(f"{path}: column {column!r} is {kind}, not text; set corpus.{name}_column")


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


def _documents(path: Path, batch: pa.RecordBatch, number: int, tally: Tally, columns: dict[str, str]) -> pa.RecordBatch:
    """Return a batch of the file, whose first row is `number`, as a batch of ours, without its bad rows."""
    arrays: dict[str, pa.StringArray] = {}
    bad: set[int] = set()
    for name, column in columns.items():
        text = _plain(batch.column(column))
        strings = _as_strings(text)
        arrays[name] = _decode_each_text(path, text, number, tally, bad) if strings is None else strings
    for name in METADATA:
        there = name in batch.schema.names
        arrays[name] = _metadata(_plain(batch.column(name))) if there else pa.nulls(batch.num_rows, pa.string())
    schema = WITH_PROMPTS if PROMPT in columns else SCHEMA
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
    """Decode a column of text or bytes. What is not UTF-8 is reported, once per row, and joins the `bad` places."""
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
