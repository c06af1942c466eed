"""The one reader of tables and text: (line, row) out of .txt, .jsonl, .csv, .tsv and .parquet, plain, .gz or .zst.

What a cell may hold, how a line becomes fields and what is refused does not depend on the use. Only what happens to a
bad row does: a corpus may skip and count it, all others stop at the first one.

The standard library parses: unlike the loaders of `datasets`, it never turns the text `NA` into a missing value or a
column of `007` into 7, and errors name the line.
"""

import csv
import io
import itertools
import json
import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from babelmill.config.entries import OF_FILE, fill
from babelmill.config.schema import words_of_document
from babelmill.core import escape
from babelmill.core.files import UserError
from babelmill.core.formats import DELIMITERS, MAX_FIELD, format_of
from babelmill.core.words import plural, words_in
from babelmill.tables import text as files
from babelmill.tables.text import UNDECODED, BadRow, Blocks, Form, OnBadRow, opened, stop

log = logging.getLogger("babelmill.tables")
ROWS, BATCH = 8192, 1 << 20  # rows and bytes that are in memory at once, at most
TEXT = (pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view(), pa.null())
HOLDS = {"text": str, "value": (str, bool, int, float), "anything": object}
OF_FORM = Form()
SURROGATE = re.compile("[\ud800-\udfff]")  # half of a pair in JSON
Column = list[Any] | pa.Array
Columns = tuple[Sequence[int], list[Column]]  # lines (rows of a .parquet), and the cells of each column asked for
Bad = dict[int, BadRow]  # the places of rows that are skipped, in order, and what is wrong with them
Part = tuple[Sequence[int], list[Column], Bad]
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
    """Yield the rows of a file: of each, the cells that are asked for, as text or as JSON and Parquet hold them."""
    for numbers, columns in columns_of_rows(path, asked, form, on_bad):
        yield from zip(numbers, zip(*map(listed, columns), strict=True), strict=True)


def listed(column: Column) -> list[Any]:
    """Return the cells of a column as values of Python."""
    if isinstance(column, list):
        return column
    is_text = column.type == pa.string()
    return column.to_numpy(zero_copy_only=False).tolist() if is_text else column.to_pylist()  # the former is faster


def columns_of_rows(
    path: Path, asked: Sequence[Asked], form: Form = OF_FORM, on_bad: OnBadRow = stop
) -> Iterator[Columns]:
    """Yield the rows of a file in columns, about 256 KiB of text or 1 MB of a .parquet at once.

    A .txt file has one column, which holds its documents. Whatever is wrong with a row, or with the rest of the file,
    is given to `on_bad`, and skipped if this returns. A UserError says that there is no such file, format or column, or
    that the encoding is another one.
    """
    suffix, compression = format_of(path, file_format=form.format)
    needed = [each for each in asked if not each.optional]
    if suffix == ".txt" and (not form.document or len(needed) > 1):
        raise UserError(f"{escape.line(path)}: plain text has no columns; {needed[-1].setting} needs a table")
    blocks = Blocks(path, compression, form if suffix in (".txt", *DELIMITERS) else None)
    try:
        if suffix == ".parquet":
            parts = _of_parquet(path, compression, asked)
        elif suffix in DELIMITERS:
            parts = _of_records(_Records(blocks, suffix), asked)
        else:
            parts = _of_text(blocks, len(asked)) if suffix == ".txt" else _of_json(blocks, asked)
        for numbers, columns, bad in parts:
            for problem in bad.values():
                on_bad(problem)
            if bad:
                good = [place for place in range(len(numbers)) if place not in bad]
                numbers = [numbers[place] for place in good]
                columns = [[cells[place] for place in good] for cells in map(listed, columns)]
            yield numbers, columns
    except NoColumn:
        raise
    except BadRow as problem:  # the rest of the file
        on_bad(problem)


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
    if value is None or isinstance(value, HOLDS[asked.holds]):
        return ""
    # A list or an object may be nested so deeply that it cannot be written.
    shown = {list: "a list", dict: "an object"}.get(type(value)) or escape.line(repr(value), 60)
    wanted = "no text" if asked.holds == "text" else "neither text nor a number"
    return f"{escape.line(repr(asked.column), 100)} is {wanted}: {shown}"


# .txt


def _of_text(blocks: Blocks, width: int) -> Iterator[Part]:
    """Yield the documents of a text file; the empty ones are skipped."""
    unit = blocks.form.document
    if unit == "file":
        parts = iter([([1], ["".join(text for _, text in blocks).replace("\r\n", "\n")])])
    elif unit == "paragraph":
        parts = _paragraphs(blocks)
    elif words := words_of_document(unit):
        parts = _of_words(blocks, words)
    else:
        parts = ((range(first, first + len(lines)), lines) for first, lines in _lines(blocks))
    for numbers, texts in parts:
        if not all(texts):
            numbers, texts = [*itertools.compress(numbers, texts)], [*filter(None, texts)]
        bad = Bad()
        if not blocks.sound:
            problems = [blocks.undecodable(*each) for each in zip(numbers, texts, strict=True)]
            bad = {place: problem for place, problem in enumerate(problems) if problem}
        if unit != "line" and len(max(texts, key=len, default="")) > files.LONGEST:
            raise files.too_long(blocks.path)
        yield numbers, [texts, *([None] * len(texts) for _ in range(1, width))], bad


def _lines(blocks: Blocks) -> Iterator[tuple[int, list[str]]]:
    """Yield lines without their ends. They end at LF: `splitlines` would also break them at U+2028 and form feeds."""
    for number, text in blocks:
        yield number, text.removesuffix("\n").removesuffix("\r").replace("\r\n", "\n").split("\n")


def _paragraphs(blocks: Blocks) -> Iterator[tuple[list[int], list[str]]]:
    held, first = list[str](), 1
    for begin, lines in _lines(blocks):
        numbers, texts = list[int](), list[str]()
        for number, line in enumerate(lines, begin):
            if line.strip(" \t\r"):
                first = number if not held else first
                held.append(line)
            elif held:
                numbers.append(first)
                texts.append("\n".join(held))
                held = []
        yield numbers, texts
    if held:
        yield [first], ["\n".join(held)]


def _of_words(blocks: Blocks, words: int) -> Iterator[tuple[list[int], list[str]]]:
    """Yield successive lines that have so many words together; a line with more is cut after each so many words."""
    cut = re.compile(rf"\S++(?:\s++\S++){{0,{words - 1}}}+")
    held, first, count = list[str](), 1, 0  # what is waiting for more words, the number of its first line, its words
    for begin, lines in _lines(blocks):
        numbers, texts, done = list[int](), list[str](), 0
        for place, there in enumerate(map(words_in, lines)):
            count += there
            if count < words:
                continue
            parts = [lines[place]] if there <= words else cut.findall(lines[place])
            whole = ["\n".join([*held, *lines[done:place], parts[0]]), *parts[1:]]
            count = there % words if there > words else 0
            held = [whole.pop()] if count else []
            numbers += [first, *[begin + place] * (len(whole) - 1)]
            texts += [text.strip("\n") for text in whole]
            done = place + 1
            first = begin + place + (not held)
        held += lines[done:]
        yield numbers, texts
    if count:
        yield [first], ["\n".join(held).strip("\n")]


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
        raise ValueError(files.MARK_INSIDE if line.startswith(files.MARK) else f"not JSON: {error}") from None
    except RecursionError:
        raise ValueError("not JSON: it is nested too deeply") from None
    if isinstance(row, dict):
        return row
    array = "; if the file is one array, write each of its objects into a line of its own"
    raise ValueError(f"not a JSON object{array if isinstance(row, list) else ''}")


def _objects(blocks: Blocks) -> Iterator[tuple[list[int], list[dict[str, Any]], Bad]]:
    """Yield the objects of a file of JSON lines, {} for a bad line. Blank lines are skipped."""
    for first, text in blocks:
        numbers, rows, bad = list[int](), list[dict[str, Any]](), Bad()
        for number, line in enumerate(text.split("\n"), first):
            problem = None
            try:
                row, end = SCAN(line, 0)  # half the time of `json.loads`
                if type(row) is not dict or (end < len(line) and not line[end:].isspace()):
                    row = _object(line)
            except (StopIteration, ValueError, RecursionError):
                if not line or line.isspace():
                    continue
                try:
                    row = _object(line)
                except ValueError as error:
                    row, problem = {}, BadRow(blocks.path, f"line {number}", str(error))
            if not blocks.sound:
                problem = blocks.undecodable(number, line) or problem
            if problem:
                bad[len(rows)] = problem
            numbers.append(number)
            rows.append(row)
        yield numbers, rows, bad


def _of_json(blocks: Blocks, asked: Sequence[Asked]) -> Iterator[Part]:
    """Yield what keys hold. A key that the first object lacks is wrong, not the line."""
    first, needed = True, [each for each in asked if not each.optional]
    for numbers, rows, bad in _objects(blocks):
        columns: list[Column] = [[row.get(each.column) for row in rows] for each in asked]
        checked = [
            cells for cells, each in zip(columns, asked, strict=True) if each in needed or each.holds != "anything"
        ]
        if any(not {*map(type, cells)} <= {str} for cells in checked):  # all is text otherwise
            for place, row in enumerate(rows):
                if place in bad:
                    continue
                missing = [escape.line(repr(each.column), 100) for each in needed if each.column not in row]
                if missing and first:
                    check_names(blocks.path, [*row], asked)
                whys = [no_cell(each, row.get(each.column)) for each in asked] + [f"no key {name}" for name in missing]
                if why := next(filter(None, whys), ""):
                    bad[place] = BadRow(blocks.path, f"line {numbers[place]}", why)
                else:
                    first = False
        first = first and len(bad) == len(rows)
        yield numbers, columns, dict(sorted(bad.items()))


# .csv and .tsv


class _Records:
    """The records of a file after its heading: (line, fields, what is wrong with it or "").

    .csv is RFC 4180: a field may stand between quotation marks, and then hold the delimiter and line ends. In text that
    is separated by tabs, quotation marks are usually part of the text (`1<TAB>"Hello there`), and reading them as in a
    .csv would swallow rows. So a .tsv is read without quoting unless it is asked for (`quoting: csv`).
    """

    def __init__(self, blocks: Blocks, suffix: str):
        self.blocks, form = blocks, blocks.form
        self.quoted = form.quoting == "csv" or (form.quoting == "format" and suffix == ".csv")
        csv.field_size_limit(MAX_FIELD)
        self._reader = csv.reader(
            (line for _, text in blocks for line in io.StringIO(text, newline="\n")),
            delimiter=(form.delimiter if suffix == ".csv" else None) or DELIMITERS[suffix],
            quoting=csv.QUOTE_MINIMAL if self.quoted else csv.QUOTE_NONE,
            strict=True,
        )
        self.heading: list[str] = []
        number, self.heading, why = next(iter(self), (1, [], ""))
        if problem := BadRow(blocks.path, "", why) if why else blocks.undecodable(number, "".join(self.heading)):
            raise NoColumn(blocks.path, f"line {number}", problem.why)

    def __iter__(self) -> Iterator[tuple[int, list[str], str]]:
        """Yield the records. Blank lines are skipped, but are an empty field in a table with a single column."""
        width = len(self.heading)  # 0 while the heading is read
        while True:
            number, why = self._reader.line_num + 1, ""
            try:
                fields = next(self._reader)
            except StopIteration:
                return
            except csv.Error as error:
                yield number, [], f"not CSV: {error}"
                continue
            if not fields:
                if width != 1:
                    continue
                fields = [""]
            if width and len(fields) != width:
                why = f"{plural(len(fields), 'field')}, but the heading has {width}{self.advice(fields)}"
            elif fields[0].startswith(files.MARK):
                why = files.MARK_INSIDE
            yield number, fields, why

    def advice(self, fields: Sequence[str]) -> str:
        """Return what else may be wrong where the heading lacks a column, or a record has too many fields."""
        form, other = self.blocks.form, next((mark for mark in "\t;,|" if len(fields) == 1 and mark in fields[0]), "")
        if other:
            return f", or, in a .csv, {form.setting('delimiter', json.dumps(other))}"
        if self._reader.dialect.delimiter == "\t" and len(fields) == 1 and " " in fields[0]:
            return "; tabs separate the columns of a .tsv, and there are spaces"
        marks = not self.quoted and any('"' in field for field in fields)
        return f"; if quotation marks enclose its fields, set {form.setting('quoting', 'csv')}" if marks else ""


def _of_records(records: _Records, asked: Sequence[Asked]) -> Iterator[Part]:
    if not records.heading:
        return
    blocks, heading, enclosed = records.blocks, records.heading, 0
    check_names(blocks.path, heading, asked, records.advice(heading))
    places = [heading.index(each.column) if each.column in heading else None for each in asked]
    numbers, rows, bad, block = list[int](), list[list[str]](), Bad(), blocks.first

    def part() -> Part:
        return numbers, [[None] * len(rows) if at is None else [row[at] for row in rows] for at in places], bad

    try:
        for number, fields, why in records:
            if blocks.first != block:
                yield part()
                numbers, rows, bad, block = [], [], {}, blocks.first
            problem = BadRow(blocks.path, f"line {number}", why) if why else None
            there = [] if why else [fields[at] for at in places if at is not None]
            if problem or (not blocks.sound and (problem := blocks.undecodable(number, "".join(there)))):
                bad[len(rows)] = problem
            elif not records.quoted:
                enclosed += any(len(cell) > 1 and cell[0] == cell[-1] == '"' for cell in there)
            numbers.append(number)
            rows.append(heading if problem else fields)
    except BadRow:  # the rest of the file
        yield part()
        raise
    yield part()
    if enclosed:
        log.warning(
            "%s: quotation marks enclose a field in %s, and are read as a part of the text, as is usual in .tsv files;"
            " if they only enclose it, set %s",
            *(escape.line(blocks.path), plural(enclosed, "row"), blocks.form.setting("quoting", "csv")),
        )


# .parquet


def _parquet_file(path: Path, compression: str | None, stream: IO[bytes]) -> pq.ParquetFile:
    """Return a Parquet file, which is read from its end: a compressed one is unpacked in memory."""
    head = stream.read(files.HEAD)
    files.refuse_other_kinds(path, head, b"PAR1")
    source = pa.BufferReader(head + stream.read()) if compression else pa.OSFile(str(path))
    return pq.ParquetFile(source, pre_buffer=False, buffer_size=BATCH, page_checksum_verification=True)


def _of_parquet(path: Path, compression: str | None, asked: Sequence[Asked]) -> Iterator[Part]:
    """Yield what columns hold. UTF-8 is checked here: Parquet readers do not."""
    first = 1
    with opened(path, compression) as stream, _parquet_file(path, compression, stream) as file:
        there = file.schema_arrow.names
        check_names(path, there, asked)
        names = list(dict.fromkeys(each.column for each in asked if each.column in there))
        for group in range(file.num_row_groups):
            facts = file.metadata.row_group(group)
            count = max(1, min(ROWS, BATCH * facts.num_rows // max(1, facts.total_byte_size)))
            for batch in file.iter_batches(count, [group], columns=names, use_threads=False):
                columns = [_cells(path, batch, each) for each in asked]
                numbers = range(first, first := first + batch.num_rows)
                bad = Bad()
                for cells in columns:
                    for place, cell in enumerate(cells) if isinstance(cells, list) else ():
                        if isinstance(cell, str) and (found := UNDECODED.search(cell)):
                            why = files.not_in("utf-8", found)
                            bad.setdefault(place, BadRow(path, f"row {numbers[place]}", why, "undecodable"))
                yield numbers, columns, dict(sorted(bad.items()))


def _plain(array: pa.Array) -> pa.Array:
    """Return a column without dictionary and extension."""
    if isinstance(array, pa.ExtensionArray):
        return _plain(array.storage)
    return _plain(array.dictionary_decode()) if pa.types.is_dictionary(array.type) else array


def _cells(path: Path, batch: pa.RecordBatch, asked: Asked) -> Column:
    """Return a column: an array of Arrow if it is UTF-8; in values of Python, other bytes are lone surrogates."""
    if asked.column not in batch.schema.names:
        return pa.nulls(batch.num_rows, pa.string())
    array = _plain(batch.column(asked.column))
    kind = array.type
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    is_text = kind in TEXT or pa.types.is_fixed_size_binary(kind)
    if not is_text and asked.holds != "anything" and not (is_number and asked.holds == "value"):
        wanted = "not text" if asked.holds == "text" else "neither text nor numbers"
        shown = f"column {escape.line(repr(asked.column), 100)} is {escape.line(kind, 100)}"
        raise NoColumn(path, "", f"{shown}, {wanted}; set {asked.setting}")
    if pa.types.is_nested(kind) or (is_number and kind not in (pa.float16(), pa.float32())):
        return array.to_pylist()
    try:
        strings = array.cast(pa.string())
        strings.validate(full=True)
        return strings
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        if not is_text:
            return array.to_pylist()
    raw = array.cast(pa.large_binary()).to_pylist()
    return [value and value.decode("utf-8", "surrogateescape") for value in raw]


# tables of text


def cell_of(value: Any) -> str:
    """Return a value of JSON or Parquet as the text of a cell; "" if it is missing."""
    if value is None or value != value:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


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


def whole_table(path: Path, asked: Sequence[Asked] = (), form: Form = OF_FORM) -> tuple[list[str], list[list[str]]]:
    """Return the names of all columns of a file, and all rows as text. The columns that are `asked` for must be there.

    A UserError says what is wrong with the table: that it is empty, or which column is missing.
    """
    suffix, compression = format_of(path, file_format=form.format)
    if suffix == ".txt":
        raise UserError(f"{escape.line(path)}: plain text has no columns; give a table")
    if suffix == ".parquet":
        with opened(path, compression) as stream:
            names = _parquet_file(path, compression, stream).schema_arrow.names
    elif suffix in DELIMITERS:
        names = _Records(Blocks(path, compression, form), suffix).heading
    else:  # all keys in the order in which they first appear
        found = dict[str, None]()
        for _, objects, bad in _objects(Blocks(path, compression)):
            for problem in bad.values():
                raise problem
            found |= dict.fromkeys(key for row in objects for key in row)
        names = [*found]
        check_names(path, names, asked if names else ())
        asked = [each._replace(optional=True) for each in asked]  # a row may lack a key
    if not names:
        raise UserError(f"{escape.line(path)} is empty; a table has the names of its columns, and rows")
    others = {name: Asked(name, "its heading", "anything", optional=True) for name in names}
    every = others | {each.column: each for each in asked}
    return names, [[*row.cells.values()] for row in text_rows([path], [*every.values()], form)]
