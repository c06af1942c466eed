"""Draw the figures of a report as inline SVG: strips of intervals, the curves of a run, scores over words read.

Colours are classes of the page's style sheet, so that one figure suits light and dark pages. They are those of Okabe
and Ito: readers who confuse red and green can tell them apart. Kinds of lines also differ in dash and marker, for grey
prints.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from markupsafe import Markup, escape

from babelmill.core.escape import line
from babelmill.evaluation.suite_scores import headline_method
from babelmill.reporting.results import ReportedModel
from babelmill.reporting.table import ScoreRow, head

WIDTH, STRIP, LEFT, RIGHT, TOP, GAP = 360, 44, 48, 8, 26, 18
WIDE = 1080  # the width of a picture that is alone on a screen
POINTS = 120  # points per curve at most; more could not be seen
LOG_STEPS = ((1.0, 10.0), (1.0, 2.0, 5.0), (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0), tuple(1 + i / 5 for i in range(45)))


def height(width: int) -> int:
    """Return the height of a panel in a picture of this width."""
    return 150 if width == WIDTH else 240


def safe(text: object) -> Markup:
    """Return text from outside as it may stand in a picture."""
    return escape(line(text))


class Scale(NamedTuple):
    """A linear or logarithmic map from the values `low` to `high` to the places `start` to `end`."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """Return the place of a value; values outside the range lie at its edge."""
        low, high, at = self.low, self.high, min(max(value, self.low), self.high)
        if self.log:
            low, high, at = math.log(low), math.log(high), math.log(at)
        return round(self.start + (at - low) / ((high - low) or 1.0) * (self.end - self.start), 1)


def ticks(low: float, high: float, most: int) -> list[float]:
    """Return round numbers between two values, with at most `most` intervals between them."""
    if not high > low:
        return [low]
    step = 10 ** math.floor(math.log10((high - low) / most))
    step = next(size for size in (step, 2 * step, 5 * step, 10 * step) if (high - low) / size <= most)
    first = math.ceil(low / step - 1e-9)
    return [n * step for n in range(first, math.floor(high / step + 1e-9) + 1)]


def log_ticks(low: float, high: float, most: int) -> list[float]:
    """Return at most `most` round numbers between two values, for a logarithmic scale."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    found: list[float] = []
    for factors in LOG_STEPS:
        marks = [factor * 10.0**power for power in powers for factor in factors if factor < 10]
        marks = [round(at, 9) for at in marks if low * 0.999 <= at <= high * 1.001]
        if len(marks) > most:
            break
        found = marks
    return found


def number(value: float, digits: int = 3) -> str:
    """Write a number with so many digits: 0.002, 3.5, 20k, 1.5M."""
    for size, letter in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.{digits}g}{letter}"
    return f"{value:.{digits}g}"


def tick_labels(marks: Sequence[float]) -> list[str]:
    """Write the numbers of an axis with all digits that they need, and as many decimals for each."""
    if any(abs(at) >= 1e3 for at in marks):
        return [number(at, 6) for at in marks]
    written = [f"{at:.6g}" for at in marks]
    if any("e" in each for each in written):
        return written
    decimals = max((len(each.partition(".")[2]) for each in written), default=0)
    return [f"{at:.{decimals}f}" if at else "0" for at in marks]


def strip(
    scale: Scale,
    value: float,
    low: float | None,
    high: float | None,
    baseline: bool = False,
    beside: float | None = None,
) -> Markup:
    """Draw a score and its interval on a strip. The text beside the strip contains both numbers, too.

    Args:
        scale: maps a score to percent of the strip's width.
        value: the score.
        low, high: its interval; None if it is not known.
        baseline: whether the score is a published one.
        beside: the score of a much simpler model, if there is one.
    """
    parts = []
    if beside is not None:
        parts.append(f'<line class="beside" x1="{scale(beside)}%" x2="{scale(beside)}%" y1="3" y2="15"/>')
    if low is not None and high is not None:
        parts.append(f'<line class="interval" x1="{scale(low)}%" x2="{scale(high)}%" y1="9" y2="9"/>')
    shape = f'<circle class="{"hollow" if baseline else "dot"}" cx="{scale(value)}%" cy="9" r="4"/>'
    marks = "".join(
        f'<line class="grid" x1="{scale(at)}%" x2="{scale(at)}%" y1="0" y2="18"/>'
        for at in ticks(scale.low, scale.high, 5)
    )
    return Markup(f'<svg class="strip" height="18" aria-hidden="true">{marks}{"".join(parts)}{shape}</svg>')


def axis(scale: Scale, percent: bool) -> Markup:
    """Draw the numbers above strips."""
    texts, marks = [], ticks(scale.low, scale.high, 5)
    for at, shown in zip(marks, tick_labels([100 * at if percent else at for at in marks]), strict=True):
        place = scale(at)
        anchor = "start" if place < 8 else "end" if place > 92 else "middle"
        texts.append(f'<text x="{place}%" y="12" text-anchor="{anchor}">{shown}</text>')
    return Markup(f'<svg class="strip" height="16" aria-hidden="true">{"".join(texts)}</svg>')


def thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return at most POINTS points; each is the mean of neighbouring points."""
    size = math.ceil(len(points) / POINTS) or 1
    groups = [points[i : i + size] for i in range(0, len(points), size)]
    return [(sum(x for x, _ in group) / len(group), sum(y for _, y in group) / len(group)) for group in groups]


def path(points: Iterable[tuple[float, float]], x: Scale, y: Scale, look: str, steps: bool = False) -> str:
    """Draw a line in the style `look`; with `steps`, as a staircase."""
    places = [(x(a), y(b)) for a, b in points]
    if not places:
        return ""
    if steps:
        places = [place for i, (a, b) in enumerate(places) for place in ((places[i - 1][0] if i else a, b), (a, b))]
    joined = " ".join(f"{a:g},{b:g}" for a, b in places)
    marks = ""
    if "raw" in look or "averaged" in look:
        shape = '<circle cx="{:g}" cy="{:g}" r="2.2"/>'
        if "averaged" in look:
            shape = '<rect x="{:g}" y="{:g}" width="4.4" height="4.4"/>'
            marks = "".join(shape.format(round(a - 2.2, 1), round(b - 2.2, 1)) for a, b in places[1:-1:2] + places[-1:])
        else:
            marks = "".join(shape.format(a, b) for a, b in places)
    return f'<g class="{look}"><polyline points="{joined}"/>{marks}</g>'


class Axes(NamedTuple):
    """The ends of the axes that the pictures of all runs share, so that they can be compared.

    Attributes:
        tokens: the end of the axis of tokens.
        losses: {kind of rows: the least and the greatest loss}.
        learning_rate, sequence_length: the greatest values.
    """

    tokens: float
    losses: dict[str, tuple[float, float]]
    learning_rate: float
    sequence_length: float

    @classmethod
    def of(cls, runs: Sequence[dict[str, Any]]) -> "Axes":
        """Return the axes for the curves of some runs, see `training_curves`."""
        losses: dict[str, tuple[float, float]] = {}
        for kind in dict.fromkeys(kind for run in runs for kind in run["kinds"]):
            curves = [curve for run in runs if kind in run["kinds"] for curve in run["kinds"][kind].values()]
            if shown := [loss for curve in curves for _, loss in thinned(curve)]:
                losses[kind] = min(shown), max(shown)

        def most(name: str) -> float:
            return max((value for run in runs for _, value in run[name]), default=0.0)

        tokens = max((run["tokens"] for run in runs), default=0)
        return cls(tokens or 1, losses, most("learning_rate"), most("sequence_length"))


class Canvas:
    """A picture with one axis of x, drawn panel by panel from top to bottom.

    Attributes:
        x: the scale of all panels.
        width: the width of the picture.
        parts: the SVG so far.
        y: the top of the next panel.
    """

    def __init__(self, x: Scale, width: int):
        self.x, self.width, self.y = x, width, float(TOP)
        self.parts: list[str] = []

    def text(self, x: float, y: float, text: str, anchor: str = "middle", look: str = "") -> None:
        """Draw a text."""
        of_class = f' class="{look}"' if look else ""
        self.parts.append(f'<text{of_class} x="{x:g}" y="{y:g}" text-anchor="{anchor}">{safe(text)}</text>')

    def across(self, y: float, look: str = "grid") -> None:
        """Draw a line from the left to the right."""
        self.parts.append(f'<line class="{look}" x1="{LEFT}" x2="{self.width - RIGHT}" y1="{y:g}" y2="{y:g}"/>')

    def panel(self, title: str, y: Scale, marks: Sequence[float], columns: Sequence[float], unit: float = 1) -> None:
        """Draw a panel: its title, and its grid with numbers, in `unit`, at `marks`, and lines at `columns`."""
        for at, label in zip(marks, tick_labels([at / unit for at in marks]), strict=True):
            self.across(y(at))
            self.text(LEFT - 4, y(at) + 3.5, label, "end")
        top, bottom = sorted((y.start, y.end))
        for at in columns:
            x = self.x(at)
            self.parts.append(f'<line class="grid" x1="{x:g}" x2="{x:g}" y1="{top:g}" y2="{bottom:g}"/>')
        self.text(LEFT, top - 5, title, "start", "title")

    def picture(self, label: str) -> Markup:
        """Return the picture; `label` describes it to readers who cannot see it."""
        return Markup(
            f'<svg class="curves" viewBox="0 0 {self.width} {self.y:g}" role="img" aria-label="{safe(label)}">'
            f"{''.join(self.parts)}</svg>"
        )


class RunCanvas(Canvas):
    """The curves of one run over tokens."""

    def __init__(self, curves: dict[str, Any], axes: Axes, width: int):
        super().__init__(Scale(0, axes.tokens, LEFT, width - RIGHT), width)
        self.curves, self.axes = curves, axes

    def losses(self, kind: str) -> None:
        """Draw the losses of one kind of rows: of training, and of last and averaged weights on the validation text."""
        found = self.curves["kinds"][kind]
        if kind not in self.axes.losses or not any(found.values()):
            return
        low, high = self.axes.losses[kind]
        log = low > 0  # the first steps have losses several times those of the last
        room = (high / low) ** 0.04 if log else 0.05 * (high - low)
        ends = (low / room, high * room) if log else (low - room, high + room)
        ends = ends if ends[1] > ends[0] else (low - 0.5, high + 0.5)
        scale = Scale(*ends, self.y + height(self.width), self.y, log and ends[0] > 0)
        marks = log_ticks(*ends, 7) if scale.log else ticks(*ends, 5)
        self.panel(f"{kind}, nats per target{' (log)' if scale.log else ''}", scale, marks, ticks(0, self.x.high, 5))
        self.parts += [path(thinned(found[name]), self.x, scale, name) for name in ("training", "raw", "averaged")]
        self.y += height(self.width) + GAP

    def strips(self) -> None:
        """Draw learning rate and sequence length below the losses, and the axes of tokens and steps."""
        for name, title in (("learning_rate", "learning rate"), ("sequence_length", "sequence length")):
            points = thinned(self.curves[name]) if name == "learning_rate" else self.curves[name]
            if not points:
                continue
            high = getattr(self.axes, name) or 1
            scale = Scale(0, high * 1.1, self.y + STRIP, self.y)
            marks = ticks(0, high * 1.1, 2) if name == "learning_rate" else [0, high]
            self.panel(title, scale, marks, ticks(0, self.x.high, 5))
            self.parts.append(path(points, self.x, scale, name, steps=name == "sequence_length"))
            self.y += STRIP + GAP
        bottom, end = self.y - GAP + 12, self.width - 15
        for at in ticks(0, self.x.high, 5):
            x = self.x(at)
            self.text(x, bottom, number(at, 6), "start" if x <= LEFT else "middle" if x < end else "end")
        self.text((LEFT + self.width) / 2, bottom + 13, "tokens")
        # The steps of this run, which may end before the others.
        steps, last = self.curves["steps"], self.x(self.curves["tokens"])
        room = max(1, int(5 * (last - LEFT) / (self.width - RIGHT - LEFT)))
        for at in ticks(0, steps, room) if steps else []:
            x = Scale(0, steps, LEFT, last)(at)
            self.text(x, bottom + 28, number(at, 6), "start" if x <= LEFT else "middle" if x < end else "end")
        self.text((LEFT + self.width) / 2, bottom + 41, "steps")
        self.y = bottom + 48


def run_curves(curves: dict[str, Any], name: str, axes: Axes, width: int = WIDTH) -> Markup:
    """Draw the curves of a training run (`training_curves`) over tokens and steps."""
    canvas = RunCanvas(curves, axes, width)
    for kind in curves["kinds"]:
        canvas.losses(kind)
    canvas.strips()
    ends = [f"{kind} {found['raw'][-1][1]:.3f}" for kind, found in curves["kinds"].items() if found["raw"]]
    return canvas.picture(
        f"Training of {name}: {curves['steps']:,} steps; last losses on the validation text: {', '.join(ends)}"
    )


def fitted(draw: Callable[[int], Markup], alone: bool) -> Markup:
    """Return a picture; one that is `alone` is drawn twice, and the style sheet shows the one that fits the screen."""
    if not alone:
        return draw(WIDTH)
    return Markup(f'<div class="narrow">{draw(WIDTH)}</div><div class="broad">{draw(WIDE)}</div>')


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
    row: ScoreRow
    last: bool


def moments(model: ReportedModel, code: str, suite: str) -> list[Moment]:
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


class LearningAxes(NamedTuple):
    """The ends of axes on which several curves can be drawn, with their intervals and with chance."""

    words: tuple[float, float]
    scores: tuple[float, float]

    @classmethod
    def of(cls, curves: Iterable[list[Moment]]) -> "LearningAxes":
        """Return the axes for some curves."""
        found = [moment for curve in curves for moment in curve]
        rows, words = [moment.row for moment in found], [moment.words for moment in found]
        ends = [end for row in rows for end in (row.low, row.high, row.score) if end is not None]
        scores = max(0.0, min([CHANCE, *ends]) - 0.02), min(1.0, max([CHANCE, *ends]) + 0.02)
        return cls((min(words), max(words)), scores)


def learning_curve(found: list[Moment], title: str, axes: LearningAxes, width: int = WIDTH) -> Markup:
    """Draw scores with 95 % intervals over words, on a logarithmic scale; a filled square marks the finished model."""
    canvas = Canvas(Scale(*axes.words, LEFT + 8, width - RIGHT - 8, log=True), width)
    x, bottom = canvas.x, TOP + height(width)
    y = Scale(*axes.scores, bottom, TOP)
    columns = log_ticks(*axes.words, MOST)
    canvas.panel(f"{title}, %", y, ticks(y.low, y.high, 5), columns, unit=0.01)
    for at in columns:
        canvas.text(x(at), bottom + 12, f"{at:g}")
    canvas.across(y(CHANCE), "chance")
    line = " ".join(f"{x(moment.words):g},{y(moment.row.score):g}" for moment in found)
    canvas.parts.append(f'<g class="learning"><polyline points="{line}"/>')
    for moment in found:
        a, b = x(moment.words), y(moment.row.score)
        if moment.row.low is not None and moment.row.high is not None:
            ends = f'y1="{y(moment.row.low)}" y2="{y(moment.row.high)}"'
            canvas.parts.append(f'<line class="whisker" x1="{a}" x2="{a}" {ends}/>')
        canvas.parts.append(
            f'<rect class="last" x="{a - 3.5:g}" y="{b - 3.5:g}" width="7" height="7"/>'
            if moment.last
            else f'<circle class="dot" cx="{a}" cy="{b}" r="3"/>'
        )
    canvas.parts.append("</g>")
    canvas.text((LEFT + width) / 2, bottom + 26, "million words (log)")
    canvas.y = bottom + 32
    scores = ", ".join(f"{moment.words:.3g} million words {100 * moment.row.score:.1f} %" for moment in found)
    return canvas.picture(f"{title}: {scores}")
