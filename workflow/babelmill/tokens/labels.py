"""Turn the labels of a corpus into codes: split the cells at the separator, and write codes as their system does."""

import csv
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from babelmill.config import schema
from babelmill.core.files import UserError, read_text
from babelmill.tokens.codes import NO_CODE, SYSTEMS, written
from babelmill.tokens.shard_file import Labels


def code_list(path: str | Path) -> dict[str, str]:
    """Read a file with one code per line, possibly with its name after a comma, semicolon or tab. Return {code: name}.

    Raises:
        UserError: a code occurs twice, or the file contains no code.
    """
    lines = read_text(path).removeprefix("\ufeff").splitlines()
    delimiter = "\t" if any("\t" in line for line in lines) else ","
    if all(";" in line for line in lines if line.strip()):
        delimiter = ";"
    found: dict[str, str] = {}
    for number, row in enumerate(csv.reader(lines, delimiter=delimiter), 1):
        code = row[0].strip() if row else ""
        if code in found:
            raise UserError(f"{path}: line {number}: the code {code!r} occurs twice")
        if code:
            found[code] = row[1].strip() if len(row) > 1 else ""
    if not found:
        raise UserError(f"{path} contains no codes (labels.codes)")
    return found


def as_written(code: str, labels: schema.Labels) -> str:
    """Return a code as its system writes it; see `written`."""
    return written(code, labels.code, labels.block_size, labels.symbol_separator)


class CodeReader:
    """Turns the cells of the columns of labels into codes.

    Args:
        labels: the section `labels`.

    Attributes:
        bad: number of codes that were skipped (`labels.on_error: skip`).
        without: number of documents without a code, or without a valid one.
        first: the first problem; "" if there is none.
    """

    def __init__(self, labels: schema.Labels):
        self._labels, self._about = labels, SYSTEMS[labels.code]
        try:
            self._known = {as_written(code, labels) for code in code_list(labels.codes)} if labels.codes else None
        except ValueError as problem:
            raise UserError(f"{labels.codes}: {problem}; correct the list (labels.codes)") from None
        self._numbers = {name: i for i, name in enumerate(sorted(self._known or ()))}
        self.bad = self.without = 0
        self.first = ""

    def read(self, rows: Iterable[tuple[list[str | None], str]]) -> Labels:
        """Return the codes of documents.

        Args:
            rows: for each document, the cells of its columns (None for an empty cell), and its origin.

        Raises:
            UserError: a code does not belong to the system or the list, or a document lacks a code that it must have.
        """
        codes: list[int] = []
        ends = [0]
        for columns, origin in rows:
            bad = self.bad
            mine = dict.fromkeys(code for text in columns for code in self._codes(text, origin))
            if not mine:
                self.without += 1
                mine = self._none(origin) if self.bad == bad else {}  # a document with only bad codes gets no code
            codes += (self._numbers.setdefault(code, len(self._numbers)) for code in mine)
            ends.append(len(codes))
        return Labels(np.array(codes, np.int32), np.array(ends, np.int64), tuple(self._numbers))

    def _codes(self, text: str | None, origin: str) -> list[str]:
        """Return the codes in a cell."""
        parts = [] if text is None else text.split(self._labels.separator) if self._labels.separator else [text]
        found = []
        for part in filter(None, map(str.strip, parts)):
            try:
                code = as_written(part, self._labels)
                if self._known and code not in self._known:
                    raise ValueError(f"{code!r} is not in {self._labels.codes} (labels.codes)")
                found.append(code)
            except ValueError as problem:
                self._refuse(f"{origin}: {problem}")
                self.bad += 1
        return found

    def _none(self, origin: str) -> dict[str, None]:
        """Return the code of a document whose columns are empty."""
        if self._about.without:
            return {NO_CODE: None}
        self._refuse(f"{origin}: this row has no code, and {self._labels.code} has no code that means 'none'")
        return {}

    def _refuse(self, message: str) -> None:
        if self._labels.on_error == "stop":
            raise UserError(
                f"{message}; correct it, or set labels.on_error: skip to skip such codes, and rows without any code"
            )
        self.first = self.first or message
