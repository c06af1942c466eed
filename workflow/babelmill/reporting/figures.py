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
from babelmill.release.card.training_history import plot_losses
from babelmill.reporting.table import Frame

WIDTH, HEIGHT = 360, 210  # of a picture, in pixels: as wide as a phone; wider screens have several beside each other
INK, SOFT, LINE, BLUE, RED = "#1b1f24", "#57606a", "#d8dee4", "#0072b2", "#d55e00"
VARIABLES = {INK: "ink", SOFT: "soft", LINE: "line", BLUE: "c0", RED: "c1"}
STYLE: Any = {
    **{"svg.fonttype": "none", "svg.hashsalt": "babelmill", "text.parse_math": False, "font.size": 8.5},
    **{f"axes.spines.{side}": False for side in ("left", "right", "top")},
    **{"axes.edgecolor": LINE, "axes.grid": True, "grid.color": LINE, "axes.axisbelow": True, "axes.xmargin": 0.01},
    **{"axes.titlesize": 8.5, "axes.titleweight": "bold", "axes.titlelocation": "left", "axes.titlecolor": INK},
    **{"axes.labelcolor": SOFT, "text.color": INK, "legend.frameon": False, "legend.fontsize": "small"},
    **{f"{axis}tick.{key}": value for axis in "xy" for key, value in (("labelcolor", SOFT), ("major.size", 0))},
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
        step, texts = factor * (self.ticks[1] - self.ticks[0]) if len(self.ticks) > 1 else 1, []
        digits = max(0, -math.floor(math.log10(step) + 1e-9))
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


def picture(label: str, draw: Callable[[Axes], None]) -> Markup:
    """Return a picture of one pair of axes, which `draw` fills; `label` describes it to readers who cannot see it."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH / 72, HEIGHT / 72), layout="constrained")
        draw(figure.subplots())
        file = io.StringIO()
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(file, format="svg", transparent=True, metadata=nothing)
    text = file.getvalue().partition("<svg ")[2].partition(">")[2]
    text = re.sub(r"<style[^<]*</style>|<!--.*?-->", "", text)
    text = re.sub(r' id="\w+(\.\w+)?_\d+"| transform="rotate\(-0 [^"]*\)"| font-family: [^;"]*;', "", text)
    for colour, name in VARIABLES.items():
        text = text.replace(colour, f"var(--{name})")
    text = re.sub(r'\s*\n\s*(?=[<"])|(?<=>)\s+', "", text).replace("\n", " ")
    box = f'viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(line(label))}"'
    return Markup(f'<svg class="curves" {box}>{text}')


def training_picture(model: str, kind: str, mine: Frame, shared: Frame) -> Markup:
    """Draw the losses of one kind of rows of a run over tokens; see `plot_losses`."""
    ends = mine[(mine["kind"] == kind) & (mine["curve"] == "last")]["loss"]
    last = f"; last loss on the validation text: {ends.iloc[-1]:.3f}" if len(ends) else ""
    return picture(f"Training of {model}, {kind}{last}", lambda axes: plot_losses(axes, kind, mine, shared))


def learning_picture(title: str, scores: Frame, ends: tuple[float, float]) -> Markup:
    """Draw the scores of a model's snapshots over the words that they had read; a dashed line marks guessing.

    `scores`: percent, with the columns million_words, score, low, high and simple, the earliest first. `ends`: of the
    axis of scores, as in the pictures beside it.
    """
    words, means = scores["million_words"], scores["score"]

    def draw(axes: Axes) -> None:
        axes.vlines(words, scores["low"], scores["high"], color=BLUE, alpha=0.6)
        axes.plot(words, means, color=BLUE, marker="o", ms=4)
        axes.axhline(scores["simple"].iloc[0], color=RED, ls=(0, (4, 3)), lw=1.2)
        axes.set(title=line(title), xlabel="million words (log)", xscale="log", ylim=ends)
        axes.minorticks_off()
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter("{x:g}")

    points = (f"{at:.3g} million words {score:.1f}" for at, score in zip(words, means, strict=True))
    return picture(f"{title}: {', '.join(points)}", draw)
