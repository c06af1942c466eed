"""Turn the labels of a corpus into codes: split the cells at the separator, and write codes as their system does."""

import csv
import itertools
import logging
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from babelmill.config import schema
from babelmill.core import escape
from babelmill.core.files import UserError
from babelmill.labels.codes import NO_CODE, SYSTEMS, written
from babelmill.tables.text import read_text
from babelmill.tokens.label_text import NO_LABEL, stripped, without_fraction
from babelmill.tokens.shard_file import Labels

log = logging.getLogger(__name__)
# The first delimiter of a line, after a code that may stand between quotation marks.
DELIMITER = re.compile(r'\s*(?:"(?:[^"]|"")*"|[^",;\t]*)\s*([,;\t])')
# What a heading calls the columns of a list.
OF_CODES = re.compile(r"(\w*[_.])?(codes?|labels?|class|classes|id|hisco|occ|icd|isco)\d*", re.IGNORECASE)
OF_CODES_ALONE = re.compile(r"(\w*[_.])?(codes?|labels?|class|classes|id)|(hisco|occ|icd|isco)\d*", re.IGNORECASE)
OF_NAMES = re.compile(r"(\w*[_.])?(names?|labels?|desc|descriptions?|title|text|meaning)\d*", re.IGNORECASE)


def code_list(path: str | Path) -> dict[str, str]:
    """Read a file with one code per line, possibly with its name after a comma, semicolon or tab. Return {code: name}.

    A UserError says that a line is no code with its name, a code occurs twice, or the file contains no code.
    """
    found: dict[str, str] = {}
    for number, (code, *name) in _rows(path):
        if not found and _is_heading([code, *name]):
            raise UserError(
                f"{path}: line {number} ({escape.some(map(repr, (code, *name)))}) is a heading; a list of codes has"
                " none, and no row numbers: delete the line, or move it down if it is a code"
            )
        if len(name) > 1:
            raise UserError(
                f"{path}: line {number} has {len(name) + 1} fields; a line has a code, and perhaps its name. Put"
                " quotation marks around a name with a comma, and leave out row numbers (row.names = FALSE in R)"
            )
        if code in found:
            raise UserError(f"{path}: line {number}: the code {code!r} occurs twice")
        if code:
            found[code] = name[0] if name else ""
        elif any(name):
            raise UserError(f"{path}: line {number} has the name {escape.line(name[0], 60)!r} and no code")
    if not found:
        raise UserError(f"{path} contains no codes (labels.codes)")
    return found


def _rows(path: str | Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the fields of each line with their number, without what cannot be seen around them."""
    text = read_text(Path(path))
    # `splitlines` would cut names at U+2028 and form feeds.
    lines = [(i, line) for i, line in enumerate(text.split("\n"), 1) if stripped(line)]
    delimiters = {match[1]: i for i, line in reversed(lines) if (match := DELIMITER.match(line))}
    if "\t" in delimiters:
        yield from ((i, [stripped(field) for field in line.split("\t")]) for i, line in lines)
        return
    if len(delimiters) > 1:
        where = " and ".join(f"a {mark!r} in line {i}" for mark, i in sorted(delimiters.items()))
        raise UserError(f"{path}: codes end at {where}; put one kind of delimiter between all codes and their names")
    delimiter = next(iter(delimiters), ",")
    for i, line in lines:
        try:
            fields = next(csv.reader([stripped(line)], delimiter=delimiter, strict=True))
        except csv.Error:
            raise UserError(
                f"{path}: line {i}: a quotation mark begins a field and does not end it; double the marks inside, and"
                " put one at each end"
            ) from None
        yield i, [stripped(field) for field in fields]


def _is_heading(fields: list[str]) -> bool:
    """Return whether the first line of a list names its columns. R leaves the name of the row numbers empty."""
    if len(fields) == 1:
        return bool(OF_CODES_ALONE.fullmatch(fields[0]))
    orders = (fields[:2], fields[1::-1])
    return not fields[0] or any(OF_CODES.fullmatch(code) and OF_NAMES.fullmatch(name) for code, name in orders)


def listed(path: str, labels: schema.Labels) -> dict[str, str]:
    """Return {code: name} of the list of codes, each code as its system writes it.

    A UserError says that a code does not belong to the system, or that two of them are the same code.
    """
    names: dict[str, str] = {}
    spelt: dict[str, str] = {}
    for code, name in code_list(path).items():
        try:
            mine = written(code, labels)
        except ValueError as problem:
            raise UserError(f"{path}: {problem}; correct the list (labels.codes)") from None
        if mine in spelt:
            raise UserError(f"{path}: {spelt[mine]!r} and {code!r} are the same code, {mine!r}; keep one of them")
        names[mine], spelt[mine] = name, code
    return names


class CodeReader:
    """Turns the cells of the columns of labels into codes."""

    def __init__(self, labels: schema.Labels):
        self._labels, self._about = labels, SYSTEMS[labels.code]
        self._known = listed(labels.codes, labels) if labels.codes else dict[str, str]()
        self._names = frozenset(self._known.values())
        self._spelt: dict[str, tuple[str, str]] = {}  # {code: how the corpus writes it, and where first}
        self.bad = 0  # codes that were skipped (`labels.on_error: skip`)
        self.without = 0  # documents without a valid code
        self.first = ""  # the first problem

    def read(self, rows: Iterable[tuple[list[str | None], str]]) -> Labels:
        """Return the codes of the documents of a split: for each, the cells of its columns, and its origin.

        A UserError says that a code does not belong to the system or the list, that two spellings would be one code, or
        that a document lacks a code that it must have.
        """
        numbers = {name: i for i, name in enumerate(sorted(self._known))}
        self.bad = self.without = 0
        self.first = ""
        codes: list[int] = []
        ends = [0]
        for cells, origin in rows:
            codes += (numbers.setdefault(code, len(numbers)) for code in self.of_document(cells, origin)[0])
            ends.append(len(codes))
        return Labels(np.array(codes, np.int32), np.array(ends, np.int64), tuple(numbers))

    def of_document(self, cells: list[str | None], origin: str) -> tuple[list[str], list[list[str]]]:
        """Return the codes of a document, each once, and the codes in each of its columns. See `read`.

        A document with empty columns gets the code `NO_CODE`, and one with only bad codes gets none.
        """
        bad = self.bad
        columns = [list(dict.fromkeys(self._codes(cell, origin))) for cell in cells]
        codes = list(dict.fromkeys(itertools.chain.from_iterable(columns)))
        if not codes:
            self.without += 1
            if self.bad == bad and self._about.without:
                codes = [NO_CODE]
            elif self.bad == bad:
                self._refuse(f"{origin}: this row has no code, and {self._labels.code} has no code that means 'none'")
        return codes, columns

    def _codes(self, text: str | None, origin: str) -> list[str]:
        """Return the codes in a cell. Each part of it is read as a cell that holds nothing else."""
        parts = [] if text is None else text.split(self._labels.separator) if self._labels.separator else [text]
        found = []
        for part in map(stripped, parts):
            if part in NO_LABEL and part not in self._known:
                continue
            try:
                found.append(self._code(part, origin))
            except ValueError as problem:
                self._refuse(f"{origin}: {problem}")
                self.bad += 1
        return found

    def _code(self, part: str, origin: str) -> str:
        """Return the code that a part of a cell stands for.

        For `classes`, this is the text as it stands. The other systems read `61110.0` as `61110`, unless the list has
        the code `61110.0`.
        """
        text = without_fraction(part) if self._about.spelt and part not in self._known else part
        code = written(text, self._labels)
        if self._known and code not in self._known:
            hint = ", where it is a name: do row numbers stand before the codes?" if part in self._names else ""
            raise ValueError(f"{escape.line(repr(code), 100)} is not in {self._labels.codes} (labels.codes){hint}")
        before, where = self._spelt.setdefault(code, (text if self._about.zeros else part, origin))
        if not self._about.zeros and before != part:
            raise UserError(
                f"{origin}: {escape.line(repr(part), 100)} and {escape.line(repr(before), 100)} ({where}) would be one"
                f" code, {escape.line(repr(code), 100)}; write it in one way, or list both in labels.codes"
            )
        return code

    def warn_of_zeros(self) -> None:
        """Warn if two codes differ only in leading zeros, which a spreadsheet may have removed."""
        if self._about.zeros:
            return
        known: dict[str, str] = {}
        for code in self._spelt:
            other = known.setdefault(code.lstrip("0"), code)
            if other != code and code.isdecimal():
                log.warning(
                    "%s and %s are two codes, and may be one: a spreadsheet may have removed leading zeros (%s, %s)",
                    *(escape.line(repr(name), 60) for name in (other, code)),
                    *(escape.line(self._spelt[name][1]) for name in (other, code)),
                )
                return

    def _refuse(self, message: str) -> None:
        if self._labels.on_error == "stop":
            raise UserError(
                f"{message}; correct it, or set labels.on_error: skip to skip such codes, and rows without any code"
            )
        self.first = self.first or message
