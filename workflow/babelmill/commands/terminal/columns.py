"""Format the tables that commands print: rows as lines with aligned columns."""

from collections.abc import Iterable, Sequence

from tabulate import tabulate


def aligned(rows: Sequence[Sequence[str]], right: Iterable[bool]) -> list[str]:
    """Return one line per row; `right` says for each column whether its cells are right-aligned."""
    sides = ["right" if each else "left" for each in right]
    return [x.rstrip() for x in tabulate(rows, tablefmt="plain", disable_numparse=True, colalign=sides).splitlines()]
