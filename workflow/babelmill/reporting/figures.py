"""Draw the figures of a report as inline SVG: strips of intervals, the curves of a run, scores over words read.

Colours are classes of the page's style sheet, so that one figure suits light and dark pages. They are those of Okabe
and Ito: readers who confuse red and green can tell them apart. Kinds of lines also differ in dash and marker, for grey
prints.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

from markupsafe import Markup, escape

from babelmill.core.escape import line
from babelmill.evaluation.suite_scores import headline_method
from babelmill.reporting.results import ReportedModel
from babelmill.reporting.table import ScoreRow, head

WIDTH, STRIP, LEFT, RIGHT, TOP, GAP = 360, 44, 48, 8, 26, 18
WIDE = 1080  # the width of a picture that is alone on a screen
POINTS = 120  # points per curve at most; more could not be seen
LOG_STEPS = ((1.0, 10.0), (1.0, 2.0, 5.0), (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0), tuple(1 + i / 2 for i in range(18)))
LOG_STEPS += (tuple(1 + i / 5 for i in range(45)),)


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

    `scale` maps a score to percent of the strip's width. `baseline`: whether the score is a published one. `beside`:
    the score of a much simpler model, if there is one.
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
    for i, (at, shown) in enumerate(
        zip(marks, tick_labels([100 * at if percent else at for at in marks]), strict=True)
    ):
        place = scale(at)
        anchor = "start" if place < 8 else "end" if place > 92 else "middle"
        look = ' class="more"' if i % 2 and len(marks) > 2 else ""  # a phone has no room for all
        texts.append(f'<text{look} x="{place}%" y="12" text-anchor="{anchor}">{shown}</text>')
    return Markup(f'<svg class="strip" height="16" aria-hidden="true">{"".join(texts)}</svg>')


def thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return at most POINTS points; each is the mean of neighbouring points."""
    size = math.ceil(len(points) / POINTS) or 1
    groups = [points[i : i + size] for i in range(0, len(points), size)]
    return [(sum(x for x, _ in group) / len(group), sum(y for _, y in group) / len(group)) for group in groups]


def path(points: Iterable[tuple[float, float]], x: Scale, y: Scale, look: str, stairs: bool = False) -> str:
    """Draw a line in the style `look`; with `stairs`, as a staircase."""
    places = [(x(a), y(b)) for a, b in points]
    if not places:
        return ""
    if stairs:
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


class Canvas:
    """A picture with one axis of x, drawn panel by panel from top to bottom."""

    def __init__(self, x: Scale, width: int):
        # y: the top of the next panel
        # width: the width of the picture
        # x: the scale of all panels
        self.x, self.width, self.y = x, width, float(TOP)
        self.parts: list[str] = []  # the SVG so far

    def text(self, x: float, y: float, text: str, anchor: str = "middle", look: str = "") -> None:
        of_class = f' class="{look}"' if look else ""
        self.parts.append(f'<text{of_class} x="{x:g}" y="{y:g}" text-anchor="{anchor}">{safe(text)}</text>')

    def across(self, y: float, look: str = "grid") -> None:
        self.parts.append(f'<line class="{look}" x1="{LEFT}" x2="{self.width - RIGHT}" y1="{y:g}" y2="{y:g}"/>')

    def panel(self, title: str, y: Scale, marks: Sequence[float], columns: Sequence[float], unit: float = 1) -> None:
        """Draw a panel from `self.y` down to `y.start`, and move `self.y` below it.

        It has a title, a grid with numbers, in `unit`, at `marks`, and lines at `columns`.
        """
        for at, label in zip(marks, tick_labels([at / unit for at in marks]), strict=True):
            self.across(y(at))
            self.text(LEFT - 4, y(at) + 3.5, label, "end")
        for at in columns:
            x = self.x(at)
            self.parts.append(f'<line class="grid" x1="{x:g}" x2="{x:g}" y1="{self.y:g}" y2="{y.start:g}"/>')
        self.text(LEFT, self.y - 5, title, "start", "title")
        self.y = y.start + GAP

    def numbers(self, x: Scale, marks: Iterable[float], y: float) -> None:
        """Write the numbers of an axis of x; those at its ends stay in the picture."""
        for at in marks:
            place = x(at)
            anchor = "start" if place <= LEFT else "middle" if place < self.width - 15 else "end"
            self.text(place, y, number(at, 6), anchor)

    def picture(self, label: str) -> Markup:
        """Return the picture; `label` describes it to readers who cannot see it."""
        return Markup(
            f'<svg class="curves" viewBox="0 0 {self.width} {self.y:g}" role="img" aria-label="{safe(label)}">'
            f"{''.join(self.parts)}</svg>"
        )


def fitted(draw: Callable[[int], Markup], alone: bool) -> Markup:
    """Return a picture; one that is `alone` is drawn twice, and the style sheet shows the one that fits the screen."""
    if not alone:
        return draw(WIDTH)
    return Markup(f'<div class="narrow">{draw(WIDTH)}</div><div class="broad">{draw(WIDE)}</div>')


# The curves of training runs.


def training_pictures(runs: Sequence[tuple[str, dict[str, Any]]]) -> list[Markup]:
    """Draw the curves of runs, (name of the model, `training_curves`), over tokens and steps, all on the same axes."""
    tokens = max((curves["tokens"] for _, curves in runs), default=0) or 1
    losses: dict[str, list[float]] = {}
    for kind, found in (each for _, curves in runs for each in curves["kinds"].items()):
        losses.setdefault(kind, []).extend(loss for curve in found.values() for _, loss in thinned(curve))

    def draw(name: str, curves: dict[str, Any], width: int) -> Markup:
        """Draw a run: the losses of each kind of rows, and the learning rate and sequence length below them."""
        canvas = Canvas(Scale(0, tokens, LEFT, width - RIGHT), width)
        columns = ticks(0, tokens, 5)
        for kind, found in curves["kinds"].items():
            if not any(found.values()):
                continue
            low, high = min(losses[kind]), max(losses[kind])
            log = low > 0  # the first steps have losses several times those of the last
            room = (high / low) ** 0.04 if log else 0.05 * (high - low)
            ends = (low / room, high * room) if log else (low - room, high + room)
            ends = ends if ends[1] > ends[0] else (low - 0.5, high + 0.5)
            y = Scale(*ends, canvas.y + height(width), canvas.y, log and ends[0] > 0)
            marks = log_ticks(*ends, 7) if y.log else ticks(*ends, 5)
            canvas.panel(f"{kind}, nats per target{' (log)' if y.log else ''}", y, marks, columns)
            canvas.parts += [path(thinned(found[name]), canvas.x, y, name) for name in ("training", "raw", "averaged")]
        for key, title in (("learning_rate", "learning rate"), ("sequence_length", "sequence length")):
            if points := curves[key]:
                high = max((value for _, run in runs for _, value in run[key]), default=0) or 1
                stairs = key == "sequence_length"
                y = Scale(0, high * 1.1, canvas.y + STRIP, canvas.y)
                canvas.panel(title, y, [0, high] if stairs else ticks(0, high * 1.1, 2), columns)
                canvas.parts.append(path(points if stairs else thinned(points), canvas.x, y, key, stairs))
        bottom = canvas.y - GAP + 12
        canvas.numbers(canvas.x, columns, bottom)
        canvas.text((LEFT + width) / 2, bottom + 13, "tokens")
        if curves["steps"]:  # those of this run, which may end before the others
            steps = Scale(0, curves["steps"], LEFT, canvas.x(curves["tokens"]))
            most = max(1, int(5 * (steps.end - LEFT) / (width - RIGHT - LEFT)))
            canvas.numbers(steps, ticks(0, steps.high, most), bottom + 28)
        canvas.text((LEFT + width) / 2, bottom + 41, "steps")
        canvas.y = bottom + 48
        last = [f"{kind} {found['raw'][-1][1]:.3f}" for kind, found in curves["kinds"].items() if found["raw"]]
        return canvas.picture(
            f"Training of {name}: {curves['steps']:,} steps; last losses on the validation text: {', '.join(last)}"
        )

    return [fitted(partial(draw, *run), alone=len(runs) == 1) for run in runs]


def overlaid(recipes: Sequence[Sequence[dict[str, Any]]], width: int = WIDE) -> Markup:
    """Draw the validation losses of recipes over each other: the mean of a recipe's runs, between their extremes.

    `recipes`: for each, the `training_curves` of its runs, which differ in their seeds. It is "" if no run validated.
    """
    tokens = max((run["tokens"] for runs in recipes for run in runs), default=0) or 1
    canvas = Canvas(Scale(0, tokens, LEFT, width - RIGHT), width)
    columns = ticks(0, tokens, 5)
    for kind in dict.fromkeys(kind for runs in recipes for run in runs for kind in run["kinds"]):
        drawn: list[list[tuple[float, float, float, float]]] = []  # of a recipe: tokens, mean, smallest, largest
        for runs in recipes:
            found = [run["kinds"][kind] for run in runs if kind in run["kinds"]]
            curves = [curve for each in found if (curve := each["averaged"] or each["raw"])]
            by_place = [dict(curve) for curve in curves]
            # Runs may differ in where they were validated (`run.validate_every`).
            common = sorted(set.intersection(*map(set, by_place))) if by_place else []
            values = [(at, [losses[at] for losses in by_place]) for at in common]
            drawn.append([(at, sum(losses) / len(losses), min(losses), max(losses)) for at, losses in values])
        ends = [end for places in drawn for _, _, *both in places for end in both]
        if not ends:
            continue
        room = 0.05 * (max(ends) - min(ends)) or 0.5
        y = Scale(min(ends) - room, max(ends) + room, canvas.y + height(width), canvas.y)
        canvas.panel(f"{kind}, nats per target, on the validation text", y, ticks(y.low, y.high, 5), columns)
        for i, places in enumerate(drawn):
            above = [(canvas.x(at), y(high)) for at, _, _, high in places]
            below = [(canvas.x(at), y(low)) for at, _, low, _ in reversed(places)]
            joined = " ".join(f"{a:g},{b:g}" for a, b in above + below)
            canvas.parts.append(f'<polygon class="band c{i}" points="{joined}"/>')
            canvas.parts.append(path([(at, mean) for at, mean, *_ in places], canvas.x, y, f"c{i}"))
    if not canvas.parts:
        return Markup("")
    canvas.numbers(canvas.x, columns, canvas.y - GAP + 12)
    canvas.text((LEFT + width) / 2, canvas.y - GAP + 25, "tokens")
    canvas.y += 14
    return canvas.picture(f"Validation losses of {len(recipes)} recipes over tokens")


# Scores over words read.

MOST = 8  # numbers on an axis at most


class Moment(NamedTuple):
    """A score at a moment of the training."""

    words: float  # how many million words the model had read
    row: ScoreRow  # the score
    last: bool  # whether this is the finished model


def moments(model: ReportedModel, code: str, suite: str) -> list[Moment]:
    """Return the scores of a model's snapshots on a suite, the earliest first; the finished model comes last."""
    scores = model.scores.get(suite, {})
    kept = [each for each in scores.get("snapshots", []) if code in each["languages"]]
    if not kept:
        return []
    read = [each["words"] / 1e6 for each in kept]  # the true number of words: the run may end shortly before a point
    found = [(words, scores | each) for words, each in zip(read, kept, strict=True)]
    if tokens := model.manifest("train")["figures"].get("tokens"):
        found.append((read[-1] * tokens / kept[-1]["tokens"], scores))
    method = headline_method(scores)
    rows = [(words, head(model.name, code, suite, each, method)) for words, each in found]
    return [Moment(words, row, i == len(kept)) for i, (words, row) in enumerate(rows) if row]


def learning_pictures(curves: Sequence[tuple[str, list[Moment], float]]) -> list[Markup]:
    """Draw the scores of models in time, all on the same axes, with intervals.

    `curves`: the title, the moments, and the score that guessing gets.
    """
    moments = [moment for _, found, _ in curves for moment in found]
    if not moments:
        return []
    words = min(moment.words for moment in moments), max(moment.words for moment in moments)
    rows = [moment.row for moment in moments]
    shares = [
        *(by_chance for *_, by_chance in curves),
        *(end for row in rows for end in (row.low, row.high, row.score) if end is not None),
    ]
    low = min(shares) - 0.02  # a correlation may be below 0
    ends = low if min(shares) < 0 else max(0.0, low), min(1.0, max(shares) + 0.02)

    def draw(title: str, found: list[Moment], by_chance: float, width: int) -> Markup:
        """Draw scores over words, on a logarithmic scale; a filled square marks the finished model."""
        canvas = Canvas(Scale(*words, LEFT + 8, width - RIGHT - 8, log=True), width)
        x, bottom = canvas.x, TOP + height(width)
        y = Scale(*ends, bottom, TOP)
        columns = log_ticks(*words, MOST)
        canvas.panel(f"{title}, %", y, ticks(*ends, 5), columns, unit=0.01)
        for at in columns:
            canvas.text(x(at), bottom + 12, f"{at:g}")
        canvas.across(y(by_chance), "chance")
        line = " ".join(f"{x(moment.words):g},{y(moment.row.score):g}" for moment in found)
        canvas.parts.append(f'<g class="learning"><polyline points="{line}"/>')
        for moment in found:
            a, b = x(moment.words), y(moment.row.score)
            if moment.row.low is not None and moment.row.high is not None:
                whisker = f'x1="{a}" x2="{a}" y1="{y(moment.row.low)}" y2="{y(moment.row.high)}"'
                canvas.parts.append(f'<line class="whisker" {whisker}/>')
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

    return [fitted(partial(draw, *curve), alone=len(curves) == 1) for curve in curves]
