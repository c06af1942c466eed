"""What the scores of pairs mean: the shares that a model gets right, with intervals, by phenomenon and paradigm."""

import hashlib
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

Z = 1.959963984540054  # of the normal distribution, for 95 %


def right(good: np.ndarray, bad: np.ndarray) -> np.ndarray:
    """Return whether the good sentence of each pair has the higher score: 1, 0, or 1/2 where both have the same."""
    return np.where(good == bad, 0.5, (good > bad).astype(float))


def wilson(share: float, count: int) -> list[float]:
    """Return the 95 % interval of a share of `count` pairs (Wilson, 1927)."""
    middle = share + Z * Z / (2 * count)
    half = Z * math.sqrt(share * (1 - share) / count + Z * Z / (4 * count * count))
    return [max(0.0, (middle - half) / (1 + Z * Z / count)), min(1.0, (middle + half) / (1 + Z * Z / count))]


def share(points: np.ndarray) -> dict[str, Any]:
    """Return the share of pairs that are right: {"score", "n", "interval"}."""
    score = float(points.mean())
    return {"score": score, "n": len(points), "interval": wilson(score, len(points))}


def mean_of_groups(groups: Iterable[np.ndarray]) -> dict[str, Any]:
    """Return the unweighted mean of the shares of groups, its interval from the standard error over strata."""
    groups = list(groups)
    score = float(np.mean([group.mean() for group in groups]))
    # A group that is all right or all wrong is not free of error: Agresti and Coull's share, with two more of each.
    guarded = [((group.sum() + 2) / (len(group) + 4), len(group) + 4) for group in groups]
    half = Z * math.sqrt(sum(p * (1 - p) / n for p, n in guarded)) / len(groups)
    interval = [max(0.0, score - half), min(1.0, score + half)]
    return {"score": score, "n": sum(map(len, groups)), "groups": len(groups), "interval": interval}


def by(names: Sequence[str], points: np.ndarray) -> dict[str, np.ndarray]:
    """Return the points of each group, by its name, in the order of the names."""
    kinds, numbers = np.unique(np.array(names, dtype=object), return_inverse=True)
    return {str(kind): points[numbers == i] for i, kind in enumerate(kinds)}


def summary(pairs: pa.Table, good: np.ndarray, bad: np.ndarray) -> dict[str, Any]:
    """Return what scores.json says of a method: over all pairs, the mean of paradigms, by phenomenon and by paradigm.

    Args:
        pairs: with the columns `phenomenon` and `paradigm`.
        good, bad: the scores of the sentences; pairs without one (nan) are left out.
    """
    scored = ~np.isnan(good)
    points = right(good[scored], bad[scored])
    if not len(points):
        return {"pairs": None, "paradigms": None, "by_phenomenon": {}, "by_paradigm": {}}
    groups = {}
    for name in ("phenomenon", "paradigm"):
        names = [value for value, there in zip(pairs[name].to_pylist(), scored, strict=True) if there]
        groups[name] = by(names, points)
    return {
        "pairs": share(points),
        "paradigms": mean_of_groups(groups["paradigm"].values()),
        **{f"by_{name}": {kind: share(found) for kind, found in groups[name].items()} for name in groups},
    }


def sample(pairs: pa.Table, most: int) -> np.ndarray:
    """Return which pairs are in a sample of `most` of each paradigm: bool [pairs].

    A hash of the sentences chooses, so that all models are scored on the same ones.
    """
    rows = pairs.to_pylist()
    keys = [hashlib.blake2b(f"{row['good']}\n{row['bad']}".encode(), digest_size=8).digest() for row in rows]
    taken, counts = np.zeros(len(rows), bool), dict.fromkeys((row["paradigm"] for row in rows), 0)
    for i in sorted(range(len(rows)), key=lambda i: keys[i]):
        if counts[rows[i]["paradigm"]] < most:
            counts[rows[i]["paradigm"]] += 1
            taken[i] = True
    return taken
