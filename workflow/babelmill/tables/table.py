"""Read all columns of a table as streams of rows, for suites and tables to predict.

The stage `corpus` reads only the text of a table. Here all columns stay in their order, and the values of a .csv file
do not change. The whole table is read once before the first prediction, so that a broken last line is an error at once
and not after hours.
"""

import contextlib
import datetime
import functools
import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from babelmill.core import escape
from babelmill.core.files import UserError
from babelmill.core.formats import DELIMITERS, split_name
from babelmill.core.templates import OF_FILE, fill
from babelmill.tables.columns import Asked, BadRow, NoColumn, check_cell, check_names, object_of
from babelmill.tables.delimited import Records, encloses, setting
from babelmill.tables.parquet_file import as_strings, check, holds_text, opened, plain, seekable
from babelmill.text_files.encodings import INVISIBLE, MARK, MARK_INSIDE, decodes, garbled
from babelmill.text_files.opening import Unreadable, damage_as_unreadable, lines, open_file

log = logging.getLogger("babelmill.table")
FORMATS = (*DELIMITERS, ".parquet", ".jsonl", ".json")
HAS_NUL = "has a NUL; remove it"
ROWS = 1024  # how many rows of a Parquet file are in memory at once


class Table:
    """Yields the rows of a file, as often as needed. Each row is a list of strings; missing values are "".

    `delimiter` (None: a comma in .csv, a tab in .tsv), `encoding` and `quoting` (see `Records`) are those of .csv and
    .tsv; `section`, or `--` for arguments, says in errors where they are set. A UserError says that the file is
    missing, not a table, damaged, or in another encoding, or that a column is missing, is there twice, or holds other
    values than asked.
    """

    def __init__(
        self,
        path: Path,
        asked: Sequence[Asked] = (),
        *,
        delimiter: str | None = None,
        encoding: str = "utf-8",
        quoting: str = "format",
        section: str = "--",
        scratch: Path | None = None,
    ):
        self._path, self._asked, self._section, self._scratch = path, asked, section, scratch
        self._where = escape.line(path)
        self._format, self._compression = split_name(path)
        if self._format not in FORMATS:
            allowed = ", ".join(FORMATS)
            raise UserError(
                f"{self._where}: this file format cannot be read; allowed are {allowed}, each also with .gz or .zst"
            )
        self._delimiter, self._encoding, self._quoting = delimiter, encoding, quoting
        self.columns: list[str] = []  # of .jsonl, all keys in the order in which they first appear
        self.warnings: list[str] = []  # what a person should know about the table
        with self._errors():
            self.rows = self._scan()

    def __iter__(self) -> Iterator[list[str]]:
        with self._errors():
            if self._format == ".parquet":
                yield from self._parquet()
            elif self._format in DELIMITERS:
                yield from (row for _, row in self._fields(self._records()))
            else:
                for value in self._objects():
                    yield [cell_of(value.get(name)) for name in self.columns]

    def place(self, column: str) -> int:
        """Return the index of a column that was asked for."""
        return self.columns.index(column)

    def _scan(self) -> int:
        """Set `columns` and `warnings`, and return the number of rows."""
        if self._format == ".parquet":
            with self._open_parquet() as file:
                self.columns = file.schema_arrow.names
            return sum(1 for _ in self._parquet())
        if self._format in DELIMITERS:
            return self._scan_records()
        names: dict[str, None] = {}
        count = 0
        for value in self._objects():
            names |= dict.fromkeys(value)
            count += 1
        if not names:
            raise UserError(f"{self._where} is empty; each line must be a JSON object")
        self.columns = list(names)
        check_names(self.columns, self._asked, "key")
        return count

    def _scan_records(self) -> int:
        records = self._records()
        self.columns = records.heading
        if not self.columns:
            raise UserError(f"{self._where} is empty; its first line must have the names of the columns")
        records.check(self._asked)
        places = [] if records.quoted else [self.place(asked.column) for asked in self._asked]
        count = enclosed = 0
        for _, row in self._fields(records):
            count += 1
            enclosed += any(encloses(row[place]) for place in places)
        if enclosed:
            self.warnings.append(records.about_enclosed(enclosed))
        return count

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            with damage_as_unreadable(self._path):
                yield
        except NoColumn as problem:
            raise UserError(f"{self._where}: {problem}") from None
        except RecursionError:  # a value that could be read, but not be written
            raise UserError(f"{self._where}: values are nested too deeply") from None
        except Unreadable as problem:
            raise UserError(f"{self._where}: {problem}") from None

    def _lines(self) -> Iterator[str]:
        """Yield the lines of a text file, with their newlines."""
        with open_file(self._path, self._format, self._compression) as stream:
            for number, line in enumerate(lines(stream), 1):
                yield self._decoded(line, number)

    def _decoded(self, line: bytes, number: int) -> str:
        encoding = "utf-8" if self._format not in DELIMITERS else self._encoding
        if found := garbled(line, encoding):
            key = f"{self._section}encoding" if self._section == "--" else f"{self._section}.encoding"
            raise UserError(f"{self._where}: line {number}: {found.problem} ({key})")
        if b"\0" in line:
            raise UserError(f"{self._where}: line {number} {HAS_NUL}")
        if line.startswith(MARK) and encoding == "utf-8":
            raise UserError(f"{self._where}: line {number} {MARK_INSIDE}")
        try:
            return line.decode(encoding)
        except UnicodeDecodeError as error:
            # The bytes 80 to 9F are curly quotation marks and dashes of Windows, and no characters of latin-1.
            advised = "cp1252" if INVISIBLE.search(line) else "latin-1"
            raise UserError(
                f"{self._where}: line {number} is not {encoding} (byte 0x{line[error.start]:02x}); set the file's"
                f" encoding, such as {setting(self._section, 'encoding', advised)}"
            ) from None

    def _records(self) -> Records:
        return Records(self._path, self._format, self._lines(), self._delimiter, self._quoting, self._section)

    def _fields(self, records: Records) -> Iterator[tuple[int, list[str]]]:
        """Yield the line and the fields of each record. Raise a UserError at the first bad one."""
        for number, row, problem in records:
            if problem:
                raise UserError(f"{self._where}: line {number}: {problem}")
            yield number, row

    def _objects(self) -> Iterator[dict[str, Any]]:
        """Yield the objects of a .jsonl file. Blank lines are skipped."""
        for number, line in enumerate(self._lines(), 1):
            if not line.strip():
                continue
            try:
                value = object_of(line)
                for asked in self._asked:
                    check_cell(asked, cell := value.get(asked.column))
                    if isinstance(cell, str) and "\0" in cell:
                        raise BadRow(f"{escape.line(repr(asked.column), 100)} {HAS_NUL}")
                if "\\u" in line:
                    json.dumps(value, ensure_ascii=False).encode()
            except UnicodeEncodeError:
                raise UserError(
                    f"{self._where}: line {number} contains half of a surrogate pair, which is not text"
                ) from None
            except BadRow as problem:
                raise UserError(f"{self._where}: line {number}: {problem}") from None
            yield value

    @contextlib.contextmanager
    def _open_parquet(self) -> Iterator[pq.ParquetFile]:
        with (
            open_file(self._path, self._format, self._compression) as stream,
            seekable(stream, self._scratch) as source,
            opened(self._path, source, self._asked) as file,
        ):
            yield file

    def _parquet(self) -> Iterator[list[str]]:
        with self._open_parquet() as file:
            asked = {each.column for each in self._asked}
            number = 1
            for batch in file.iter_batches(ROWS, use_threads=False):
                columns = []
                for name, column in zip(batch.schema.names, batch.columns, strict=True):
                    values = texts_of(column)
                    if values is None:
                        if name in asked:
                            raise UserError(self._not_text(name, column, number))
                        values = [cell_of(value) for value in plain(column).cast(pa.large_binary()).to_pylist()]
                    if name in asked and (found := next((i for i, v in enumerate(values, number) if "\0" in v), None)):
                        shown = escape.line(repr(name), 100)
                        raise UserError(f"{self._where}: row {found}: column {shown} {HAS_NUL}")
                    columns.append(values)
                yield from map(list, zip(*columns, strict=True))
                number += batch.num_rows

    def _not_text(self, name: str, column: pa.Array, number: int) -> str:
        """Return the error for a column of text with bytes that are not UTF-8; row `number` is its first."""
        values = plain(column).cast(pa.large_binary()).to_pylist()
        bad = next(i for i, value in enumerate(values, number) if value is not None and not decodes(value, "utf-8"))
        return f"{self._where}: row {bad}: column {escape.line(repr(name), 100)} contains bytes that are not UTF-8"


class Row(NamedTuple):
    """A row of a file: some of its cells."""

    cells: dict[str, str]  # {column: text}
    file: str  # the name of the file without its ending
    where: str  # the file and the number of the row, for errors

    def filled(self, template: str) -> str:
        return fill(template, self.cells | {OF_FILE: self.file})


def rows_of(
    paths: Iterable[Path],
    asked: Sequence[Asked],
    columns: Mapping[str, str],
    section: str,
    scratch: Path | None,
    quoting: str = "format",
    anything: Sequence[Asked] = (),
) -> Iterator[Row]:
    """Yield the rows of tables, in order. The columns of `anything` must be there, too, and may hold lists.

    `columns`: the keys `delimiter` and `encoding` of the configuration's `section`.
    """
    delimiter, encoding = columns.get("delimiter"), columns.get("encoding", "utf-8")
    how = functools.partial(Table, delimiter=delimiter, encoding=encoding, quoting=quoting, section=section)
    for path in paths:
        table = how(path, asked, scratch=scratch)
        for warning in table.warnings:
            log.warning("%s", warning)
        check(path, table.columns, anything)
        places = {each.column: table.place(each.column) for each in (*asked, *anything)}
        stem = Path(path.stem).stem if split_name(path)[1] else path.stem
        for number, cells in enumerate(table, 1):
            where = f"{escape.line(path)}: row {number}"
            yield Row({name: cells[place] for name, place in places.items()}, stem, where)


def texts_of(column: pa.Array) -> list[str] | None:
    """Return the values of a column of a Parquet file as text; None if they are bytes that are not UTF-8."""
    array = plain(column)
    if holds_text(array.type) or not pa.types.is_nested(array.type):
        strings = as_strings(array)
        if strings is not None:
            missing = (None, "nan") if pa.types.is_floating(array.type) else (None,)
            return ["" if value in missing else value for value in strings.to_pylist()]
        if holds_text(array.type):
            return None
    return [cell_of(value) for value in column.to_pylist()]


def cell_of(value: Any) -> str:
    """Return a value of JSON or Parquet as the text of a cell."""
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
