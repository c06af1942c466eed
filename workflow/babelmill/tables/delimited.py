"""Read comma-separated and tab-separated values. Fields are text.

`csv` is RFC 4180: a field may stand between quotation marks, and then hold the delimiter and line ends. In text that is
separated by tabs, quotation marks are usually part of the text (`1<TAB>"Hello there`), and reading them as `csv` would
swallow rows. So a .tsv is read without quoting unless it is asked for (`quoting: csv`).
"""

import csv
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from babelmill.core import escape
from babelmill.core.formats import DELIMITERS, MAX_FIELD
from babelmill.core.words import plural
from babelmill.tables.columns import Asked, NoColumn, check_names

SHOWN = {"\t": '"\\t"'}  # how to write a delimiter in the configuration
Record = tuple[int, list[str], str]  # the line in which it begins, its fields, and what is wrong with it, or ""


class Records:
    """Yields the records of a file after its heading.

    Blank lines are skipped. But in a table with a single column, a blank line is a record with an empty field.

    `delimiter`: the character between fields; None: a tab in .tsv, otherwise a comma. `quoting`: whether fields may
    stand between quotation marks: `csv`, `none`, or as in files of its `format`. `section`: the section of the
    configuration that says all this, or `--` for arguments, for advice. NoColumn says that the heading cannot be read.
    """

    def __init__(
        self, path: Path, suffix: str, lines: Iterable[str], delimiter: str | None, quoting: str, section: str
    ):
        self._path, self._suffix, self._section = path, suffix, section
        self._delimiter = delimiter or DELIMITERS[suffix]
        self.quoted = quoting == "csv" or (quoting == "format" and suffix == ".csv")
        self._rows = (_quoted if self.quoted else _unquoted)(lines, self._delimiter)
        self.heading: list[str] = []  # empty if the file is
        for number, row, problem in self._rows:
            if problem:
                raise NoColumn(f"line {number}: {problem}")
            if row:
                self.heading = row
                return

    def __iter__(self) -> Iterator[Record]:
        width = len(self.heading)
        for number, row, problem in self._rows:
            if not row and not problem:
                if width > 1:
                    continue
                row = [""]
            if len(row) != width and not problem:
                problem = f"{plural(len(row), 'field')}, but the heading has {width}"
                if not self.quoted and any('"' in field for field in row):
                    problem += f"; {self._unquoted_advice()}"
            yield number, row, problem

    def check(self, asked: Sequence[Asked]) -> None:
        """Raise NoColumn unless each column that is asked for occurs exactly once in the heading."""
        try:
            check_names(self.heading, asked)
        except NoColumn as problem:
            raise NoColumn(self._one_column() or f"{problem}{self._enclosed_names()}") from None

    def _one_column(self) -> str:
        """Return what is wrong if another character separates the names of the heading; "" otherwise."""
        found = next((mark for mark in "\t;,|" if mark in self.heading[0]), None) if len(self.heading) == 1 else None
        if found is None or found == self._delimiter:
            return ""
        advice = f"set {setting(self._section, 'delimiter', SHOWN.get(found, repr(found)))}"
        if self._suffix == ".tsv":
            other = "" if found == "," else f", and {advice}"
            advice = f"of a .tsv, tabs stand between the columns; name it .csv{other}"
        return f"the heading is one column, {escape.line(repr(self.heading[0]), 100)}: {advice}"

    def _enclosed_names(self) -> str:
        advised = not self.quoted and any(map(encloses, self.heading))
        return f"; {self._unquoted_advice()}" if advised else ""

    def _unquoted_advice(self) -> str:
        return f"if quotation marks enclose its fields, set {setting(self._section, 'quoting', 'csv')}"

    def about_enclosed(self, count: int) -> str:
        """Return a warning: `count` records have a field between quotation marks, which are read as text."""
        return (
            f"{escape.line(self._path)}: quotation marks enclose a field in {plural(count, 'row')}, and are read as a"
            " part of the text, as is usual in .tsv files; if they only enclose it, set"
            f" {setting(self._section, 'quoting', 'csv')}"
        )


def setting(section: str, key: str, value: str) -> str:
    """Return how to set a key: `corpus.quoting: csv` in the section `corpus`, or `--quoting csv` for `--`."""
    return f"--{key} {value}" if section == "--" else f"{section}.{key}: {value}"


def encloses(field: str) -> bool:
    """Return whether quotation marks enclose a field."""
    return len(field) > 1 and field[0] == field[-1] == '"'


def _unquoted(lines: Iterable[str], delimiter: str) -> Iterator[Record]:
    """Yield the lines as records."""
    for number, line in enumerate(lines, 1):
        text = line.removesuffix("\n").removesuffix("\r")
        yield number, text.split(delimiter) if text else [], ""


def _quoted(lines: Iterable[str], delimiter: str) -> Iterator[Record]:
    """Yield records as RFC 4180 defines them."""
    csv.field_size_limit(MAX_FIELD)
    reader = csv.reader(lines, strict=True, delimiter=delimiter)
    while True:
        start = reader.line_num + 1
        try:
            row = next(reader, None)
        except csv.Error as error:
            yield start, [], f"not CSV: {error}"
            continue
        if row is None:
            return
        yield start, row, ""
