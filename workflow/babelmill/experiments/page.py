"""Make the page of an experiment: a report of its models that begins with the comparison of its cells."""

from collections.abc import Iterator
from typing import Any

from markupsafe import Markup

from babelmill.experiments.comparison import Column, Effect, mean_of
from babelmill.experiments.tables import Comparison, with_half
from babelmill.reporting.figures import Strips
from babelmill.reporting.page import Html, Section, html, lines, page, table
from babelmill.reporting.results import ModelResults
from babelmill.reporting.table import less_is_better


def experiment_page(asked: dict[str, Any], models: list[ModelResults], found: Comparison) -> str:
    """Return the page as one HTML file."""
    note = found.caption + (" Hollow dots are single seeds." if found.seeds > 1 else "")
    blocks = [block for column in found.columns for block in of_score(found, column)]
    return page(asked, models, [Section("Comparison", note, blocks)])


def of_score(found: Comparison, column: Column) -> Iterator[Markup]:
    """Yield the table of a score: the mean of each cell, with its seeds, and its difference from the reference."""
    seeds = {line: [*found.scores[line][column].values()] for line in found.names if column in found.scores[line]}
    means = {line: mean_of(values) for line, values in seeds.items()}
    ends = {line: (value - (half or 0), value + (half or 0)) for line, (value, half) in means.items()}
    drawn = Strips([value for line in seeds for value in (*seeds[line], *ends[line])])
    rows = []
    for line, (value, half) in means.items():
        mean = bold(with_half(value, half, column.unit), (line, column) in found.best)
        strip = drawn.strip(value, ends[line] if half is not None else (None, None), seeds=seeds[line])
        reference = "reference" if found.labels[line.cell] == found.reference else ""
        rows.append(
            (html(found.names[line], reference), mean, Html(strip), *against(found.effects.get((line, column)), column))
        )
    heads = "mean", Html(drawn.axis(1 if less_is_better(column.unit) else 100)), "difference", "p"
    yield from table(lines(rows, *heads), "cell", ", ".join(found.columns[column]), "scores inline strips")


def against(effect: Effect | None, column: Column) -> tuple[Html | None, str | None]:
    """Return the difference from the reference, and its p value, as texts."""
    if effect is None:
        return None, None
    text = bold(with_half(effect.difference, effect.half, column.unit, signed=True), effect.significant)
    return text, None if effect.p is None else "< 0.001" if effect.p < 0.001 else f"{effect.p:.3f}"


def bold(text: str, wanted: bool) -> Html:
    """Return a text, bold if it is wanted."""
    return Html(Markup("<b>{}</b>").format(text)) if wanted else html(text)
