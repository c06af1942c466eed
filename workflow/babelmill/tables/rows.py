"""The one reader of tables and text: (line, row) out of .txt, .jsonl, .csv, .tsv and .parquet, plain, .gz or .zst.

What a cell may hold, how a line becomes fields and what is refused does not depend on the use. Only what happens to a
bad row does: a corpus may skip and count it, all others stop at the first one.

The standard library parses: unlike the loaders of `datasets`, it never turns the text `NA` into a missing value or a
column of `007` into 7, and errors name the line.
"""

import csv
import functools
import itertools
import json
import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from babelmill.config.values import words_of_document
from babelmill.core import escape
from babelmill.core.files import UserError
from babelmill.core.formats import DELIMITERS, MAX_FIELD, format_of
from babelmill.core.templates import OF_FILE, fill
from babelmill.core.words import plural
from babelmill.tables.text import (
    HEAD,
    MARK,
    MARK_INSIDE,
    UNDECODED,
    BadRow,
    Block,
    Form,
    OnBadRow,
    blocks,
    opened,
    refuse_other_kinds,
    stop,
    undecodable,
)

log = logging.getLogger("babelmill.tables")
ROWS, BATCH = 8192, 1 << 20  # rows and bytes of a Parquet file that are in memory at once, at most
OF_FORM = Form()
SURROGATE = re.compile("[\ud800-\udfff]")  # half of a pair in JSON
Row = tuple[int, Sequence[Any]]  # its line (its number in a .parquet), and the cells that are asked for


class Asked(NamedTuple):
    """A column (or a key of JSON objects) that is asked for."""

    column: str  # its name
    setting: str  # what names it, for errors: the key of the configuration, or an argument
    holds: Literal["text", "value", "anything"] = "text"  # a value is text, a number, or true or false
    optional: bool = False  # whether its cells are None where there is no such column


class NoColumn(BadRow):
    """There is no such column, or more than one; the file or the configuration is wrong, not the row."""


def rows(path: Path, asked: Sequence[Asked], form: Form = OF_FORM, on_bad: OnBadRow = stop) -> Iterator[Row]:
    """Yield the rows of a file: of each, the cells that are asked for, as text or as JSON and Parquet hold them.

    A .txt file has one column, which holds its documents. Whatever is wrong with a row, or with the rest of the file,
    is given to `on_bad`, and skipped if this returns. A UserError says that there is no such file, format or column, or
    that the encoding is another one.
    """
    suffix, compression = format_of(path, file_format=form.format)
    needed = [each for each in asked if not each.optional]
    if suffix == ".txt" and (not form.document or len(needed) > 1):
        raise UserError(f"{escape.line(path)}: plain text has no columns; {needed[-1].setting} needs a table")
    try:
        if suffix == ".parquet":
            found = _of_parquet(path, compression, asked, on_bad)
        elif suffix in DELIMITERS:
            found = _of_records(_Records(path, suffix, compression, form, on_bad), asked)
        elif suffix == ".txt":
            found = _of_text(path, compression, form, on_bad, len(asked))
        else:
            found = _of_json(path, compression, asked, on_bad)
        yield from found
    except NoColumn:
        raise
    except BadRow as problem:  # the rest of the file
        on_bad(problem)


def columns_of(path: Path, asked: Sequence[Asked] = (), form: Form = OF_FORM) -> list[str]:
    """Return the names of a table's columns, in order; of .jsonl, all keys in the order in which they first appear.

    A UserError says that there are none, or that one that is asked for is missing or there twice.
    """
    suffix, compression = format_of(path, file_format=form.format)
    advice = ""
    if suffix == ".txt":
        raise UserError(f"{escape.line(path)}: plain text has no columns; give a table")
    if suffix == ".parquet":
        with opened(path, compression) as stream:
            names = _parquet_file(path, compression, stream).schema_arrow.names
    elif suffix in DELIMITERS:
        records = _Records(path, suffix, compression, form, stop)
        names, advice = records.heading, records.advice()
    else:
        names = [*dict.fromkeys(itertools.chain.from_iterable(row for _, row in _objects(path, compression, stop)))]
    if not names:
        raise UserError(f"{escape.line(path)} is empty; a table has the names of its columns, and rows")
    check_names(path, names, asked, advice)
    return names


def check_names(path: Path, there: Sequence[str], asked: Iterable[Asked], advice: str = "") -> None:
    """Raise NoColumn unless each column that is asked for occurs once."""
    for column, setting, _, optional in asked:
        count, shown = there.count(column), escape.line(repr(column), 100)
        if count > 1:
            raise NoColumn(path, "", f"{count} columns are named {shown} ({setting}); rename all but one of them")
        if not count and not optional:
            are = escape.some(map(repr, there)) or "none"
            raise NoColumn(path, "", f"no column {shown}; there are {are}; set {setting}{advice}")


def no_cell(asked: Asked, value: Any) -> str:
    """Return why a value of JSON or Parquet does not fit its column; "" if it does."""
    if value is None or isinstance(value, str) or asked.holds == "anything":
        return ""
    if asked.holds == "value" and isinstance(value, bool | int | float):
        return ""
    # A list or an object may be nested so deeply that it cannot be written.
    shown = {list: "a list", dict: "an object"}.get(type(value)) or escape.line(repr(value), 60)
    wanted = "no text" if asked.holds == "text" else "neither text nor a number"
    return f"{escape.line(repr(asked.column), 100)} is {wanted}: {shown}"


# .txt


def _of_text(path: Path, compression: str | None, form: Form, on_bad: OnBadRow, width: int) -> Iterator[Row]:
    """Yield the documents of a text file that are not empty."""
    sound = True

    def found() -> Iterator[Block]:
        nonlocal sound
        for block in blocks(path, compression, form):
            sound = block.sound
            yield block

    if form.document == "file":
        documents = iter([(1, "".join(block.text for block in found()).replace("\r\n", "\n"))])
    elif form.document == "paragraph":
        documents = _paragraphs(_lines(found()))
    elif words := words_of_document(form.document):
        documents = _of_words(_lines(found()), words)
    else:
        documents = _lines(found())
    others = [None] * (width - 1)
    for number, text in documents:
        if not sound and (why := undecodable(text, form.encoding)):
            on_bad(BadRow(path, f"line {_line_of(text, number)}", _advised(why, form), "undecodable"))
        elif text:
            yield number, [text, *others]


def _line_of(text: str, number: int) -> int:
    """Return the line of the first byte of a text that could not be decoded; the text begins at line `number`."""
    found = UNDECODED.search(text)
    return number + (text.count("\n", 0, found.start()) if found else 0)


def _advised(why: str, form: Form) -> str:
    return f"{why} ({form.setting('encoding', 'latin-1')} or cp1252, if it is one of these)"


def _lines(found: Iterable[Block]) -> Iterator[tuple[int, str]]:
    """Yield lines without their ends. They end at LF: `splitlines` would also break them at U+2028 and form feeds."""
    for block in found:
        text = block.text.removesuffix("\n").removesuffix("\r").replace("\r\n", "\n")
        yield from enumerate(text.split("\n"), block.number)


def _paragraphs(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    held, first = list[str](), 1
    for number, line in lines:
        if line.strip(" \t\r"):
            first = number if not held else first
            held.append(line)
        elif held:
            yield first, "\n".join(held)
            held = []
    if held:
        yield first, "\n".join(held)


def _of_words(lines: Iterable[tuple[int, str]], words: int) -> Iterator[tuple[int, str]]:
    """Yield successive lines that have so many words together; a line with more is cut after each so many words."""
    cut = re.compile(rf"\S++(?:\s++\S++){{0,{words - 1}}}+")
    held, first, count = list[str](), 1, 0
    for number, line in lines:
        there = len(line.split())
        for part in [line] if there <= words else cut.findall(line):
            first = number if not held else first
            held.append(part)
            count += min(there, words)
            there -= words
            if count >= words:
                yield first, "\n".join(held).strip("\n")
                held, count = [], 0
    if count:
        yield first, "\n".join(held).strip("\n")


# .jsonl


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object of these keys and values. A ValueError says that a key is there twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for i, (key, _) in enumerate(pairs) if key in dict(pairs[:i]))
        raise ValueError(f"the key {escape.line(repr(twice), 100)} appears twice")
    return found


SCAN = json.JSONDecoder(object_pairs_hook=_each_once).scan_once  # pyright: ignore[reportAttributeAccessIssue]


def _object(line: str) -> dict[str, Any]:
    """Return the object of a line. A ValueError says that it is none, or has a key twice."""
    try:
        row = json.loads(line, object_pairs_hook=_each_once)
    except json.JSONDecodeError as error:
        raise ValueError(MARK_INSIDE if line.startswith(MARK) else f"not JSON: {error}") from None
    except RecursionError:
        raise ValueError("not JSON: it is nested too deeply") from None
    if isinstance(row, dict):
        return row
    array = "; if the file is one array, write each of its objects into a line of its own"
    raise ValueError(f"not a JSON object{array if isinstance(row, list) else ''}")


def _objects(path: Path, compression: str | None, on_bad: OnBadRow) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the objects of a file of JSON lines. Blank lines are skipped."""
    for block in blocks(path, compression, OF_FORM):
        for number, line in enumerate(block.text.split("\n"), block.number):
            try:
                row, end = SCAN(line, 0)  # half the time of `json.loads`
                if type(row) is not dict or (end < len(line) and not line[end:].isspace()):
                    row = _object(line)
            except (StopIteration, ValueError, RecursionError):
                if not line or line.isspace():
                    continue
                try:
                    row = _object(line)
                except ValueError as problem:
                    row = str(problem)
            if not block.sound and (why := undecodable(line)):
                on_bad(BadRow(path, f"line {number}", why, "undecodable"))
            elif isinstance(row, str):
                on_bad(BadRow(path, f"line {number}", row))
            else:
                yield number, row


def _of_json(path: Path, compression: str | None, asked: Sequence[Asked], on_bad: OnBadRow) -> Iterator[Row]:
    """Yield what keys hold. A key that the first object lacks is wrong, not the line."""
    names, first = [each.column for each in asked], True
    checked = [(place, each) for place, each in enumerate(asked) if each.holds != "anything"]
    needed = [each.column for each in asked if not each.optional]
    for number, row in _objects(path, compression, on_bad):
        cells = [*map(row.get, names)]
        problem = ""
        for place, each in checked:
            if type(cells[place]) is not str and not problem:
                problem = no_cell(each, cells[place])
        if None in cells and (missing := [name for name in needed if name not in row]):
            if first:
                check_names(path, [*row], asked)
            problem = f"no key {escape.line(repr(missing[0]), 100)}"
        if problem:
            on_bad(BadRow(path, f"line {number}", problem))
            continue
        first = False
        yield number, cells


# .csv and .tsv


class _Records:
    """The records of a file after its heading: (line, fields, what is wrong with it or "").

    .csv is RFC 4180: a field may stand between quotation marks, and then hold the delimiter and line ends. In text that
    is separated by tabs, quotation marks are usually part of the text (`1<TAB>"Hello there`), and reading them as in a
    .csv would swallow rows. So a .tsv is read without quoting unless it is asked for (`quoting: csv`).
    """

    def __init__(self, path: Path, suffix: str, compression: str | None, form: Form, on_bad: OnBadRow):
        self.path, self.form, self.on_bad, self.sound = path, form, on_bad, True
        self._compression = compression
        self.delimiter = (form.delimiter if suffix == ".csv" else None) or DELIMITERS[suffix]
        self.quoted = form.quoting == "csv" or (form.quoting == "format" and suffix == ".csv")
        self._records = (self._of_rfc_4180 if self.quoted else self._of_lines)()
        self.line, self.heading, problem = next((each for each in self._records if each[1] or each[2]), (1, [], ""))
        if problem := problem or undecodable("".join(self.heading), form.encoding):
            raise NoColumn(path, f"line {self.line}", f"{problem}, in the heading")

    def advice(self) -> str:
        """Return what else may be wrong where the heading lacks a column."""
        if not self.quoted and any(map(encloses, self.heading)):
            return f"; {self.quoting_advice()}"
        if len(self.heading) == 1 and (other := next((mark for mark in "\t;,|" if mark in self.heading[0]), "")):
            shown = '"\\t"' if other == "\t" else repr(other)
            return f", or, in a .csv, {self.form.setting('delimiter', shown)}"
        return ""

    def quoting_advice(self) -> str:
        return f"if quotation marks enclose its fields, set {self.form.setting('quoting', 'csv')}"

    def __iter__(self) -> Iterator[tuple[int, list[str], str]]:
        """Yield the records. Blank lines are skipped, but are an empty field in a table with a single column."""
        width = len(self.heading)
        for number, fields, problem in self._records:
            if len(fields) != width and not problem:
                if not fields and width > 1:
                    continue
                fields = fields or [""]
                if len(fields) != width:
                    problem = f"{plural(len(fields), 'field')}, but the heading has {width}"
                    if not self.quoted and any('"' in field for field in fields):
                        problem += f"; {self.quoting_advice()}"
            if not problem and fields[0].startswith(MARK):
                problem = MARK_INSIDE
            yield number, fields, problem

    def _lines(self) -> Iterator[str]:
        for block in blocks(self.path, self._compression, self.form):
            self.sound = block.sound
            *lines, last = block.text.split("\n")
            yield from (f"{line}\n" for line in lines)
            if last:
                yield last

    def _of_lines(self) -> Iterator[tuple[int, list[str], str]]:
        for number, line in enumerate(self._lines(), 1):
            text = line.removesuffix("\n").removesuffix("\r")
            yield number, text.split(self.delimiter) if text else [], ""

    def _of_rfc_4180(self) -> Iterator[tuple[int, list[str], str]]:
        csv.field_size_limit(MAX_FIELD)
        reader = csv.reader(self._lines(), strict=True, delimiter=self.delimiter)
        while True:
            start = reader.line_num + 1
            try:
                for fields in reader:
                    yield start, fields, ""
                    start = reader.line_num + 1
                return
            except csv.Error as error:
                yield start, [], f"not CSV: {error}"


def encloses(field: str) -> bool:
    """Return whether quotation marks enclose a field."""
    return len(field) > 1 and field[0] == field[-1] == '"'


def _of_records(records: _Records, asked: Sequence[Asked]) -> Iterator[Row]:
    if not records.heading:
        return
    check_names(records.path, records.heading, asked, records.advice())
    path, enclosed = records.path, 0
    places = [records.heading.index(each.column) if each.column in records.heading else None for each in asked]
    for number, fields, problem in records:
        if not problem:
            cells = [None if place is None else fields[place] for place in places]
            if not records.quoted:
                enclosed += any(cell and encloses(cell) for cell in cells)
            if records.sound or not (why := undecodable("".join(cell or "" for cell in cells), records.form.encoding)):
                yield number, cells
            else:
                records.on_bad(BadRow(path, f"line {number}", _advised(why, records.form), "undecodable"))
        else:
            records.on_bad(BadRow(path, f"line {number}", problem))
    if enclosed:
        log.warning(
            "%s: quotation marks enclose a field in %s, and are read as a part of the text, as is usual in .tsv files;"
            " if they only enclose it, set %s",
            *(escape.line(path), plural(enclosed, "row"), records.form.setting("quoting", "csv")),
        )


# .parquet


def _parquet_file(path: Path, compression: str | None, stream: IO[bytes]) -> pq.ParquetFile:
    """Return a Parquet file, which is read from its end: a compressed one is unpacked in memory."""
    head = stream.read(HEAD)
    refuse_other_kinds(path, head, b"PAR1")
    source = pa.BufferReader(head + stream.read()) if compression else pa.OSFile(str(path))
    return pq.ParquetFile(source, pre_buffer=False, buffer_size=BATCH, page_checksum_verification=True)


def _of_parquet(path: Path, compression: str | None, asked: Sequence[Asked], on_bad: OnBadRow) -> Iterator[Row]:
    """Yield what columns hold. UTF-8 is checked here: Parquet readers do not."""
    number = 1
    with opened(path, compression) as stream, _parquet_file(path, compression, stream) as file:
        schema = file.schema_arrow
        check_names(path, schema.names, asked)
        there = [each for each in asked if each.column in schema.names]
        for each in there:
            _check_type(path, schema.field(each.column).type, each)
        for group in range(file.num_row_groups):
            facts = file.metadata.row_group(group)
            count = max(1, min(ROWS, BATCH * facts.num_rows // max(1, facts.total_byte_size)))
            names = list(dict.fromkeys(each.column for each in there))
            for batch in file.iter_batches(count, [group], columns=names, use_threads=False):
                columns = {name: _cells(batch.column(name)) for name in names}
                nothing = [None] * batch.num_rows, True
                found = [columns.get(each.column, nothing) for each in asked]
                sound = all(valid for _, valid in found)
                for cells in zip(*(values for values, _ in found), strict=True):
                    why = "" if sound else undecodable("".join(cell for cell in cells if isinstance(cell, str)))
                    if why:
                        on_bad(BadRow(path, f"row {number}", why, "undecodable"))
                    else:
                        yield number, cells
                    number += 1


def _check_type(path: Path, kind: pa.DataType, asked: Asked) -> None:
    stored = _stored(kind)
    number = pa.types.is_integer(stored) or pa.types.is_floating(stored) or pa.types.is_boolean(stored)
    if asked.holds == "anything" or _holds_text(stored) or (asked.holds == "value" and number):
        return
    wanted = "not text" if asked.holds == "text" else "neither text nor numbers"
    shown = f"column {escape.line(repr(asked.column), 100)} is {escape.line(kind, 100)}"
    raise NoColumn(path, "", f"{shown}, {wanted}; set {asked.setting}")


@functools.cache
def _holds_text(kind: pa.DataType) -> bool:
    """Return whether values of a type are text or bytes, or all missing: whether Arrow can give them as bytes."""
    try:
        pa.nulls(0, kind).cast(pa.large_binary())
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        return False
    return True


def _stored(kind: pa.DataType) -> pa.DataType:
    """Return the type of the values that a dictionary or an extension stores."""
    if isinstance(kind, pa.BaseExtensionType):
        return _stored(kind.storage_type)
    return _stored(kind.value_type) if pa.types.is_dictionary(kind) else kind


def _plain(array: pa.Array) -> pa.Array:
    """Return a column without dictionary and extension."""
    if isinstance(array, pa.ExtensionArray):
        return _plain(array.storage)
    return _plain(array.dictionary_decode()) if pa.types.is_dictionary(array.type) else array


def _cells(column: pa.Array) -> tuple[list[Any], bool]:
    """Return the values of a column, and whether all of its text is UTF-8; other bytes become lone surrogates."""
    array = _plain(column)
    kind = array.type
    if pa.types.is_nested(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind) or kind == pa.float64():
        return array.to_pylist(), True
    try:
        strings = array.cast(pa.string())
        strings.validate(full=True)
        return strings.to_numpy(zero_copy_only=False).tolist(), True  # five times as fast as `to_pylist`
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        if not _holds_text(kind):
            return array.to_pylist(), True
    raw = array.cast(pa.large_binary()).to_pylist()
    return [value and value.decode("utf-8", "surrogateescape") for value in raw], False


# tables of text


def cell_of(value: Any) -> str:
    """Return a value of JSON or Parquet as the text of a cell; "" if it is missing."""
    if isinstance(value, str):
        return value
    if value is None or value != value:
        return ""
    return (
        value.decode("utf-8", "replace")
        if isinstance(value, bytes)
        else json.dumps(value, ensure_ascii=False, default=str)
    )


class TextRow(NamedTuple):
    """A row of a file: its cells as text."""

    cells: dict[str, str]  # {column: text}; missing values are ""
    file: str  # the name of the file without its ending
    where: str  # the file and the line, for errors

    def filled(self, template: str) -> str:
        """Return a template with the cells in place of the names of their columns."""
        return fill(template, self.cells | {OF_FILE: self.file})


def text_rows(paths: Iterable[Path], asked: Sequence[Asked], form: Form = OF_FORM) -> Iterator[TextRow]:
    """Yield the rows of tables, in order, as text without NULs. A UserError names the first bad one."""
    for path in paths:
        suffix, compression = format_of(path, file_format=form.format)
        unit, stem = "row" if suffix == ".parquet" else "line", Path(path.stem).stem if compression else path.stem
        for number, values in rows(path, asked, form):
            cells = {each.column: cell_of(value) for each, value in zip(asked, values, strict=True)}
            text = "".join(cells.values())
            if "\0" in text or (not text.isascii() and SURROGATE.search(text)):
                raise BadRow(
                    path, f"{unit} {number}", "has a NUL, or half of a surrogate pair, which is no text; remove it"
                )
            yield TextRow(cells, stem, f"{escape.line(path)}: {unit} {number}")


class Table:
    """All columns of a file as text, as often as they are needed.

    It is read once at the beginning, so that a broken last line is an error at once, and not after hours.
    """

    def __init__(self, path: Path, asked: Sequence[Asked] = (), form: Form = OF_FORM):
        self.columns = columns_of(path, asked, form)
        named = {each.column: each._replace(optional=True) for each in asked}
        self._asked = [
            named.get(name) or Asked(name, "its heading", "anything", optional=True) for name in self.columns
        ]
        self._path, self._form = path, form
        check_names(path, self.columns, self._asked)
        self.rows = sum(1 for _ in self)

    def __iter__(self) -> Iterator[list[str]]:
        return ([*row.cells.values()] for row in text_rows([self._path], self._asked, self._form))

    def place(self, column: str) -> int:
        """Return the index of a column."""
        return self.columns.index(column)
