"""Compute the means in a line of the record from sums over targets."""

import math
from typing import Any

import numpy as np

from babelmill.training.networks.loss import STATISTICS
from babelmill.training.plan.objectives import Objective


def summarize(sums: np.ndarray, counts: np.ndarray, languages: list[str], objective: Objective) -> dict[str, Any]:
    """Return means, computed from sums by group; `Objective` says what a group is.

    Args:
        sums: [groups, 3], see `loss.STATISTICS`.
        counts: [groups] numbers of targets.
        languages: their names.
        objective: says what kinds of rows there are, and their weights.
    """
    losses = [f"loss_{kind.name}" for kind in objective.kinds]

    def means(sums: np.ndarray, counts: np.ndarray) -> dict[str, float | None]:
        """Return the means from [kinds, 3] sums and [kinds] counts of targets."""
        values, combined = {}, {}
        for i, name in enumerate(STATISTICS):
            values[name] = [float(s / c) if c else None for s, c in zip(sums[:, i], counts, strict=True)]
            combined[name] = objective.combine(values[name])
        loss = combined["cross_entropy"]
        return {
            "loss": loss,
            **dict(zip(losses, values["cross_entropy"], strict=True)),
            "perplexity": None if loss is None else math.exp(min(loss, 700.0)),
            "accuracy": combined["correct"],
            "z_loss": combined["z"],
        }

    kinds = len(objective.kinds)
    sums, counts = sums.reshape(-1, kinds, len(STATISTICS)), counts.reshape(-1, kinds)
    result: dict[str, Any] = means(sums.sum(0), counts.sum(0))
    if len(languages) > 1:
        result["languages"] = {
            name: {key: value for key, value in means(sums[i], counts[i]).items() if key in ("loss", *losses)}
            for i, name in enumerate(languages)
        }
    return result
