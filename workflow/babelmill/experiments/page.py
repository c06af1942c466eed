"""Make the page of an experiment: a report of its models that begins with the comparison of its cells."""

import math
from typing import Any

from markupsafe import Markup

from babelmill.evaluation.metrics import SHARE
from babelmill.evaluation.statistics import over_seeds
from babelmill.experiments.comparison import Column
from babelmill.experiments.tables import Comparison, with_half
from babelmill.reporting.figures import Strips
from babelmill.reporting.page import Cell, Section, Table, lines, page
from babelmill.reporting.results import ModelResults
from babelmill.reporting.table import less_is_better


def experiment_page(asked: dict[str, Any], models: list[ModelResults], found: Comparison) -> str:
    """Return the page as one HTML file."""
    note = found.caption + (" Hollow dots are single seeds." if found.seeds > 1 else "")
    return page(asked, models, [Section("Comparison", [of_score(found, column) for column in found.columns], note)])


def of_score(found: Comparison, column: Column) -> Table:
    """Return the table of a score: the mean of each cell, with its seeds, and its difference from the reference."""
    seeds = {line: [*found.scores[line][column].values()] for line in found.names if column in found.scores[line]}
    means = {line: over_seeds(values) for line, values in seeds.items()}
    least, most = (0, 1) if column.unit == SHARE else (-math.inf, math.inf)
    ends = {
        line: (max(least, mean - (half or 0)), min(most, mean + (half or 0))) for line, (mean, half) in means.items()
    }
    drawn, rows = Strips([value for line in seeds for value in (*seeds[line], *ends[line])]), []
    for line, (value, half) in means.items():
        mean = bold(with_half(value, half, column.unit), (line, column) in found.best)
        strip = Cell(drawn.strip(value, ends[line] if half is not None else None, seeds=seeds[line]))
        notes = ("reference",) if found.labels[line.cell] == found.reference else ()
        difference, p = None, None
        if effect := found.effects.get((line, column)):
            text = with_half(effect.difference, effect.half, column.unit, signed=True)
            difference = bold(text, effect.significant)
            p = None if effect.p is None else "< 0.001" if effect.p < 0.001 else f"{effect.p:.3f}"
        rows.append((Cell(found.names[line], notes), mean, strip, difference, p))
    axis = Cell(drawn.axis(1 if less_is_better(column.unit) else 100), found.columns[column][1:])
    title = ", ".join(found.columns[column])
    return Table(lines(rows, "mean", axis, "difference", "p"), "cell", title, "scores inline strips")


def bold(text: str, wanted: bool) -> Cell:
    """Return a text, bold if it is wanted."""
    return Cell(Markup("<b>{}</b>").format(text) if wanted else text)
