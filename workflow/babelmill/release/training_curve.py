"""What `metrics.jsonl` says about a finished training run: how long it took, and a picture of its losses."""

import json
import logging
from pathlib import Path
from typing import IO

import pandas as pd


def read_metrics(path: Path) -> pd.DataFrame:
    """Return metrics.jsonl as a table, one row per line."""
    with open(path, encoding="utf-8") as file:
        return pd.DataFrame([json.loads(line) for line in file])


def training_hours(metrics: pd.DataFrame) -> float:
    """Return the hours of training steps, over all attempts: tokens of each logged window over its speed."""
    lines = metrics.loc[metrics["kind"] == "train"]
    return float((lines["tokens"].diff().fillna(lines["tokens"]) / lines["tokens_per_second"]).sum() / 3600)


def draw_curve(metrics: pd.DataFrame, file: IO[bytes]) -> None:
    """Draw a PNG of the loss by step: training by objective, validation of last and averaged weights."""
    import matplotlib

    matplotlib.use("Agg")
    logging.getLogger("matplotlib").setLevel(logging.WARNING)
    from matplotlib import pyplot

    train, validation = (metrics.loc[metrics["kind"] == kind] for kind in ("train", "validation"))
    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    for column in (name for name in train.columns if name.startswith("loss_")):
        if train[column].notna().any():
            label = f"training, {column.removeprefix('loss_')}"
            axes.plot(train["step"], train[column].astype(float), linewidth=1, label=label)
    if len(validation):
        axes.plot(validation["step"], validation["loss"], "o-", markersize=3, label="validation, last weights")
        if (validation["ema_loss"] != validation["loss"]).any():  # the same without an average
            label = "validation, averaged weights"
            axes.plot(validation["step"], validation["ema_loss"], "o-", markersize=3, label=label)
    axes.set(xlabel="step", ylabel="cross-entropy (nats a target)")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(file, format="png", dpi=120, metadata={"Software": None})
    pyplot.close(figure)
