"""Define how each system writes its codes, which symbols spell them, and how cells of a corpus become codes.

A label model predicts codes in two ways: as classes, and spelt, which means symbol by symbol. A spelt code is a
block of `block_size` symbols. The blocks of a text's codes follow one another, and empty blocks come last. The systems
are those of OccCANINE (Dahl, Johansen and Vedel, 2024, arXiv:2402.13604), with its ids:

* `classes`: a code is any text, and is not spelt.
* `general`: one symbol per character. End symbols fill the block of a shorter code.
* `hisco`: five of the symbols 0 to 9; the codes -1, -2 and -3 are one symbol each, repeated five times.
* `occ1950`: three digits.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from babelmill.config import schema
from babelmill.core import escape
from babelmill.core.files import UserError
from babelmill.tokens.label_text import NO_LABEL, stripped, without_fraction
from babelmill.tokens.shard_file import Labels

UNKNOWN, PAD, BEGIN, END, SEPARATOR = range(5)  # the ids of symbols come after these
FIRST = 5
CODES_OF_SOURCE = "codes.json"  # beside the weights of a source with heads; see `occcanine.py`
NO_CODE = "?"  # the code of a text without one, in a system that has no code for that
DIGITS = tuple("0123456789")
COLUMNS = "labels.codes to a table with the columns code and, perhaps, name"
NEGATIVE = ("-3", "-2", "-1")


class System(NamedTuple):
    """Says how a system writes its codes."""

    symbols: tuple[str, ...] = ()  # the symbols that spell codes; if empty, all symbols that occur in the codes
    block_size: int | None = None  # number of symbols per code; None if the setting `labels.block_size` says it
    whole: tuple[str, ...] = ()  # codes that are a single symbol, which is repeated until the block is full
    zeros: bool = False  # whether a code that is too short has lost leading zeros, which are then added again
    spelt: bool = True  # whether the model also predicts codes symbol by symbol
    without: bool = False  # whether a text may have no code; it then gets the code `?`


SYSTEMS = {
    "classes": System(spelt=False, without=True),
    "general": System(without=True),
    "hisco": System((*NEGATIVE, *DIGITS), 5, NEGATIVE, zeros=True),
    "occ1950": System(DIGITS, 3, zeros=True),
}


def written(text: str, labels: schema.Labels) -> str:
    """Return a code as its system writes it: `1234` is `01234` in HISCO. Raise a ValueError if it is not a code."""
    about = SYSTEMS[labels.code]
    if not about.spelt or text in about.whole or (text == NO_CODE and about.without):
        return text
    size, shown = about.block_size or labels.block_size, escape.line(repr(text), 100)
    if about.symbols and (outside := set(text) - set(about.symbols)):
        raise ValueError(f"{shown} is not a code of {labels.code}: it contains {escape.some(sorted(outside))}")
    if len(text) > size:
        raise ValueError(f"{shown} is longer than {size} symbols (labels.block_size)")
    return text.zfill(size) if about.zeros else text


class Codes:
    """Holds the codes that a model knows, and how each is spelt.

    The names are those that the function `written` returns. The block size is the number of symbols per block, if the
    system does not set it.
    """

    def __init__(self, names: Sequence[str], system: str, block_size: int):
        # names: the codes in order; code i is class i
        self.names, self.system, about = tuple(names), system, SYSTEMS[system]
        self.index = {name: i for i, name in enumerate(self.names)}  # {code: class}
        self.symbols: tuple[str, ...] = about.symbols  # symbol i has the id `FIRST` + i
        if about.spelt and not about.symbols:
            self.symbols = tuple(sorted({*"".join(self.names)}))
        self.block_size = (about.block_size or block_size) if about.spelt else 0
        ids = {symbol: FIRST + i for i, symbol in enumerate(self.symbols)}
        # [codes, block_size] int64, ids of each code's symbols; [codes, 0] if the system is not spelt
        self.blocks = np.full((len(self.names), self.block_size), END, np.int64)
        for row, name in zip(self.blocks, self.names, strict=True) if about.spelt else ():
            if name in about.whole:
                row[:] = ids[name]
            else:
                row[: len(name)] = [ids[symbol] for symbol in name]

    @property
    def entries(self) -> int:
        """Return the number of ids: special ones and symbols."""
        return FIRST + len(self.symbols)


# From the cells of a corpus.


def listed(path: str, labels: schema.Labels) -> dict[str, str]:
    """Read a table with the columns `code` and perhaps `name`. Return {code: name}, each code as its system writes it.

    A UserError says that a row has no code or one that does not belong to the system, or that two codes are the same.
    """
    from babelmill.tables.rows import Asked, text_rows  # imports pyarrow, which a training does without

    names: dict[str, str] = {}
    asked = [Asked("code", COLUMNS, "value"), Asked("name", COLUMNS, "value", optional=True)]
    for row in text_rows([Path(path)], asked):
        code, name = (stripped(cell) for cell in row.cells.values())
        if not code:
            raise UserError(f"{row.where}: has no code; delete the row")
        try:
            mine = written(code, labels)
        except ValueError as problem:
            raise UserError(f"{row.where}: {problem}; correct the list (labels.codes)") from None
        if mine in names:
            raise UserError(f"{row.where}: the code {mine!r} is there already; keep one of them")
        names[mine] = name
    if not names:
        raise UserError(f"{path}: labels.codes: at least one code is expected")
    return names


class CodeReader:
    """Turns the cells of the columns of labels into codes."""

    def __init__(self, labels: schema.Labels):
        self._labels, self._about = labels, SYSTEMS[labels.code]
        self._known = listed(labels.codes, labels) if labels.codes else dict[str, str]()
        self._spelt: dict[str, str] = {}  # {code: how the corpus writes it}

    def read(self, rows: Iterable[tuple[list[str | None], str]]) -> Labels:
        """Return the codes of the documents of a split: for each, the cells of its columns, and its origin.

        A UserError says that a code does not belong to the system or the list, that two spellings would be one code, or
        that a document lacks a code that it must have.
        """
        numbers = {name: i for i, name in enumerate(sorted(self._known))}
        codes: list[int] = []
        ends = [0]
        for cells, origin in rows:
            codes += (numbers.setdefault(code, len(numbers)) for code in self.of_document(cells, origin))
            ends.append(len(codes))
        return Labels(np.array(codes, np.int32), np.array(ends, np.int64), tuple(numbers))

    def of_document(self, cells: list[str | None], origin: str) -> list[str]:
        """Return the codes of a document, each once. A document with empty columns gets the code `NO_CODE`.

        Each part of a cell (`labels.separator`) is read as a cell that holds nothing else. See `read`.
        """
        separator, found = self._labels.separator, dict[str, None]()
        for cell in filter(None, cells):
            for part in map(stripped, cell.split(separator) if separator else [cell]):
                if part in self._known or part not in NO_LABEL:
                    found[self._code(part, origin)] = None
        if not found and not self._about.without:
            system = self._labels.code
            raise UserError(f"{origin}: has no code, and {system} has no code that means 'none'; delete such rows")
        return [*found] or [NO_CODE]

    def _code(self, part: str, origin: str) -> str:
        """Return the code that a part of a cell stands for.

        For `classes`, this is the text as it stands. The other systems read `61110.0` as `61110`, unless the list has
        the code `61110.0`.
        """
        text = without_fraction(part) if self._about.spelt and part not in self._known else part
        try:
            code = written(text, self._labels)
        except ValueError as problem:
            raise UserError(f"{origin}: {problem}; correct it, or delete the row") from None
        if self._known and code not in self._known:
            where = f"is not in {self._labels.codes} (labels.codes); correct it, or delete the row"
            raise UserError(f"{origin}: {escape.line(repr(code), 100)} {where}")
        if not self._about.zeros and (before := self._spelt.setdefault(code, part)) != part:
            both = f"{escape.line(repr(part), 100)} and {escape.line(repr(before), 100)} would be one code"
            raise UserError(f"{origin}: {both}; write it in one way, or list both in labels.codes")
        return code
