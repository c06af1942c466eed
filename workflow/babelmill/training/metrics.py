"""The means that a line of the record holds, from sums over targets."""

import math
from typing import Any

import numpy as np

from babelmill.training.objectives import STATISTICS, Objective


def summarize(sums: np.ndarray, counts: np.ndarray, languages: list[str], objective: Objective) -> dict[str, Any]:
    """Return means from sums by group (2 language + (0 masked, 1 causal)).

    Args:
        sums: [groups, 3], see `objectives.STATISTICS`.
        counts: [groups] numbers of targets.
        languages: their names.
        objective: how the two kinds weigh.
    """

    def means(sums: np.ndarray, counts: np.ndarray) -> dict[str, float | None]:
        """Return the means from [2, 3] sums and [2] counts of masked and causal targets."""
        values = {}
        for i, name in enumerate(STATISTICS):
            masked, causal = (float(s / c) if c else None for s, c in zip(sums[:, i], counts, strict=True))
            values[name] = masked, causal, objective.combine(masked, causal)
        masked, causal, both = values["cross_entropy"]
        return {
            "loss": both,
            "loss_masked": masked,
            "loss_causal": causal,
            "perplexity": None if both is None else math.exp(min(both, 700.0)),
            "accuracy": values["correct"][2],
            "z_loss": values["z"][2],
        }

    sums, counts = sums.reshape(-1, 2, len(STATISTICS)), counts.reshape(-1, 2)
    result: dict[str, Any] = means(sums.sum(0), counts.sum(0))
    if len(languages) > 1:
        keys = ("loss", "loss_masked", "loss_causal")
        result["languages"] = {
            name: {key: value for key, value in means(sums[i], counts[i]).items() if key in keys}
            for i, name in enumerate(languages)
        }
    return result
