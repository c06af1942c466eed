"""Write the page of an experiment: a report of its models that begins with the comparison of its cells.

For each score there is a strip per cell with one dot per seed, and a strip with the interval of its difference from the
reference.
"""

import math
from typing import Any

from markupsafe import Markup

from babelmill.experiments.asked import TEMPLATE
from babelmill.experiments.comparison import Column, Effect, mean_of
from babelmill.experiments.tables import Table, caption, with_interval
from babelmill.reporting import figures
from babelmill.reporting.page import environment, page
from babelmill.reporting.results import ReportedModel

UNLIMITED = (-math.inf, math.inf)

MARGIN = 0.06  # of the range of the scores, on both sides of a strip


def experiment_page(asked: dict[str, Any], models: list[ReportedModel], table: Table) -> str:
    """Return the page as one HTML file."""
    template = environment().from_string(TEMPLATE.read_text(encoding="utf-8"))
    scores = [of_score(table, column) for column in table.columns]
    begin = template.render(table=table, caption=caption(table), scores=scores)
    return page(asked, models, Markup(begin))


def scale_of(values: list[float]) -> figures.Scale:
    """Return a scale in percent of a strip's width on which all values have room."""
    low, high = min(values), max(values)
    margin = MARGIN * (high - low) or abs(high) * MARGIN or 1.0
    return figures.Scale(low - margin, high + margin, 0, 100)


def of_score(table: Table, column: Column) -> dict[str, Any]:
    """Return what the template shows of a score: its title, and the lines of both tables, each with its strip."""
    percent = column.more_is_better
    lines = [line for line in table.lines if column in table.scores[line]]
    means = {line: mean_of([*table.scores[line][column].values()]) for line in lines}
    ends = [value for line in lines for value in table.scores[line][column].values()]
    limits = (0.0, 1.0) if percent else UNLIMITED
    ends += [end for mean in means.values() for end in ends_of(mean.value, mean.half or 0, limits)]
    scale = scale_of(ends)
    cells = [
        {
            "cell": table.labels[line.cell],
            "of": ", ".join(table.row_names(line)[:-1]),
            "strip": dots(scale, [*table.scores[line][column].values()], means[line].value, means[line].half, limits),
            "text": with_interval(means[line].value, means[line].half, column),
            "best": (line, column) in table.best,
        }
        for line in lines
    ]
    effects = {line: effect for line in lines if (effect := table.effects.get((line, column)))}
    around_zero = (-1.0, 1.0) if percent else limits
    ends = [end for effect in effects.values() for end in ends_of(effect.difference, effect.half or 0, around_zero)]
    of_effects = scale_of([0.0, *ends])
    return {
        "title": table.columns[column],
        "more_is_better": percent,
        "unit": "percent" if percent else column.unit,
        "axis": figures.axis(scale, percent),
        "cells": cells,
        "effects_axis": figures.axis(of_effects, percent),
        "effects": [
            {
                "cell": table.labels[line.cell],
                "of": ", ".join(table.row_names(line)[:-1]),
                "strip": dots(of_effects, [], effect.difference, effect.half, around_zero, beside=0.0),
                "text": with_interval(effect.difference, effect.half, column, signed=True),
                "p": p_text(effect),
                "significant": effect.significant,
            }
            for line, effect in effects.items()
        ],
    }


def p_text(effect: Effect) -> str:
    """Return the p value of an effect as text."""
    if effect.p is None:
        return "–"
    return "< 0.001" if effect.p < 0.001 else f"= {effect.p:.3f}"


def ends_of(mean: float, half: float, limits: tuple[float, float]) -> tuple[float, float]:
    """Return the ends of an interval, which are not beyond the limits of the score."""
    return max(limits[0], mean - half), min(limits[1], mean + half)


def dots(
    scale: figures.Scale,
    values: list[float],
    mean: float,
    half: float | None,
    limits: tuple[float, float] = UNLIMITED,
    beside: float | None = None,
) -> Markup:
    """Draw a strip: a hollow dot per seed, a full one for the mean, and its interval (`half` on each side).

    `scale` maps a score to percent of the strip's width. `limits`: the lowest and the highest possible score, beyond
    which no interval is drawn. `beside`: where to draw a line, as at 0.
    """
    low, high = (None, None) if half is None else ends_of(mean, half, limits)
    seeds = "".join(f'<circle class="seed" cx="{scale(value)}%" cy="9" r="3"/>' for value in values)
    drawn = figures.strip(scale, mean, low, high, beside=beside)
    return drawn.replace("</svg>", Markup(f"{seeds}</svg>"))
