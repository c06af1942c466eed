"""Make the page of an experiment: the comparison of its cells, and how they were trained."""

import math
from typing import Any

from markupsafe import Markup
from markupsafe import escape as html

from babelmill.core.escape import line
from babelmill.evaluation.metrics import SHARE
from babelmill.experiments.comparison import LEVEL
from babelmill.experiments.tables import Comparison, grid, with_half
from babelmill.reporting.figures import Strips
from babelmill.reporting.page import Cell, Section, Table, lacking, lines, rendered, trained
from babelmill.reporting.results import ModelResults
from babelmill.reporting.table import less_is_better, unit_text

NOTE = (
    "A dot is the mean of a cell{intervals}. The bar is what guessing gets, or on the validation text a unigram model."
    ' "babelmill report {name}" shows the scores of each model, also of phenomena.'
)
OF_SEEDS = ", a line its 95 % interval, and hollow dots are single seeds"


def experiment_page(asked: dict[str, Any], models: list[ModelResults], found: Comparison) -> str:
    """Return the page as one HTML file."""
    heads, rows = grid(found, lambda text: html(line(text)), Markup("<b>{}</b>"), Markup("{}<small>{}</small>"))
    whole = Table(lines(rows, *(Cell(title, (unit,)) for title, unit in heads[1:])), "cell", look="scores cells")
    strips = [of_score(found, number) for number in range(len(found.heads))]
    note = NOTE.format(name=found.name, intervals=OF_SEEDS if found.cells["half"].notna().any() else "")
    sections = [Section("Comparison", [whole], found.caption), Section("Scores", strips, note)]
    return rendered(asked, models, [*sections, lacking(models), *trained(models)])


def of_score(found: Comparison, number: int) -> Table:
    """Return the table of a score: the mean of each cell, with its seeds, and its difference from the reference."""
    cells = found.cells[found.cells["column"] == number]
    unit = cells["unit"].iloc[0]
    least, most = (0, 1) if unit == SHARE else (-math.inf, math.inf)
    low, high = (cells["mean"] - cells["half"]).clip(least), (cells["mean"] + cells["half"]).clip(upper=most)
    cells, rows = cells.assign(low=low.fillna(cells["mean"]), high=high.fillna(cells["mean"])), []
    drawn = Strips(
        [*cells["low"], *cells["high"], *cells["simple"], *(each for seeds in cells["seeds"] for each in seeds)]
    )
    for each in cells.itertuples():
        seeds = each.seeds if len(each.seeds) > 1 else ()
        strip = drawn.strip(each.mean, (each.low, each.high) if seeds else None, each.simple, seeds=seeds)
        difference = "reference" if each.is_reference else None
        if not math.isnan(each.difference):
            difference = with_half(each.difference, each.spread, unit, signed=True)
        p = None if math.isnan(each.p) else "< 0.001" if each.p < 0.001 else f"{each.p:.3f}"
        bold = Markup("<b>{}</b>").format(difference) if each.p < LEVEL else difference
        rows.append((each.row, with_half(each.mean, each.half, unit), Cell(strip), bold, p))
    axis = Cell(drawn.axis(1 if less_is_better(unit) else 100), (unit_text(unit),))
    caption = ", ".join(found.heads[number])
    return Table(lines(rows, "mean", axis, "difference", "p"), "cell", caption, "scores inline strips")
