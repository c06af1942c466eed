"""Read columns of Parquet files. Arrow says which of its types are text, so that its newer types are read, too."""

import contextlib
import functools
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from babelmill.core import escape
from babelmill.core.files import UserError
from babelmill.tables.columns import Asked, NoColumn, check_names
from babelmill.text_files.opening import Stream

BLOCK = 1 << 20  # bytes to read at once


@contextlib.contextmanager
def seekable(stream: Stream | pa.NativeFile, scratch: Path | None) -> Iterator[Any]:
    """Give a Parquet file as a source to seek in, since it is read from its end: a compressed one is unpacked.

    `scratch`: the folder of the unpacked copy. An Unreadable says that what is unpacked is no Parquet file, or too
    large.
    """
    if isinstance(stream, pa.NativeFile):
        yield stream
        return
    if scratch:
        scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=scratch) as copy:
        while chunk := stream.read(BLOCK):
            copy.write(chunk)
        yield copy


def opened(path: Path, source: Any, asked: Sequence[Asked]) -> pq.ParquetFile:
    """Open a Parquet file. Raise a UserError if a column is missing, is there twice, or holds other values."""
    file = pq.ParquetFile(source, pre_buffer=False, buffer_size=BLOCK, page_checksum_verification=True)
    schema = file.schema_arrow
    check(path, schema.names, asked)
    for column, setting, text, truth in asked:
        kind = schema.field(column).type
        if holds_text(kind) or (not text and holds_numbers(kind)) or (truth and pa.types.is_boolean(values_of(kind))):
            continue
        wanted = "not text" if text else "neither text nor whole or floating-point numbers"
        found = f"column {escape.line(repr(column), 100)} is {escape.line(kind, 100)}"
        raise UserError(f"{escape.line(path)}: {found}, {wanted}; set {setting}")
    return file


def check(path: Path, names: Sequence[str], asked: Sequence[Asked]) -> None:
    """Raise a UserError unless each column that is asked for occurs exactly once."""
    try:
        check_names(names, asked)
    except NoColumn as problem:
        raise UserError(f"{escape.line(path)}: {problem}") from None


@functools.cache
def holds_text(kind: pa.DataType) -> bool:
    """Return whether values of a type are text or bytes, or all missing: whether Arrow can give them as bytes."""
    try:
        pa.nulls(0, values_of(kind)).cast(pa.large_binary())
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        return False
    return True


def holds_numbers(kind: pa.DataType) -> bool:
    """Return whether values of a type are whole or floating-point numbers."""
    kind = values_of(kind)
    return pa.types.is_integer(kind) or pa.types.is_floating(kind)


def values_of(kind: pa.DataType) -> pa.DataType:
    """Return the type of the values that a dictionary or an extension stores."""
    if isinstance(kind, pa.BaseExtensionType):
        return values_of(kind.storage_type)
    return values_of(kind.value_type) if pa.types.is_dictionary(kind) else kind


def plain(array: pa.Array) -> pa.Array:
    """Return a column without dictionary and extension."""
    if isinstance(array, pa.ExtensionArray):
        return plain(array.storage)
    return plain(array.dictionary_decode()) if pa.types.is_dictionary(array.type) else array


def as_strings(array: pa.Array) -> pa.StringArray | None:
    """Return a column as valid strings; None if a value is not UTF-8 or has no form as text."""
    try:
        strings = array.cast(pa.string())
        strings.validate(full=True)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    return strings
