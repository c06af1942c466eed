"""Read the record of a training, `metrics.jsonl`, and draw the picture of its losses.

`convert` puts both files into the folder of the model. Losses are cross-entropies in nats per target.
"""

import json
import math
from pathlib import Path
from typing import Any

from babelmill.core import escape
from babelmill.core.files import atomic_write

RECORD, PICTURE = "metrics.jsonl", "training_history.png"
POINTS = 120  # points per curve at most; more could not be seen
# Curves differ in colour (of Okabe and Ito, whom readers who confuse red and green can tell apart), marker and dash.
CURVES: dict[str, dict[str, Any]] = {
    "training": {"label": "training", "color": "#57606a", "alpha": 0.6, "lw": 1},
    "last": {"label": "validation, last weights", "color": "#d55e00", "marker": "o", "ms": 3, "lw": 1.4},
    "averaged": {"label": "validation, averaged weights", "color": "#0072b2", "marker": "s", "ms": 3, "ls": "--"},
}

Line = dict[str, Any]
Frame = Any  # a pandas.DataFrame; no type checker can follow the annotations of pandas


def read_record(path: Path) -> list[Line]:
    """Return the lines of a metrics.jsonl. An incomplete last line, which a running training may write, is dropped."""
    lines = []
    for text in path.read_text(encoding="utf-8").splitlines():
        try:
            lines.append(json.loads(text))
        except ValueError:
            break
    return lines


def training_hours(record: list[Line]) -> float:
    """Return the hours that the training steps took, over all attempts: for each logged window, tokens / speed."""
    seconds, before = 0.0, 0
    for line in record:
        if line["kind"] == "train":
            seconds += (line["tokens"] - before) / line["tokens_per_second"]
            before = line["tokens"]
    return seconds / 3600


def losses(record: list[Line]) -> Frame:
    """Return the known losses of a run, with the columns `kind` (of rows), `curve` (of CURVES), `tokens` and `loss`."""
    import pandas as pd  # takes long to import

    averaged = any(line.get("ema_loss") != line["loss"] for line in record if line["kind"] == "validation")
    tokens, found = 0, list[tuple[str, str, int, float]]()
    for line in record:
        tokens = line.get("tokens", tokens)  # of a validation, those of the training line before it
        for name, loss in line.items():
            weights, of_loss, kind = name.partition("loss_")
            if of_loss and loss is not None and (averaged or not weights):
                curve = "training" if line["kind"] == "train" else "averaged" if weights else "last"
                found.append((kind, curve, tokens, loss))
    return pd.DataFrame(found, columns=pd.Index(["kind", "curve", "tokens", "loss"]))


def plot_losses(axes: Any, kind: str, mine: Frame, shared: Frame) -> None:
    """Draw the losses of one kind of rows of a run; `shared`: the losses of all runs on equal axes."""
    from matplotlib.ticker import EngFormatter, MaxNLocator

    for name, curve in mine[mine["kind"] == kind].groupby("curve", sort=False):
        size = math.ceil(len(curve) / POINTS)
        means = curve[["tokens", "loss"]].groupby([i // size for i in range(len(curve))]).mean()
        axes.plot(means["tokens"], means["loss"], **CURVES[str(name)])
    every = shared[shared["kind"] == kind]["loss"]
    title = f"{escape.line(kind)}, nats per target"
    axes.set(title=title, xlabel="tokens", xlim=(0, shared["tokens"].max()))
    axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(EngFormatter())
    if every.min() > 0:  # the first steps have losses several times those of the last
        axes.set(yscale="log", ylim=(every.min() / 1.05, every.max() * 1.05), title=f"{title} (log)")
        axes.minorticks_off()
        axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
        axes.yaxis.set_major_formatter("{x:g}")
    axes.legend()


def draw(folder: Path, name: str) -> None:
    """Draw the picture of the run whose record is in a folder, beside it; none if the record has no losses."""
    from matplotlib.figure import Figure

    record = read_record(folder / RECORD)
    found = losses(record)
    kinds = list(found["kind"].unique())
    if not kinds:
        return
    figure = Figure(figsize=(5.5 * len(kinds), 4), layout="constrained")
    for axes, kind in zip(figure.subplots(1, len(kinds), squeeze=False)[0], kinds, strict=True):
        plot_losses(axes, kind, found, found)
        axes.grid(alpha=0.3)
    figure.suptitle(f"{name}: {max(each['step'] for each in record):,} steps")
    with atomic_write(folder / PICTURE) as file:
        figure.savefig(file, format="png", dpi=120, metadata={"Software": None})
