"""Codes of labelled text: how those of a system are written, and the symbols that they are spelt in.

A model of labels predicts codes as classes, and spells them: each code is a block of `block_size` symbols, the blocks
of a text's codes follow one another, and empty blocks come last. The systems are those of OccCANINE (Dahl, Johansen and
Vedel, 2024, arXiv:2402.13604), with its ids:

* `classes`: any text, not spelt.
* `general`: a symbol for each character, or for what stands between separators (`A1.203` is A1 and 203, with `.`);
  shorter codes are filled up with the symbol for an end.
* `hisco`: five of the symbols 0 to 9; -1, -2 and -3 are a symbol each, five times.
* `occ1950`: three digits.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

UNKNOWN, PAD, BEGIN, END, SEPARATOR = range(5)  # the ids before those of symbols
FIRST = 5
NO_CODE = "?"  # what a text without any code has, in a system that has no code for that
DIGITS = tuple("0123456789")
NEGATIVE = ("-3", "-2", "-1")


class System(NamedTuple):
    """How the codes of a system are written.

    Attributes:
        symbols: that codes are spelt in; empty: those that occur in them.
        block_size: symbols of a code; None: a setting.
        whole: codes that are one symbol, which fills the block.
        zeros: codes that are too short have lost leading zeros.
        spelt: codes are predicted symbol by symbol, too.
        without: a text may have no code, which is the code `?` then.
    """

    symbols: tuple[str, ...] = ()
    block_size: int | None = None
    whole: tuple[str, ...] = ()
    zeros: bool = False
    spelt: bool = True
    without: bool = False


SYSTEMS = {
    "classes": System(spelt=False, without=True),
    "general": System(without=True),
    "hisco": System((*NEGATIVE, *DIGITS), 5, NEGATIVE, zeros=True),
    "occ1950": System(DIGITS, 3, zeros=True),
}


def symbols_of(code: str, separator: str | None) -> list[str]:
    """Return the symbols of a code: its characters, or what stands between separators."""
    return code.split(separator) if separator else list(code)


def written(text: str, system: str, block_size: int, separator: str | None = None) -> str:
    """Return a code as its system writes it: `1234` is `01234` in HISCO. ValueError: it is none, and why."""
    about = SYSTEMS[system]
    if not about.spelt or text in about.whole or (text == NO_CODE and about.without):
        return text
    size = about.block_size or block_size
    if about.symbols and (outside := set(text) - set(about.symbols)):
        raise ValueError(f"{text!r} is no code of {system}: it holds {', '.join(sorted(outside))}")
    symbols = symbols_of(text, separator)
    if "" in symbols:
        raise ValueError(f"{text!r} lacks a symbol before or after {separator!r} (labels.symbol_separator)")
    if len(symbols) > size:
        raise ValueError(f"{text!r} is longer than {size} symbols (labels.block_size)")
    return text.zfill(size) if about.zeros else text


class Codes:
    """The codes that a model knows, and how each is spelt.

    Args:
        names: the codes, all different, as `written`.
        system: theirs, a key of `SYSTEMS`.
        block_size: symbols of a block, of a system that has none of its own.
        separator: what stands between the symbols of a code, if anything does.

    Attributes:
        names: in order: code i is class i.
        index: {code: class}.
        symbols: symbol i has the id `FIRST` + i.
        blocks: [codes, block_size] int64, ids of the symbols of each; of a system that is not spelt, [codes, 0].
    """

    def __init__(self, names: Sequence[str], system: str, block_size: int, separator: str | None = None):
        self.names, self.system, about = tuple(names), system, SYSTEMS[system]
        self.index = {name: i for i, name in enumerate(self.names)}
        self.symbols: tuple[str, ...] = about.symbols
        if about.spelt and not about.symbols:
            self.symbols = tuple(sorted({symbol for name in self.names for symbol in symbols_of(name, separator)}))
        self.block_size = (about.block_size or block_size) if about.spelt else 0
        ids = {symbol: FIRST + i for i, symbol in enumerate(self.symbols)}
        self.blocks = np.full((len(self.names), self.block_size), END, np.int64)
        for row, name in zip(self.blocks, self.names, strict=True) if about.spelt else ():
            if name in about.whole:
                row[:] = ids[name]
            else:
                mine = symbols_of(name, separator)
                row[: len(mine)] = [ids[symbol] for symbol in mine]

    @property
    def entries(self) -> int:
        """Number of ids: of special ones and symbols."""
        return FIRST + len(self.symbols)
