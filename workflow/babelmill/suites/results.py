"""Summarise the scores of items: the shares that a model gets right, with intervals, by phenomenon and paradigm."""

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from babelmill.evaluation.statistics import Z, wilson


def points_of(scores: np.ndarray, right: int, ties: str) -> float:
    """Return the points of an item: 1 if its right option has the best score, else 0.

    `ties`: if several options have the best score, they share the point ("half"), the first of them is the model's
    choice ("first"), or the item is wrong ("wrong").
    """
    best = scores == scores.max()
    if ties == "half":
        return float(best[right] / best.sum())
    return float(scores.argmax() == right if ties == "first" else best[right] and best.sum() == 1)


def share(points: np.ndarray) -> dict[str, Any]:
    """Return the share of pairs that are right: {"score", "n", "interval"}."""
    score = float(points.mean())
    return {"score": score, "n": len(points), "interval": wilson(score, len(points))}


def mean_of_groups(groups: Iterable[np.ndarray], sizes: Sequence[float] = ()) -> dict[str, Any]:
    """Return the mean of the groups' shares, with an interval from the standard error over strata.

    `groups`: the points of each. `sizes`: the weight of each group in the mean; without them, all groups count alike.
    """
    groups = list(groups)
    weights = np.array(sizes or [1] * len(groups)) / (sum(sizes) or len(groups))
    score = float(weights @ [group.mean() for group in groups])
    # A group that is all right or all wrong still has an error. So its share counts two more right and two more wrong
    # pairs (Agresti and Coull).
    guarded = [((group.sum() + 2) / (len(group) + 4), len(group) + 4) for group in groups]
    half = Z * math.sqrt(sum(w * w * p * (1 - p) / n for w, (p, n) in zip(weights, guarded, strict=True)))
    interval = [max(0.0, score - half), min(1.0, score + half)]
    return {"score": score, "n": sum(map(len, groups)), "groups": len(groups), "interval": interval}


def by(names: np.ndarray, points: np.ndarray) -> dict[str, np.ndarray]:
    """Return {group: its points}, sorted by name. `names` holds the group of each point, as Python strings."""
    kinds, numbers = np.unique(names, return_inverse=True)
    return {kind: points[numbers == i] for i, kind in enumerate(kinds)}


def share_of(points: np.ndarray, paradigms: np.ndarray, sizes: dict[str, int] | None) -> dict[str, Any]:
    """Return the share of pairs that are right, from their points and paradigms.

    `sizes`: {paradigm: its pairs in the suite} if the scored pairs are a sample of each paradigm: each paradigm is then
    weighted by its share of all pairs.
    """
    groups = by(paradigms, points)
    if sizes is None or len(groups) == 1:
        return share(points)
    return mean_of_groups(groups.values(), [sizes[name] for name in groups])


def paradigm_weights(paradigms: np.ndarray, phenomena: np.ndarray) -> dict[str, float]:
    """Return the weight of each paradigm in the mean over phenomena of the mean over their paradigms.

    A paradigm belongs to its first phenomenon.
    """
    phenomenon_of = dict(zip(paradigms[::-1], phenomena[::-1], strict=True))
    sizes = Counter(phenomenon_of.values())
    return {name: 1 / sizes[phenomenon] for name, phenomenon in phenomenon_of.items()}


def summary(items: pa.Table, points: np.ndarray, sampled: bool = False, of_phenomena: bool = False) -> dict[str, Any]:
    """Return the entry of a method in scores.json: over all pairs, the mean of paradigms, by phenomenon, by paradigm.

    `items`: a table with the columns `phenomenon` and `paradigm`. `points`: [items]; items without a score (nan) are
    left out. `sampled`: whether only a sample of each paradigm was scored. `of_phenomena`: whether the entry also has
    the mean of phenomena.
    """
    scored = ~np.isnan(points)
    points = points[scored]
    if not len(points):
        more = {"phenomena": None} if of_phenomena else {}
        return {"pairs": None, "paradigms": None, **more, "by_phenomenon": {}, "by_paradigm": {}}
    sizes = dict(Counter(items["paradigm"].to_pylist())) if sampled else None
    paradigms, phenomena = (np.array(items[name].to_pylist(), object)[scored] for name in ("paradigm", "phenomenon"))
    of_paradigms, more = by(paradigms, points), dict[str, Any]()
    if of_phenomena:
        weights = paradigm_weights(paradigms, phenomena)
        more["phenomena"] = mean_of_groups(of_paradigms.values(), [weights[name] for name in of_paradigms])
    return more | {
        "pairs": share_of(points, paradigms, sizes),
        "paradigms": mean_of_groups(of_paradigms.values()),
        "by_phenomenon": {
            kind: share_of(points[phenomena == kind], paradigms[phenomena == kind], sizes)
            for kind in sorted(set(phenomena))
        },
        "by_paradigm": {kind: share(found) for kind, found in of_paradigms.items()},
    }


def sample(items: pa.Table, texts: Sequence[Sequence[str]], most: int | None) -> np.ndarray:
    """Return which items are in a sample of at most `most` items per paradigm of a language (None: all): bool [items].

    A hash of the texts of each item chooses the items, so that all models are scored on the same ones.
    """
    taken, counts = np.ones(len(items), bool), Counter[tuple[str, str]]()
    if most is None:
        return taken
    keys = [hashlib.blake2b("\n".join(each).encode(), digest_size=8).digest() for each in texts]
    groups = list(zip(items["language"].to_pylist(), items["paradigm"].to_pylist(), strict=True))
    for i in sorted(range(len(items)), key=keys.__getitem__):
        taken[i] = counts[groups[i]] < most
        counts[groups[i]] += 1
    return taken
