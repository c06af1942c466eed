"""Lay out what `babelmill compare` prints: p values, shortened names, and tables that fit a page."""

import itertools
import re

from babelmill.core.escape import line
from babelmill.core.words import aligned

WIDTH = 100
NAME = 24  # characters of a name in a table
SURE = 0.05


def p_value(p: float) -> str:
    """Return a p value as text."""
    return f"{p:.3f}" if p >= 0.001 else f"{p:.1e}"


def cut(text: str, width: int) -> str:
    """Return a text on one line, shortened to `width` characters."""
    text = line(re.sub(r"\s+", " ", text))
    return text if len(text) <= width else text[: width - 1] + "…"


def told_apart(names: list[str]) -> list[str]:
    """Return two names, shortened to `NAME` characters if need be. They then begin where they differ."""
    names = [cut(name, 10_000) for name in names]
    if max(map(len, names)) <= NAME:
        return names
    equal = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(*names, strict=False)))
    part = max(names[0].rfind(mark, 0, equal) for mark in "_/,") + 1  # the beginning of the first part that differs
    for start in (part, equal):
        short = [cut(name if start < 2 else f"…{name[start:]}", NAME) for name in names]
        if short[0] != short[1]:
            break
    return short


def table(rows: list[list[str]], numbers: int = 1) -> list[str]:
    """Return rows as lines of at most `WIDTH` characters; the columns from `numbers` on are right-aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    widest = max(range(len(widths)), key=lambda i: widths[i] if i < numbers else 0)
    widths[widest] -= max(0, sum(widths) + 2 * len(widths) - WIDTH)
    cells = [[*map(cut, row[:numbers], widths), *row[numbers:]] for row in rows]
    return [f"  {row}" for row in aligned(cells, (i >= numbers for i in range(len(widths))))]
