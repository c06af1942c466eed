"""Draw how a score grew during training, from the snapshots of the run (`run.snapshots`), over words read."""

from collections.abc import Iterable
from typing import NamedTuple

from markupsafe import Markup

from babelmill.evaluation.suite_scores import headline_method
from babelmill.reporting.figures import LEFT, RIGHT, TOP, WIDTH, Scale, height, log_ticks, safe, tick_labels, ticks
from babelmill.reporting.results import Model
from babelmill.reporting.table import Row, head

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
    method = headline_method(scores)
    rows = [(words, head(model.name, code, suite, each, method)) for words, each in found]
    return [Moment(words, row, i == len(kept)) for i, (words, row) in enumerate(rows) if row]


class Span(NamedTuple):
    """The ends of axes on which several curves can be drawn, with their intervals and with chance."""

    words: tuple[float, float]
    scores: tuple[float, float]

    @classmethod
    def of(cls, curves: Iterable[list[Moment]]) -> "Span":
        """Return the axes for some curves."""
        found = [moment for curve in curves for moment in curve]
        rows, words = [moment.row for moment in found], [moment.words for moment in found]
        ends = [end for row in rows for end in (row.low, row.high, row.score) if end is not None]
        scores = max(0.0, min([CHANCE, *ends]) - 0.02), min(1.0, max([CHANCE, *ends]) + 0.02)
        return cls((min(words), max(words)), scores)


def learning_curve(found: list[Moment], title: str, axes: Span, width: int = WIDTH) -> Markup:
    """Draw scores with 95 % intervals over words, on a logarithmic scale; a filled square marks the finished model."""
    bottom = TOP + height(width)
    y = Scale(*axes.scores, bottom, TOP)
    x = Scale(*axes.words, LEFT + 8, width - RIGHT - 8, log=True)
    parts = []
    marks = ticks(y.low, y.high, 5)
    for at, label in zip(marks, tick_labels([100 * at for at in marks]), strict=True):
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{width - RIGHT}" y1="{y(at)}" y2="{y(at)}"/>')
        parts.append(f'<text x="{LEFT - 4}" y="{y(at) + 3.5:g}" text-anchor="end">{label}</text>')
    for at in log_ticks(*axes.words, MOST):
        place = x(at)
        parts.append(f'<line class="grid" x1="{place}" x2="{place}" y1="{TOP}" y2="{bottom}"/>')
        parts.append(f'<text x="{place}" y="{bottom + 12}" text-anchor="middle">{at:g}</text>')
    parts.append(f'<line class="chance" x1="{LEFT}" x2="{width - RIGHT}" y1="{y(CHANCE)}" y2="{y(CHANCE)}"/>')
    places = [(x(moment.words), y(moment.row.score)) for moment in found]
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
    parts.append(f'<text x="{LEFT}" y="{TOP - 6}" class="title">{safe(title)}, %</text>')
    middle = (LEFT + width) / 2
    parts.append(f'<text x="{middle:g}" y="{bottom + 26}" text-anchor="middle">million words (log)</text>')
    said = ", ".join(f"{moment.words:.3g} million words {100 * moment.row.score:.1f} %" for moment in found)
    return Markup(
        f'<svg class="curves" viewBox="0 0 {width} {bottom + 32}" role="img"'
        f' aria-label="{safe(f"{title}: {said}")}">{"".join(parts)}</svg>'
    )
