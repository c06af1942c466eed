"""Make the history of a training run from only its record `metrics.jsonl`: lists of losses, and a picture of them.

`convert` puts both files into the folder of the model. A running training calls `update` at each validation, in a
thread (`runtime/watching.py`).

The keys of `training_history.json` (losses are cross-entropies in nats per target, or null if they are not known):
    unit, kinds         the unit of the losses; the kinds of rows, such as `masked` and `causal`
    step, epoch         the end of the record: number of steps done, number of passes over the text
    epochs              the number of each pass, from 1; the last may be unfinished. A line of the record belongs to the
                        pass in which it began. The lists below have one entry per pass, in the same order:
    train_losses        the mean over the pass, for the rows as they are trained (with dropout)
    val_losses          the last validation of the pass
    ema_val_losses      the same with the averaged weights, if the run keeps them
    gaps                |train_losses - val_losses|
    masked, causal      these four lists for one kind of rows
    validations         the same with one entry per validation: `steps`, `epochs`, and the lists above, in which
                        `train_losses` are means since the previous validation
"""

import bisect
import json
import math
from pathlib import Path
from typing import IO, Any

from babelmill.core.files import atomic_write, write_json

JSON, PICTURE = "training_history.json", "training_history.png"
# The colours of Okabe and Ito. They differ even for readers who cannot tell red from green, and when printed in grey.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")

Line = dict[str, Any]


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
    for line in _of_kind(record, "train"):
        seconds += (line["tokens"] - before) / line["tokens_per_second"]
        before = line["tokens"]
    return seconds / 3600


def history(record: list[Line]) -> dict[str, Any]:
    """Return the content of training_history.json; the module's docstring describes it."""
    train, validations = _of_kind(record, "train"), _of_kind(record, "validation")
    names = dict.fromkeys(name for line in record for name in line if name.startswith("loss_"))
    kinds = [name.removeprefix("loss_") for name in names if any(line.get(name) is not None for line in record)]
    averaged = any(line.get("ema_loss") != line["loss"] for line in validations)  # equal if there is no average
    steps = [line["step"] for line in train]
    done = [bisect.bisect_right(steps, line["step"]) for line in validations]  # training lines before each
    began = [0.0, *(line["epoch"] for line in train)]
    passes = [math.floor(epoch + 1e-9) + 1 for epoch in began[:-1]]  # the pass in which each training line began
    epochs = list(dict.fromkeys(passes))
    ends = {passes[count - 1]: line for count, line in zip(done, validations, strict=True) if count}
    of_epochs = [
        (range(bisect.bisect_left(passes, n), bisect.bisect_right(passes, n)), ends.get(n, {})) for n in epochs
    ]
    of_validations = list(zip(map(range, [0, *done[:-1]], done), validations, strict=True))
    return {
        "unit": "nats per target",
        "kinds": kinds,
        "step": max((line["step"] for line in record), default=0),
        "epoch": began[-1],
        "epochs": epochs,
        **_lists(of_epochs, train, kinds, averaged),
        "validations": {
            "steps": [line["step"] for line in validations],
            "epochs": [began[count] for count in done],
            **_lists(of_validations, train, kinds, averaged),
        },
    }


def _of_kind(record: list[Line], kind: str) -> list[Line]:
    return [line for line in record if line["kind"] == kind]


def _lists(parts: list[tuple[range, Line]], train: list[Line], kinds: list[str], averaged: bool) -> dict[str, Any]:
    """Return the lists of losses, over all rows and for each kind of rows.

    `parts` are those of the run, one per entry of the lists: the indices of its lines in `train`, and its last
    validation, which is empty if there is none. `averaged`: whether there are losses of averaged weights.
    """
    tokens = [after["tokens"] - before["tokens"] for before, after in zip([{"tokens": 0}, *train], train, strict=False)]

    def lists_of(name: str) -> dict[str, list[float | None]]:
        means = [_mean([(train[i].get(name), tokens[i]) for i in lines]) for lines, _ in parts]
        last = [validation.get(name) for _, validation in parts]
        pairs = zip(means, last, strict=True)
        lists = {
            "train_losses": means,
            "val_losses": last,
            "gaps": [None if mean is None or loss is None else abs(mean - loss) for mean, loss in pairs],
        }
        return lists | ({"ema_val_losses": [each.get(f"ema_{name}") for _, each in parts]} if averaged else {})

    return lists_of("loss") | {kind: lists_of(f"loss_{kind}") for kind in kinds}


def _mean(weighted: list[tuple[float | None, float]]) -> float | None:
    """Return the mean of (value, weight) pairs, or None if no value is known."""
    known = [(value, weight) for value, weight in weighted if value is not None]
    return math.fsum(value * weight for value, weight in known) / sum(weight for _, weight in known) if known else None


def training_curves(record: list[Line]) -> dict[str, Any]:
    """Return the curves of a run over its tokens, each a list of (tokens, value) without unknown values.

    Beside "steps" and "tokens" of the run and the curves "learning_rate" and "sequence_length", there are "kinds", with
    three curves of losses for each kind of rows: "training" (with dropout, if it is used), and, on the validation text,
    "raw" (last weights) and "averaged" (averaged weights).
    """
    found, train, validations = history(record), _of_kind(record, "train"), _of_kind(record, "validation")
    steps = [0, *(line["step"] for line in train)]
    tokens = [0, *(line["tokens"] for line in train)]
    averaged = "ema_val_losses" in found

    def curve(lines: list[Line], name: str) -> list[tuple[float, float]]:
        places = [tokens[bisect.bisect_right(steps, line["step"]) - 1] for line in lines]
        values = [line.get(name) for line in lines]
        return [(at, value) for at, value in zip(places, values, strict=True) if value is not None]

    return {
        "steps": found["step"],
        "tokens": tokens[-1],
        "learning_rate": curve(train, "learning_rate"),
        "sequence_length": curve(train, "sequence_length"),
        "kinds": {
            kind: {
                "training": curve(train, f"loss_{kind}"),
                "raw": curve(validations, f"loss_{kind}"),
                "averaged": curve(validations, f"ema_loss_{kind}") if averaged else [],
            }
            for kind in found["kinds"]
        },
    }


STYLES: dict[str, dict[str, Any]] = {
    "training": {"label": "training", "color": "#999999", "lw": 0.9},
    "raw": {"label": "validation, last weights", "color": COLOURS[1], "marker": "o", "ms": 4, "lw": 1.4},
    "averaged": {
        "label": "validation, averaged weights",
        "color": COLOURS[0],
        "marker": "s",
        "mfc": "white",
        "ms": 4,
        "ls": "--",
        "lw": 1.6,
    },
}


def draw(record: list[Line], name: str, file: IO[bytes]) -> None:
    """Draw a PNG. Each kind of rows has a panel of losses over tokens and steps, with the schedules below it."""
    from matplotlib.figure import Figure

    curves = training_curves(record)
    kinds = list(curves["kinds"]) or [""]
    figure = Figure(figsize=(11, 5.5), layout="constrained")
    grid = figure.subplots(3, len(kinds), sharex=True, squeeze=False, height_ratios=(6, 1, 1))
    for column, kind in zip(grid.T, kinds, strict=True):
        _draw_losses(column[0], kind, curves["kinds"].get(kind, {}))
        _draw_schedule(column[1], curves["learning_rate"], "learning\nrate")
        _draw_schedule(column[2], curves["sequence_length"], "sequence\nlength", drawstyle="steps-pre")
        _name_axes(column, curves)
    grid[0][0].set(ylabel="cross-entropy (nats per target)")
    epoch = history(record)["epoch"]
    figure.suptitle(f"{name}: {curves['steps']:,} steps, {epoch:.3g} epochs")
    figure.savefig(file, format="png", dpi=120, metadata={"Software": None})


def _draw_losses(axes: Any, kind: str, curves: dict[str, list[tuple[float, float]]]) -> None:
    """Draw the losses of one kind of rows. The scale ignores the high losses of the first steps."""
    known = {name: points for name, points in curves.items() if points}
    for name, points in known.items():
        axes.plot(*zip(*points, strict=True), **STYLES[name])
    axes.set(title=kind)
    train = known.get("training", [])
    shown = [loss for name, points in known.items() if name != "training" for _, loss in points]
    shown += [loss for _, loss in train[len(train) // 10 :]]
    if shown:
        room = 0.05 * (max(shown) - min(shown)) or 0.5
        axes.set_ylim(min(shown) - room, max(shown) + room)
        axes.legend(fontsize="small")
    if not known.keys() - {"training"}:
        axes.text(0.5, 0.5, "no validation yet", transform=axes.transAxes, ha="center", color="#555555")


def _draw_schedule(axes: Any, points: list[tuple[float, float]], label: str, **style: Any) -> None:
    """Draw the curve of one scheduled value, such as the learning rate."""
    if points:
        axes.plot(*zip(*points, strict=True), color=COLOURS[2], lw=1.4, **style)
    axes.set_ylabel(label, fontsize="small", rotation=0, ha="right", va="center")
    axes.set_ylim(0, 1.15 * max((value for _, value in points), default=1))


def _name_axes(column: Any, curves: dict[str, Any]) -> None:
    """Label the axes of a column: tokens below it, steps above it."""
    from matplotlib.ticker import EngFormatter, MaxNLocator

    tokens, steps = curves["tokens"] or 1, curves["steps"] or 1
    for axes in column:
        axes.set_xlim(0, tokens * 1.02)
        axes.grid(alpha=0.3)
    column[-1].xaxis.set_major_formatter(EngFormatter(sep=""))
    column[-1].set(xlabel="tokens")
    above = column[0].secondary_xaxis("top", functions=(lambda x: x * steps / tokens, lambda x: x * tokens / steps))
    above.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    above.set_xlabel("steps", fontsize="small")


def write(folder: Path, record: list[Line], name: str, drawn: bool = True) -> list[str]:
    """Write training_history.json and, if `drawn`, the picture. Return their names."""
    write_json(folder / JSON, history(record))
    if not drawn:
        return [JSON]
    with atomic_write(folder / PICTURE) as file:
        draw(record, name, file)
    return [JSON, PICTURE]


def update(folder: Path, name: str, drawn: bool) -> None:
    """Write the history of a run that goes on into its folder; see `write`."""
    write(folder, read_record(folder / "metrics.jsonl"), name, drawn)
