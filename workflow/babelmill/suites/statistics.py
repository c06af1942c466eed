"""Is the difference of two models real? Tests and intervals for models that were scored on the same pairs.

Points are as `results.right` gives them, 1, 0 or 1/2 for a pair: [models, pairs]. The pairs are what an interval draws
again; where a side has several models (seeds of a recipe), the models, too.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.stats import binomtest

DRAWS = 10_000  # of a bootstrap
AT_ONCE = 1 << 22  # numbers that are drawn at once


class McNemar(NamedTuple):
    """The exact test of McNemar (1947): of the pairs on which two models differ, how many has each right?

    Attributes:
        first, second: pairs that the first, or the second, has right and the other wrong.
        half: pairs on which they differ by a tie of one (1/2 a point), which count for neither.
        p: the chance of such a difference, or a larger one, if both were as good.
    """

    first: int
    second: int
    half: int
    p: float


def mcnemar(first: np.ndarray, second: np.ndarray) -> McNemar:
    """Test whether two models are as good on the same pairs.

    Args:
        first, second: their points [pairs]. Means over several models are points, too: the test is then a sign test.
    """
    whole = np.ones(len(first), bool)
    if set(np.unique(np.concatenate((first, second)))) <= {0.0, 0.5, 1.0}:
        whole = (first != 0.5) & (second != 0.5)
    better, worse = int((whole & (first > second)).sum()), int((whole & (first < second)).sum())
    p = float(binomtest(better, better + worse).pvalue) if better + worse else 1.0
    return McNemar(better, worse, int((~whole & (first != second)).sum()), p)


def holm(values: Sequence[float]) -> list[float]:
    """Return p values corrected for their number (Holm, 1979), in their order."""
    order = np.argsort(values, kind="stable")
    steps = np.array(values, float)[order] * np.arange(len(values), 0, -1)
    corrected = np.empty(len(values))
    corrected[order] = np.minimum(1.0, np.maximum.accumulate(steps))
    return corrected.tolist()


def bootstrap(
    first: np.ndarray, second: np.ndarray, strata: np.ndarray | None = None, seed: int = 0, draws: int = DRAWS
) -> list[float]:
    """Return the 95 % interval of the difference of two sides' scores, first minus second (percentiles).

    Args:
        first, second: points of each side's models on the same pairs, [models, pairs].
        strata: the number of each pair's group, where the score is the unweighted mean of groups; pairs are drawn
            within their group.
        seed: of the draws.
        draws: how many.
    """
    random = np.random.default_rng(seed)
    points = np.concatenate((first, second))
    groups = np.zeros(points.shape[1], int) if strata is None else strata
    numbers = np.unique(groups)
    scores = np.zeros((draws, len(points)))
    for number in numbers:
        scores += _means(points[:, groups == number], random, draws) / len(numbers)
    sides = scores[:, : len(first)], scores[:, len(first) :]
    found = _of_models(sides[0], random) - _of_models(sides[1], random)
    return [float(end) for end in np.quantile(found, (0.025, 0.975))]


def _means(points: np.ndarray, random: np.random.Generator, draws: int) -> np.ndarray:
    """Return the means of each model's points over pairs that are drawn again: [draws, models].

    Few kinds of pairs differ: how often each is drawn is multinomial, so that no pair is drawn by itself.
    """
    kinds, counts = np.unique(points, axis=1, return_counts=True)
    total = points.shape[1]
    part = max(1, AT_ONCE // len(counts))
    sizes = [min(part, draws - start) for start in range(0, draws, part)]
    drawn = [random.multinomial(total, counts / total, size) @ kinds.T for size in sizes]
    return np.concatenate(drawn) / total


def _of_models(scores: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Return the mean over models that are drawn again, [draws]; `scores`: [draws, models].

    k models that are drawn again vary by (k - 1) / k of what the mean of k models does, so their deviations grow.
    """
    draws, models = scores.shape
    mean = scores.mean(1)
    if models == 1:
        return mean
    weights = random.multinomial(models, np.full(models, 1 / models), draws) / models
    return mean + np.sqrt(models / (models - 1)) * ((weights * scores).sum(1) - mean)
