"""Draw the figures of pages as inline SVG: strips beside the numbers of a table, and curves with matplotlib.

Colours are variables of the page's style sheet, so that one figure suits light and dark pages. They are those of Okabe
and Ito: readers who confuse red and green can tell them apart. Lines also differ in dash and marker, for grey prints.
"""

import io
import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import matplotlib as mpl
from markupsafe import Markup, escape
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator

from babelmill.core.escape import line
from babelmill.core.words import short
from babelmill.reporting.table import Frame

NARROW, WIDE = 360, 1080  # widths of pictures, in pixels: on a phone or beside others, and alone on a screen
POINTS = 120  # points per curve at most; more could not be seen
INK, SOFT, LINE = "#1b1f24", "#57606a", "#d8dee4"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
DASHES = ("-", (0, (6, 2)), (0, (2, 2)), (0, (7, 2, 2, 2)), (0, (9, 3)), (0, (1, 1)))
VARIABLES = {INK: "ink", SOFT: "soft", LINE: "line"} | {colour: f"c{i}" for i, colour in enumerate(COLOURS)}
STYLE: Any = {
    **{"svg.fonttype": "none", "svg.hashsalt": "babelmill", "text.parse_math": False, "font.size": 8.5},
    **{f"axes.spines.{side}": False for side in ("left", "right", "top")},
    **{"axes.edgecolor": LINE, "axes.grid": True, "grid.color": LINE, "axes.axisbelow": True, "axes.xmargin": 0.01},
    **{"axes.titlesize": 8.5, "axes.titleweight": "bold", "axes.titlelocation": "left", "axes.titlecolor": INK},
    **{"axes.labelcolor": SOFT, "text.color": INK, "legend.frameon": False, "legend.fontsize": "small"},
    **{f"{axis}tick.{key}": value for axis in "xy" for key, value in (("labelcolor", SOFT), ("major.size", 0))},
}
LOOKS = {
    "training": {"label": "training", "color": SOFT, "alpha": 0.6, "lw": 1},
    "raw": {"label": "validation, last weights", "color": COLOURS[1], "marker": "o", "ms": 3, "lw": 1.4},
    "averaged": {"label": "validation, averaged weights", "color": COLOURS[0], "marker": "s", "ms": 3, "ls": "--"},
}


class Strips:
    """Strips: a small picture of a score beside its number in each row of a table, and the axis above them.

    Places are percent of the width, so that a strip is as wide as its column.
    """

    def __init__(self, values: Iterable[float | None]):
        # values: what must have room; None is left out
        known = [value for value in values if value is not None]
        room = 0.04 * (max(known) - min(known)) or 0.04 * abs(max(known)) or 1.0
        self.low, self.high = min(known) - room, max(known) + room
        places = MaxNLocator(5, steps=[1, 2, 5, 10]).tick_values(self.low, self.high)
        self.ticks = [float(at) for at in places if self.low <= at <= self.high]

    def _place(self, value: float) -> str:
        return f"{100 * (value - self.low) / (self.high - self.low):.4g}%"

    def axis(self, factor: float = 1) -> Markup:
        """Draw the numbers above the strips, times a factor: 100 for percent."""
        step = factor * (self.ticks[1] - self.ticks[0]) if len(self.ticks) > 1 else 1
        digits, texts = max(0, -math.floor(math.log10(step) + 1e-9)), []
        for i, at in enumerate(self.ticks):
            share = (at - self.low) / (self.high - self.low)
            anchor = "start" if share < 0.08 else "end" if share > 0.92 else "middle"
            look = ' class="more"' if i % 2 and len(self.ticks) > 2 else ""  # a phone has no room for all
            text = f"{factor * at:.{digits}f}"
            texts.append(f'<text{look} x="{self._place(at)}" y="12" text-anchor="{anchor}">{text}</text>')
        return Markup(f'<svg class="strip" height="16" aria-hidden="true">{"".join(texts)}</svg>')

    def strip(
        self,
        value: float,
        ends: Sequence[float | None] | None,
        bar: float | None = None,
        look: str = "dot",
        seeds: Iterable[float] = (),
    ) -> Markup:
        """Draw a score and its interval. The row contains both as text, too.

        `bar`: the score of guessing, or of a much simpler model. `look`: `hollow` for a published score. `seeds`: the
        scores of which it is the mean.
        """
        lines = [("grid", at, at, 0, 18) for at in self.ticks]
        lines += [] if bar is None else [("beside", bar, bar, 3, 15)]
        if ends and ends[0] is not None and ends[1] is not None:
            lines.append(("interval", ends[0], ends[1], 9, 9))
        drawn = [
            f'<line class="{kind}" x1="{self._place(a)}" x2="{self._place(b)}" y1="{top}" y2="{end}"/>'
            for kind, a, b, top, end in lines
        ]
        dots = [(look, value, 4), *(("seed", seed, 3) for seed in seeds)]
        drawn += [f'<circle class="{kind}" cx="{self._place(at)}" cy="9" r="{size}"/>' for kind, at, size in dots]
        return Markup(f'<svg class="strip" height="18" aria-hidden="true">{"".join(drawn)}</svg>')


def picture(label: str, panels: int, draw: Callable[[Any], None], alone: bool = False, height: int = 170) -> Markup:
    """Return a picture whose panels, one below the other over one x axis, `draw` fills.

    `label` describes it to readers who cannot see it. A picture that is `alone` is drawn twice, and the style sheet
    shows the one that fits the screen.
    """
    found = []
    for width in (NARROW, WIDE) if alone else (NARROW,):
        with mpl.rc_context(STYLE):
            size = width, (height if width == NARROW else 1.5 * height) * panels + 30
            figure = Figure(figsize=(size[0] / 72, size[1] / 72), layout="constrained")
            draw(figure.subplots(panels, 1, sharex=True, squeeze=False)[:, 0])
            file = io.StringIO()
            figure.savefig(
                file, format="svg", transparent=True, metadata=dict.fromkeys(("Date", "Creator", "Format", "Type"))
            )
        text = file.getvalue().partition("<svg ")[2].partition(">")[2]
        text = re.sub(r"<style[^<]*</style>|<!--.*?-->", "", text)
        text = re.sub(r' id="\w+(\.\w+)?_\d+"| transform="rotate\(-0 [^"]*\)"| font-family: [^;"]*;', "", text)
        for colour, name in VARIABLES.items():
            text = text.replace(colour, f"var(--{name})")
        text = re.sub(r'\s*\n\s*(?=[<"])|(?<=>)\s+', "", text).replace("\n", " ")
        box = f'viewBox="0 0 {size[0]} {size[1]:g}" role="img" aria-label="{escape(line(label))}"'
        found.append(f'<svg class="curves" {box}>{text}')
    return Markup(
        found[0] if len(found) == 1 else f'<div class="narrow">{found[0]}</div><div class="broad">{found[1]}</div>'
    )


def over_tokens(axes: Axes) -> None:
    """Give the lowest panel of losses its axis of tokens."""
    axes.set_xlabel("tokens")
    axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(lambda at, _: short(at) if at else "0")


def training_picture(model: str, losses: Frame) -> Markup:
    """Draw the losses of a run over tokens, on the axes that it shares with the runs beside it.

    `losses`: of all these runs, with the columns model, kind (of rows), curve (of LOOKS), tokens and loss.
    """
    mine, alone = losses[losses["model"] == model], losses["model"].nunique() == 1
    kinds = list(mine["kind"].unique())

    def draw(panels: Sequence[Axes]) -> None:
        for axes, kind in zip(panels, kinds, strict=True):
            for name, points in mine[mine["kind"] == kind].groupby("curve", sort=False):
                size = math.ceil(len(points) / POINTS)
                means = points[["tokens", "loss"]].groupby([i // size for i in range(len(points))]).mean()
                axes.plot(means["tokens"], means["loss"], **LOOKS[str(name)])
            every = losses[losses["kind"] == kind]["loss"]
            axes.set(title=f"{line(kind)}, nats per target", xlim=(0, losses["tokens"].max()))
            if every.min() > 0:  # the first steps have losses several times those of the last
                axes.set(
                    yscale="log",
                    ylim=(every.min() / 1.05, every.max() * 1.05),
                    title=f"{line(kind)}, nats per target (log)",
                )
                axes.minorticks_off()
                axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
                axes.yaxis.set_major_formatter("{x:g}")
        panels[0].legend()
        over_tokens(panels[-1])

    last = mine[mine["curve"] == "raw"].groupby("kind", sort=False)["loss"].last()
    ends = ", ".join(f"{kind} {loss:.3f}" for kind, loss in last.items())
    return picture(f"Training of {model}; last losses on the validation text: {ends}", len(kinds), draw, alone)


def overlaid(losses: Frame) -> Markup | None:
    """Draw the validation losses of recipes over each other: the mean of a recipe's runs, between their extremes.

    `losses`: as for `training_picture`, with the column `recipe`. None if no run validated.
    """
    best = losses[losses["curve"] != "training"]
    averaged = best[best["curve"] == "averaged"]["model"].unique()
    best = best[(best["curve"] == "averaged") | ~best["model"].isin(averaged)]
    runs = best.groupby(["kind", "recipe"])["model"].nunique().rename("runs")
    ends = best.groupby(["kind", "recipe", "tokens"], sort=False)["loss"].agg(["mean", "min", "max", "count"])
    ends = ends.reset_index().join(runs, on=["kind", "recipe"])
    ends = ends[ends["count"] == ends["runs"]]  # runs may differ in where they were validated (`run.validate_every`)
    kinds, recipes = list(ends["kind"].unique()), list(losses["recipe"].unique())

    def draw(panels: Sequence[Axes]) -> None:
        for axes, kind in zip(panels, kinds, strict=True):
            for recipe, found in ends[ends["kind"] == kind].groupby("recipe", sort=False):
                number = recipes.index(recipe)
                colour, dash = COLOURS[number % len(COLOURS)], DASHES[number % len(DASHES)]
                axes.plot(found["tokens"], found["mean"], color=colour, ls=dash, lw=1.6, label=line(recipe, 80))
                axes.fill_between(found["tokens"], found["min"], found["max"], color=colour, alpha=0.15, lw=0)
            axes.set_title(f"{line(kind)}, nats per target, on the validation text")
        panels[0].legend()
        over_tokens(panels[-1])

    label = f"Validation losses of {len(recipes)} recipes over tokens"
    return picture(label, len(kinds), draw, alone=True) if kinds else None


def learning_picture(title: str, scores: Frame, ends: tuple[float, float], alone: bool) -> Markup:
    """Draw the scores of a model's snapshots over the words that they had read; a dashed line marks guessing.

    `scores`: percent, with the columns million_words, score, low, high and simple, the earliest first. `ends`: of the
    axis of scores, as in the pictures beside it.
    """
    words, means = scores["million_words"], scores["score"]

    def draw(panels: Any) -> None:
        (axes,) = panels
        axes.vlines(words, scores["low"], scores["high"], color=COLOURS[0], alpha=0.6)
        axes.plot(words, means, color=COLOURS[0], marker="o", ms=4)
        axes.axhline(scores["simple"].iloc[0], color=COLOURS[1], ls=(0, (4, 3)), lw=1.2)
        axes.set(title=line(title), xlabel="million words (log)", xscale="log", ylim=ends)
        axes.minorticks_off()
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter("{x:g}")

    points = (f"{at:.3g} million words {score:.1f}" for at, score in zip(words, means, strict=True))
    return picture(f"{title}: {', '.join(points)}", 1, draw, alone)
