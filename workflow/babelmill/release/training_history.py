"""The history of a training run, made from its record `metrics.jsonl` alone: lists of losses, and a picture of them.

    python -m babelmill.release.training_history results/checkpoints/eng/2f61c0de8a91b7d3 eng --draw

`convert` puts both files into the folder of the model. A run that goes on starts this command at each validation
(`runtime/history.py`), in a process of its own: what is drawn neither delays nor stops the training.

`training_history.json`; losses are cross-entropies in nats per target, null where there is none:
    unit, kinds         of the losses; the kinds of rows, such as `masked` and `causal`
    step, epoch         how far the record is: steps done, passes over the text
    epochs              the number of each pass, from 1; the last may be unfinished. A line of the record belongs to the
                        pass that it began in. For each pass, in the same order:
    train_losses        mean over the pass, of the rows as they are trained (with dropout)
    val_losses          the last validation of the pass
    ema_val_losses      the same with the averaged weights, where the run keeps them
    gaps                |train_losses - val_losses|
    masked, causal      each with these four lists, for the one kind of rows
    validations         the same for each validation in place of each pass: `steps`, `epochs`, and the lists above, in
                        which `train_losses` are means since the validation before
"""

import argparse
import bisect
import json
import math
import os
import sys
from pathlib import Path
from typing import IO, Any, NamedTuple

from babelmill.core.files import atomic_write, write_json

JSON, PICTURE = "training_history.json", "training_history.png"
BY_EPOCH = 3  # passes from which on the picture is by pass, not by step
# Of Okabe and Ito: they are told apart without red and green, and on grey paper.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")

Line = dict[str, Any]


class Part(NamedTuple):
    """A part of a run: which of its training lines, and its validations."""

    train: range
    validations: list[Line]


def read_record(path: Path) -> list[Line]:
    """Return the lines of a metrics.jsonl; a last one that is not whole, of a run that goes on, is left out."""
    lines = []
    for text in path.read_text(encoding="utf-8").splitlines():
        try:
            lines.append(json.loads(text))
        except ValueError:
            break
    return lines


def training_hours(record: list[Line]) -> float:
    """Return the hours of training steps, over all attempts: tokens of each logged window over its speed."""
    seconds, before = 0.0, 0
    for line in _of_kind(record, "train"):
        seconds += (line["tokens"] - before) / line["tokens_per_second"]
        before = line["tokens"]
    return seconds / 3600


def history(record: list[Line]) -> dict[str, Any]:
    """Return what training_history.json holds, see above."""
    train, validations = _of_kind(record, "train"), _of_kind(record, "validation")
    names = dict.fromkeys(name for line in record for name in line if name.startswith("loss_"))
    kinds = [name.removeprefix("loss_") for name in names if any(line.get(name) is not None for line in record)]
    averaged = any(line.get("ema_loss") != line["loss"] for line in validations)  # the same without an average
    steps = [line["step"] for line in train]
    done = [bisect.bisect_right(steps, line["step"]) for line in validations]  # training lines before each
    began = [0.0, *(line["epoch"] for line in train)]
    passes = [math.floor(epoch + 1e-9) + 1 for epoch in began[:-1]]  # of each training line, the pass it began in
    epochs = list(dict.fromkeys(passes))
    of_epochs = [Part(range(bisect.bisect_left(passes, n), bisect.bisect_right(passes, n)), []) for n in epochs]
    for line, count in zip(validations, done, strict=True):
        if count:
            of_epochs[epochs.index(passes[count - 1])].validations.append(line)
    of_validations = [
        Part(range(first, last), [line]) for first, last, line in zip([0, *done], done, validations, strict=False)
    ]
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


def _lists(parts: list[Part], train: list[Line], kinds: list[str], averaged: bool) -> dict[str, Any]:
    """Return the lists of losses, of all rows and of each kind.

    Args:
        parts: of the run, one for each entry of the lists.
        train: all training lines.
        kinds: of rows.
        averaged: whether there are losses of averaged weights.
    """
    tokens = [after["tokens"] - before["tokens"] for before, after in zip([{"tokens": 0}, *train], train, strict=False)]

    def lists_of(name: str) -> dict[str, list[float | None]]:
        means = [_mean([(train[i].get(name), tokens[i]) for i in part.train]) for part in parts]
        last = [part.validations[-1].get(name) if part.validations else None for part in parts]
        pairs = zip(means, last, strict=True)
        lists = {
            "train_losses": means,
            "val_losses": last,
            "gaps": [None if mean is None or loss is None else abs(mean - loss) for mean, loss in pairs],
        }
        if averaged:
            lists["ema_val_losses"] = [
                part.validations[-1].get(f"ema_{name}") if part.validations else None for part in parts
            ]
        return lists

    return lists_of("loss") | {kind: lists_of(f"loss_{kind}") for kind in kinds}


def _mean(weighted: list[tuple[float | None, float]]) -> float | None:
    """Return the mean of (value, weight) pairs; None if no value is known."""
    known = [(value, weight) for value, weight in weighted if value is not None]
    return math.fsum(value * weight for value, weight in known) / sum(weight for _, weight in known) if known else None


def draw(record: list[Line], name: str, file: IO[bytes]) -> None:
    """Draw a PNG of two panels: the losses of each kind of rows, and how far training and validation are apart.

    Args:
        record: the lines of the run so far.
        name: of the model, for the title.
        file: to write to.
    """
    from matplotlib.figure import Figure

    found, train = history(record), _of_kind(record, "train")
    by_epoch, validations = found["epoch"] >= BY_EPOCH, found["validations"]
    at_train = [line["epoch" if by_epoch else "step"] for line in train]
    at = validations["epochs" if by_epoch else "steps"]
    figure = Figure(figsize=(11, 4.5), layout="constrained")
    losses, gaps = figure.subplots(1, 2, width_ratios=(3, 2))
    for kind, colour in zip(found["kinds"], COLOURS, strict=False):
        of_kind = validations[kind]
        _curve(losses, at_train, [line.get(f"loss_{kind}") for line in train], f"{kind}, training", color=colour, lw=1)
        _curve(losses, at, of_kind["val_losses"], f"{kind}, validation", marker="o", color=colour, lw=1.6, ms=4)
        if "ema_val_losses" in of_kind:
            averaged = {"marker": "s", "ls": "--", "mfc": "white", "ms": 4, "lw": 1.2}
            label = f"{kind}, validation of averaged weights"
            _curve(losses, at, of_kind["ema_val_losses"], label, color=colour, **averaged)
        _curve(gaps, at, of_kind["gaps"], kind, marker="o", color=colour, lw=1.6, ms=4)
    unit = "nats per target"
    losses.set(title="Loss", ylabel=f"cross-entropy ({unit})")
    gaps.set(title="|training - validation|, last weights", ylabel=f"difference ({unit})", ylim=(0, None))
    ends = (0, at_train[-1] * 1.02) if at_train else (0, 1)
    for axes in (losses, gaps):
        axes.set(xlabel="epoch (passes over the text)" if by_epoch else "step", xlim=ends)
        axes.grid(alpha=0.3)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(fontsize="small")
        else:
            axes.text(0.5, 0.5, "no validation yet", transform=axes.transAxes, ha="center", color="grey")
    figure.suptitle(f"{name}: {found['step']:,} steps, {found['epoch']:.3g} epochs")
    figure.savefig(file, format="png", dpi=120, metadata={"Software": None})


def _curve(axes: Any, at: list[float], values: list[float | None], label: str, **style: Any) -> None:
    """Draw the known values; nothing, and no entry in the legend, if there is none."""
    known = [(x, value) for x, value in zip(at, values, strict=True) if value is not None]
    if known:
        style = {"alpha": 0.45, **style} if "marker" not in style else style
        axes.plot([x for x, _ in known], [value for _, value in known], label=label, **style)


def write(folder: Path, record: list[Line], name: str, drawn: bool = True) -> list[str]:
    """Write training_history.json and, if it is to be `drawn`, the picture. Returns their names."""
    write_json(folder / JSON, history(record))
    if not drawn:
        return [JSON]
    with atomic_write(folder / PICTURE) as file:
        draw(record, name, file)
    return [JSON, PICTURE]


def main() -> int:
    """Write the history of a run into its folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="of the run, with its metrics.jsonl")
    parser.add_argument("name", help="of the model")
    parser.add_argument("--draw", action="store_true", help="the picture, too")
    args = parser.parse_args()
    os.nice(10)  # the training comes first
    write(args.folder, read_record(args.folder / "metrics.jsonl"), args.name, args.draw)
    return 0


if __name__ == "__main__":
    sys.exit(main())
