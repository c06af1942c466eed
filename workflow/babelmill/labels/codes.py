"""Define how each system writes its codes, and which symbols spell them.

A label model predicts codes in two ways: as classes, and spelt, which means symbol by symbol. A spelt code is a
block of `block_size` symbols. The blocks of a text's codes follow one another, and empty blocks come last. The systems
are those of OccCANINE (Dahl, Johansen and Vedel, 2024, arXiv:2402.13604), with its ids:

* `classes`: a code is any text, and is not spelt.
* `general`: one symbol per character, or per part between separators (with `.`, `A1.203` is A1 and 203). End symbols
  fill the block of a shorter code.
* `hisco`: five of the symbols 0 to 9; the codes -1, -2 and -3 are one symbol each, repeated five times.
* `occ1950`: three digits.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from babelmill.config import schema
from babelmill.core import escape

UNKNOWN, PAD, BEGIN, END, SEPARATOR = range(5)  # the ids of symbols come after these
FIRST = 5
CODES_OF_SOURCE = "codes.json"  # beside the weights of a source with heads; see `occcanine.py`
NO_CODE = "?"  # the code of a text without one, in a system that has no code for that
DIGITS = tuple("0123456789")
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


def symbols_of(code: str, separator: str | None) -> list[str]:
    """Return the symbols of a code: its characters, or its parts between separators."""
    return code.split(separator) if separator else list(code)


def written(text: str, labels: schema.Labels) -> str:
    """Return a code as its system writes it: `1234` is `01234` in HISCO. Raise a ValueError if it is not a code."""
    about = SYSTEMS[labels.code]
    if not about.spelt or text in about.whole or (text == NO_CODE and about.without):
        return text
    size, shown = about.block_size or labels.block_size, escape.line(repr(text), 100)
    if about.symbols and (outside := set(text) - set(about.symbols)):
        raise ValueError(f"{shown} is not a code of {labels.code}: it contains {escape.some(sorted(outside))}")
    symbols = symbols_of(text, labels.symbol_separator)
    if "" in symbols:
        raise ValueError(f"{shown} has no symbol before or after {labels.symbol_separator!r} (labels.symbol_separator)")
    if len(symbols) > size:
        raise ValueError(f"{shown} is longer than {size} symbols (labels.block_size)")
    return text.zfill(size) if about.zeros else text


class Codes:
    """Holds the codes that a model knows, and how each is spelt.

    The names are those that the function `written` returns; the separator stands between the symbols of a code. The
    block size is the number of symbols per block, if the system does not set it.
    """

    def __init__(self, names: Sequence[str], system: str, block_size: int, separator: str | None = None):
        # names: the codes in order; code i is class i
        self.names, self.system, about = tuple(names), system, SYSTEMS[system]
        self.index = {name: i for i, name in enumerate(self.names)}  # {code: class}
        self.symbols: tuple[str, ...] = about.symbols  # symbol i has the id `FIRST` + i
        if about.spelt and not about.symbols:
            self.symbols = tuple(sorted({symbol for name in self.names for symbol in symbols_of(name, separator)}))
        self.block_size = (about.block_size or block_size) if about.spelt else 0
        ids = {symbol: FIRST + i for i, symbol in enumerate(self.symbols)}
        # [codes, block_size] int64, ids of each code's symbols; [codes, 0] if the system is not spelt
        self.blocks = np.full((len(self.names), self.block_size), END, np.int64)
        for row, name in zip(self.blocks, self.names, strict=True) if about.spelt else ():
            if name in about.whole:
                row[:] = ids[name]
            else:
                mine = symbols_of(name, separator)
                row[: len(mine)] = [ids[symbol] for symbol in mine]

    @property
    def entries(self) -> int:
        """Return the number of ids: special ones and symbols."""
        return FIRST + len(self.symbols)
