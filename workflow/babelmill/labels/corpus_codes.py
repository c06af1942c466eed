"""Turn the labels of a corpus into codes: split the cells at the separator, and write codes as their system does."""

import itertools
import logging
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from babelmill.config import schema
from babelmill.core import escape
from babelmill.core.files import UserError
from babelmill.labels.codes import NO_CODE, SYSTEMS, written
from babelmill.tables.rows import Asked, text_rows
from babelmill.tokens.label_text import NO_LABEL, stripped, without_fraction
from babelmill.tokens.shard_file import Labels

log = logging.getLogger(__name__)
COLUMNS = "labels.codes to a table with the columns code and, perhaps, name"


def listed(path: str, labels: schema.Labels) -> dict[str, str]:
    """Read a table with the columns `code` and perhaps `name`. Return {code: name}, each code as its system writes it.

    A UserError says that a row has no code or one that does not belong to the system, or that two codes are the same.
    """
    names: dict[str, str] = {}
    spelt: dict[str, str] = {}
    asked = [Asked("code", COLUMNS, "value"), Asked("name", COLUMNS, "value", optional=True)]
    for row in text_rows([Path(path)], asked):
        code, name = (stripped(cell) for cell in row.cells.values())
        if not code:
            raise UserError(f"{row.where}: has no code; delete the row")
        try:
            mine = written(code, labels)
        except ValueError as problem:
            raise UserError(f"{row.where}: {problem}; correct the list (labels.codes)") from None
        if mine in spelt:
            raise UserError(f"{row.where}: {spelt[mine]!r} and {code!r} are the same code, {mine!r}; keep one of them")
        names[mine], spelt[mine] = name, code
    if not names:
        raise UserError(f"{path}: labels.codes: at least one code is expected")
    return names


class CodeReader:
    """Turns the cells of the columns of labels into codes."""

    def __init__(self, labels: schema.Labels):
        self._labels, self._about = labels, SYSTEMS[labels.code]
        self._known = listed(labels.codes, labels) if labels.codes else dict[str, str]()
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
            codes += (numbers.setdefault(code, len(numbers)) for code in self.of_document(cells, origin))
            ends.append(len(codes))
        return Labels(np.array(codes, np.int32), np.array(ends, np.int64), tuple(numbers))

    def of_document(self, cells: list[str | None], origin: str) -> list[str]:
        """Return the codes of a document, each once. See `read`.

        A document with empty columns gets the code `NO_CODE`, and one with only bad codes gets none.
        """
        bad = self.bad
        codes = list(dict.fromkeys(itertools.chain.from_iterable(self._codes(cell, origin) for cell in cells)))
        if not codes:
            self.without += 1
            if self.bad == bad and self._about.without:
                codes = [NO_CODE]
            elif self.bad == bad:
                self._refuse(f"{origin}: this row has no code, and {self._labels.code} has no code that means 'none'")
        return codes

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
            raise ValueError(f"{escape.line(repr(code), 100)} is not in {self._labels.codes} (labels.codes)")
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
