"""Read the tables to predict as streams of rows: .csv, .tsv, .parquet or .jsonl, plain or compressed.

The stage `corpus` reads only the text of a table. Here all columns stay in their order, and the values of a .csv file
do not change. The whole table is read once before the first prediction, so that a broken last line is an error at once
and not after hours.
"""

import contextlib
import csv
import datetime
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from babelmill.core.files import UserError
from babelmill.core.formats import DELIMITERS, MAX_FIELD, split_name

FORMATS = (*DELIMITERS, ".parquet", ".jsonl", ".json")
BLOCK = 1 << 20  # bytes to read at once
ROWS = 1024  # how many rows of a Parquet file are in memory at once


class Table:
    """Yields the rows of a file, as often as needed. Each row is a list of strings; missing values are "".

    Args:
        path: the path of the file. Its name tells format and compression.
        delimiter: the delimiter of .csv and .tsv. None stands for a comma in .csv and a tab in .tsv.
        encoding: the encoding of .csv and .tsv: utf-8, latin-1 or cp1252.

    Attributes:
        columns: the names of the columns. For .jsonl, all keys in the order in which they first appear.
        rows: the number of rows.

    Raises:
        UserError: the file is missing, not a table, damaged, or in another encoding.
    """

    def __init__(self, path: Path, delimiter: str | None = None, encoding: str = "utf-8"):
        self._path = path
        self._format, self._compression = split_name(path)
        if self._format not in FORMATS:
            allowed = ", ".join(FORMATS)
            raise UserError(
                f"{path}: this file format cannot be read; allowed are {allowed}, each also with .gz or .zst"
            )
        self._delimiter, self._encoding = delimiter or DELIMITERS.get(self._format, ","), encoding
        self.columns: list[str] = []
        with self._errors():
            self.rows = self._scan()

    def __iter__(self) -> Iterator[list[str]]:
        """Yield the rows, in order."""
        with self._errors():
            if self._format == ".parquet":
                yield from self._parquet()
            elif self._format in DELIMITERS:
                records = self._records()
                next(records)
                yield from records
            else:
                for value in self._objects():
                    yield [as_text(value.get(name)) for name in self.columns]

    def place(self, column: str, meant: str) -> int:
        """Return the index of a column. In an error, `meant` says what the column is for.

        Raises:
            UserError: there is no such column, or more than one.
        """
        if self.columns.count(column) == 1:
            return self.columns.index(column)
        if column in self.columns:
            raise UserError(f"{self._path}: {self.columns.count(column)} columns are named {column!r} ({meant})")
        hint = "; check the delimiter" if len(self.columns) == 1 and self._format in DELIMITERS else ""
        there = ", ".join(map(repr, self.columns))
        raise UserError(f"{self._path}: no column {column!r} ({meant}); there are {there}{hint}")

    def _scan(self) -> int:
        """Set `columns`, and return the number of rows."""
        if self._format == ".parquet":
            with self._open_parquet() as file:
                self.columns = file.schema_arrow.names
            return sum(1 for _ in self._parquet())
        if self._format in DELIMITERS:
            records = self._records()
            self.columns = next(records, [])
            if not self.columns:
                raise UserError(f"{self._path} is empty; its first line must have the names of the columns")
            return sum(1 for _ in records)
        names: dict[str, None] = {}
        count = 0
        for value in self._objects():
            names |= dict.fromkeys(value)
            count += 1
        if not names:
            raise UserError(f"{self._path} is empty; each line must be a JSON object")
        self.columns = list(names)
        return count

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise UserError(f"{self._path}: no such file") from None
        except (PermissionError, IsADirectoryError) as error:
            raise UserError(f"{self._path}: cannot be read: {error.strerror}") from None
        except (pa.ArrowInvalid, OSError) as error:  # Arrow reports damage as OSError without an errno
            if getattr(error, "errno", None):
                raise
            raise UserError(f"{self._path}: damaged: {str(error).splitlines()[0]}") from None
        except UnicodeDecodeError:  # Arrow does not check that text is UTF-8
            raise UserError(f"{self._path}: a column of text contains bytes that are not UTF-8") from None

    def _lines(self) -> Iterator[str]:
        """Yield the lines of a text file, with their newlines."""
        rest, number = b"", 0
        with pa.OSFile(str(self._path)) as file:
            stream = pa.CompressedInputStream(file, self._compression) if self._compression else file
            while block := stream.read(BLOCK):
                *lines, rest = (rest + block).split(b"\n")
                for number, line in enumerate(lines, number + 1):  # noqa: B020  continues the count
                    yield self._decoded(line, number) + "\n"
        if rest:
            yield self._decoded(rest, number + 1)

    def _decoded(self, line: bytes, number: int) -> str:
        encoding = "utf-8" if self._format not in DELIMITERS else self._encoding
        try:
            text = line.decode(encoding)
        except UnicodeDecodeError as error:
            raise UserError(
                f"{self._path}: line {number} is not {encoding} (byte 0x{line[error.start]:02x}); set the file's"
                " encoding, such as latin-1 (predict.encoding, --encoding)"
            ) from None
        if encoding != "utf-8" and not line.isascii() and is_utf8(line):
            raise UserError(f"{self._path}: line {number} is UTF-8, not {encoding}; remove the setting of the encoding")
        return text.removeprefix("\ufeff") if number == 1 else text

    def _records(self) -> Iterator[list[str]]:
        """Yield the heading and the rows of a .csv or .tsv file.

        Blank lines are skipped. But in a table with a single column, a blank line is a row with an empty value.
        """
        csv.field_size_limit(MAX_FIELD)
        reader, width = csv.reader(self._lines(), delimiter=self._delimiter, strict=True), 0
        while True:
            begin = reader.line_num + 1
            try:
                row = next(reader, None)
            except csv.Error as error:
                raise UserError(f"{self._path}: line {begin}: not CSV: {error}") from None
            if row is None:
                return
            if not row and width == 1:
                row = [""]
            if not row:
                continue
            width = width or len(row)
            if len(row) != width:
                raise UserError(f"{self._path}: line {begin} has {len(row)} fields, but the heading has {width}")
            yield row

    def _objects(self) -> Iterator[dict[str, Any]]:
        """Yield the objects of a .jsonl file. Blank lines are skipped."""
        for number, line in enumerate(self._lines(), 1):
            if not line.strip():
                continue
            try:
                value = json.loads(line)
                if "\\u" in line:
                    json.dumps(value, ensure_ascii=False).encode()
            except UnicodeEncodeError:
                raise UserError(
                    f"{self._path}: line {number} contains half of a surrogate pair, which is not text"
                ) from None
            except ValueError as error:
                raise UserError(f"{self._path}: line {number}: not JSON: {error}") from None
            if not isinstance(value, dict):
                raise UserError(f"{self._path}: line {number} is not a JSON object")
            yield value

    @contextlib.contextmanager
    def _open_parquet(self) -> Iterator[pq.ParquetFile]:
        with contextlib.ExitStack() as stack:
            source: Any = stack.enter_context(pa.OSFile(str(self._path)))
            if self._compression:  # Parquet is read from its end, which needs an unpacked copy
                packed, source = source, stack.enter_context(tempfile.TemporaryFile())
                stream = pa.CompressedInputStream(packed, self._compression)
                while block := stream.read(BLOCK):
                    source.write(block)
            yield pq.ParquetFile(source, pre_buffer=False, buffer_size=BLOCK, page_checksum_verification=True)

    def _parquet(self) -> Iterator[list[str]]:
        with self._open_parquet() as file:
            for batch in file.iter_batches(ROWS, use_threads=False):
                columns = [texts_of(column) for column in batch.columns]
                yield from map(list, zip(*columns, strict=True))


def is_utf8(line: bytes) -> bool:
    """Return whether bytes can be read as UTF-8."""
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def texts_of(column: pa.Array) -> list[str]:
    """Return the values of a column of a Parquet file as text."""
    try:
        missing = (None, "nan") if pa.types.is_floating(column.type) else (None,)
        return ["" if value in missing else value for value in column.cast(pa.string()).to_pylist()]
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):  # lists and the like; bytes that are not text
        return [as_text(value) for value in column.to_pylist()]


def as_text(value: Any) -> str:
    """Return a value of JSON or Parquet as text."""
    match value:
        case None:
            return ""
        case float() if value != value:
            return ""
        case str():
            return value
        case bytes():
            return value.decode("utf-8", "replace")
        case datetime.date() | datetime.time():
            return value.isoformat()
    return json.dumps(value, ensure_ascii=False, default=str)
