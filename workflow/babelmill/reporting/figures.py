"""Draw the figures of a report as inline SVG: strips of intervals, and the curves of a training run.

Colours are classes of the page's style sheet, so that one figure suits light and dark pages. They are those of Okabe
and Ito: readers who confuse red and green can tell them apart. Kinds of lines also differ in dash and marker, for grey
prints.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from markupsafe import Markup, escape

from babelmill.release.training_history import Line, training_curves

WIDTH, HEIGHT, STRIP, LEFT, RIGHT, TOP, GAP = 360, 150, 44, 40, 8, 26, 18
POINTS = 120  # points per curve at most; more could not be seen


class Scale(NamedTuple):
    """A linear map from the values `low` to `high` to the places `start` to `end`."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Return the place of a value; values outside the range lie at its edge."""
        share = (value - self.low) / ((self.high - self.low) or 1.0)
        return round(self.start + min(max(share, 0.0), 1.0) * (self.end - self.start), 1)


def ticks(low: float, high: float, most: int) -> list[float]:
    """Return round numbers between two values, with at most `most` intervals between them."""
    if not high > low:
        return [low]
    step = 10 ** math.floor(math.log10((high - low) / most))
    step = next(size for size in (step, 2 * step, 5 * step, 10 * step) if (high - low) / size <= most)
    first = math.ceil(low / step - 1e-9)
    return [n * step for n in range(first, math.floor(high / step + 1e-9) + 1)]


def number(value: float) -> str:
    """Write a number of an axis: 0.002, 3.5, 20k, 1.5M."""
    for size, letter in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


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
    texts = []
    for at in ticks(scale.low, scale.high, 5):
        place = scale(at)
        anchor = "start" if place < 4 else "end" if place > 96 else "middle"
        shown = f"{100 * at:.0f}" if percent else f"{at:.2g}"
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
    line = " ".join(f"{a:g},{b:g}" for a, b in places)
    marks = ""
    if "raw" in look or "averaged" in look:
        shape = '<circle cx="{:g}" cy="{:g}" r="2.2"/>'
        if "averaged" in look:
            shape = '<rect x="{:g}" y="{:g}" width="4.4" height="4.4"/>'
            marks = "".join(shape.format(round(a - 2.2, 1), round(b - 2.2, 1)) for a, b in places[1:-1:2] + places[-1:])
        else:
            marks = "".join(shape.format(a, b) for a, b in places)
    return f'<g class="{look}"><polyline points="{line}"/>{marks}</g>'


class Canvas:
    """The curves of one run, drawn panel by panel from top to bottom."""

    def __init__(self, curves: dict[str, Any]):
        self.curves, self.parts, self.y = curves, [], TOP
        self.x = Scale(0, curves["tokens"] or 1, LEFT, WIDTH - RIGHT)

    def text(self, x: float, y: float, words: str, anchor: str = "middle", look: str = "") -> None:
        """Draw a text."""
        of_class = f' class="{look}"' if look else ""
        self.parts.append(f'<text{of_class} x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(words)}</text>')

    def panel(self, title: str, scale: Scale, marks: list[float], lines: list[str]) -> None:
        """Draw a panel: its title, its grid with numbers at `marks`, and `lines`, which are SVG already."""
        for at in marks:
            y = scale(at)
            self.parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:g}" y2="{y:g}"/>')
            self.text(LEFT - 4, y + 3.5, number(at), "end")
        for at in ticks(0, self.x.high, 5):
            x = self.x(at)
            top, bottom = sorted((scale.start, scale.end))
            self.parts.append(f'<line class="grid" x1="{x:g}" x2="{x:g}" y1="{top:g}" y2="{bottom:g}"/>')
        self.parts.extend(lines)
        self.text(LEFT, min(scale.start, scale.end) - 5, title, "start", "title")

    def losses(self, kind: str) -> None:
        """Draw the losses of one kind of rows: of training, and of last and averaged weights on the validation text."""
        found = self.curves["kinds"][kind]
        shown = [loss for name in ("raw", "averaged") for _, loss in found[name]]
        train = thinned(found["training"])
        # The high losses of the first steps would squeeze all others, so the scale ignores them.
        shown += [loss for _, loss in train[len(train) // 10 :]]
        if not shown:
            return
        room = 0.05 * (max(shown) - min(shown)) or 0.5
        scale = Scale(min(shown) - room, max(shown) + room, self.y + HEIGHT, self.y)
        lines = [path([point for point in train if point[1] <= scale.high], self.x, scale, "training")]
        lines += [path(thinned(found[name]), self.x, scale, name) for name in ("raw", "averaged")]
        self.panel(f"{kind}, nats per target", scale, ticks(scale.low, scale.high, 5), lines)
        self.y += HEIGHT + GAP

    def strips(self) -> None:
        """Draw learning rate and sequence length below the losses, and the axes of tokens and steps."""
        for name, title in (("learning_rate", "learning rate"), ("sequence_length", "sequence length")):
            points = thinned(self.curves[name]) if name == "learning_rate" else self.curves[name]
            if not points:
                continue
            high = max(value for _, value in points) or 1
            scale = Scale(0, high * 1.1, self.y + STRIP, self.y)
            line = path(points, self.x, scale, name, steps=name == "sequence_length")
            self.panel(title, scale, [0, float(f"{high:.2g}") if name == "learning_rate" else high], [line])
            self.y += STRIP + GAP
        bottom = self.y - GAP + 12
        for at in ticks(0, self.x.high, 5):
            x = self.x(at)
            self.text(x, bottom, number(at), "start" if x <= LEFT else "middle" if x < WIDTH - 15 else "end")
        self.text((LEFT + WIDTH) / 2, bottom + 13, "tokens")
        steps = self.curves["steps"]
        for at in ticks(0, steps, 5) if steps else []:
            x = Scale(0, steps, LEFT, WIDTH - RIGHT)(at)
            anchor = "start" if x <= LEFT else "middle" if x < WIDTH - 15 else "end"
            self.text(x, bottom + 28, number(at), anchor)
        self.text((LEFT + WIDTH) / 2, bottom + 41, "steps")
        self.y = bottom + 48


def run_curves(record: list[Line], name: str) -> Markup:
    """Draw the curves of a training run over tokens and steps."""
    curves = training_curves(record)
    canvas = Canvas(curves)
    for kind in curves["kinds"]:
        canvas.losses(kind)
    canvas.strips()
    ends = [
        f"{kind} {found['raw'][-1][1]:.3f}" for kind, found in curves["kinds"].items() if found["raw"]
    ]  # for readers who cannot see the picture
    label = f"Training of {name}: {curves['steps']:,} steps; last losses on the validation text: {', '.join(ends)}"
    return Markup(
        f'<svg class="curves" viewBox="0 0 {WIDTH} {canvas.y:g}" role="img" aria-label="{escape(label)}">'
        f"{''.join(canvas.parts)}</svg>"
    )
