"""Draw how a score grew during training, from the snapshots of the run (`run.snapshots`), over words read."""

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

from markupsafe import Markup, escape

from babelmill.reporting.figures import HEIGHT, LEFT, RIGHT, TOP, WIDTH, Scale, ticks
from babelmill.reporting.results import Model
from babelmill.reporting.table import ALL, Row, of_suite

CHANCE = 0.5  # the share of pairs that a coin gets right
MOST = 8  # numbers on an axis at most


class Moment(NamedTuple):
    """A score at a moment of the training.

    Attributes:
        words: how many million words the model had read.
        row: the score.
        last: whether this is the finished model.
    """

    words: float
    row: Row
    last: bool


def moments(model: Model, code: str, suite: str) -> list[Moment]:
    """Return the scores of a model's snapshots on a suite, the earliest first; the finished model comes last."""
    scores = model.scores.get(suite, {})
    kept = [each for each in scores.get("snapshots", []) if code in each["languages"]]
    if not kept:
        return []
    # The true number of words, which snapshots of earlier releases do not have: the run may end shortly before a point.
    read = [each["words"] / 1e6 if "words" in each else each["million_words"] for each in kept]
    found = [(words, scores | each) for words, each in zip(read, kept, strict=True)]
    if tokens := model.manifests.get("train", {}).get("figures", {}).get("tokens"):
        found.append((read[-1] * tokens / kept[-1]["tokens"], scores))
    rows = [(words, head(model.name, code, suite, each)) for words, each in found]
    return [Moment(words, row, i == len(kept)) for i, (words, row) in enumerate(rows) if row]


def head(model: str, code: str, suite: str, scores: dict[str, Any]) -> Row | None:
    """Return the headline score of a language, from scores.json or the entry of a snapshot in it."""
    rows = of_suite(model, code, suite, scores)
    method = scores["headline"]["method"]
    return next((row for row in rows if row.method == method and row.phenomenon == ALL), None)


def round_words(low: float, high: float) -> list[float]:
    """Return 1, 2 and 5 times the powers of ten between two numbers; if these are too many, the powers alone."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for factors in ((1, 2, 5), (1,)):
        found = [factor * 10.0**power for power in powers for factor in factors]
        found = [at for at in found if low * 0.999 <= at <= high * 1.001]
        if len(found) <= MOST:
            break
    return found


def span(curves: Iterable[list[Moment]]) -> tuple[float, float]:
    """Return the ends of a scale on which all curves can be drawn, with their intervals and with chance."""
    rows = [moment.row for found in curves for moment in found]
    ends = [end for row in rows for end in (row.low, row.high, row.score) if end is not None]
    return max(0.0, min([CHANCE, *ends]) - 0.02), min(1.0, max([CHANCE, *ends]) + 0.02)


def learning_curve(found: list[Moment], title: str, low: float, high: float) -> Markup:
    """Draw scores with 95 % intervals over words, on a logarithmic scale; a filled square marks the finished model.

    `low`, `high`: the ends of the scale of scores, see `span`.
    """
    y = Scale(low, high, TOP + HEIGHT, TOP)
    logs = [math.log10(moment.words) for moment in found]
    x = Scale(min(logs), max(logs), LEFT + 8, WIDTH - RIGHT - 8)
    parts = []
    for at in ticks(y.low, y.high, 5):
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(at)}" y2="{y(at)}"/>')
        parts.append(f'<text x="{LEFT - 4}" y="{y(at) + 3.5:g}" text-anchor="end">{100 * at:.0f}</text>')
    for at in round_words(10**x.low, 10**x.high):
        place = x(math.log10(at))
        parts.append(f'<line class="grid" x1="{place}" x2="{place}" y1="{TOP}" y2="{TOP + HEIGHT}"/>')
        parts.append(f'<text x="{place}" y="{TOP + HEIGHT + 12}" text-anchor="middle">{at:g}</text>')
    parts.append(f'<line class="chance" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(CHANCE)}" y2="{y(CHANCE)}"/>')
    places = [(x(at), y(moment.row.score)) for at, moment in zip(logs, found, strict=True)]
    line = " ".join(f"{a:g},{b:g}" for a, b in places)
    marks = []
    for (a, b), moment in zip(places, found, strict=True):
        if moment.row.low is not None and moment.row.high is not None:
            ends = f'y1="{y(moment.row.low)}" y2="{y(moment.row.high)}"'
            marks.append(f'<line class="whisker" x1="{a}" x2="{a}" {ends}/>')
        marks.append(
            f'<rect class="last" x="{a - 3.5:g}" y="{b - 3.5:g}" width="7" height="7"/>'
            if moment.last
            else f'<circle class="dot" cx="{a}" cy="{b}" r="3"/>'
        )
    parts.append(f'<g class="learning"><polyline points="{line}"/>{"".join(marks)}</g>')
    parts.append(f'<text x="{LEFT}" y="{TOP - 6}" class="title">{escape(title)}, %</text>')
    middle = (LEFT + WIDTH) / 2
    parts.append(f'<text x="{middle:g}" y="{TOP + HEIGHT + 26}" text-anchor="middle">million words (log)</text>')
    said = ", ".join(f"{moment.words:.3g} million words {100 * moment.row.score:.1f} %" for moment in found)
    return Markup(
        f'<svg class="curves" viewBox="0 0 {WIDTH} {TOP + HEIGHT + 32}" role="img"'
        f' aria-label="{escape(f"{title}: {said}")}">{"".join(parts)}</svg>'
    )
