"""Test whether the difference of two sides is real, and compute its interval: on pairs of a suite, in bits per byte.

On pairs, points are 1, 0 or 1/2 per pair, as `results.right` returns them: [models, pairs]. The bootstrap resamples the
pairs; if a side has several models, it resamples the models, too.

In bits per byte, two models are compared on the same documents: what makes a document hard for both then cancels out,
and the interval is that of the ratio estimate over the differences of documents (`metrics.entry`).
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from scipy.stats import binomtest
from scipy.stats import t as student

from babelmill.core.files import UserError
from babelmill.evaluation.metrics import entry, pooled

DRAWS = 10_000  # resamples of a bootstrap
AT_ONCE = 1 << 22  # random numbers that are drawn at once, at most


class McNemar(NamedTuple):
    """The exact test of McNemar (1947) on the pairs that one of two models gets right and the other wrong."""

    first: int  # the number of pairs that only the first model gets right
    second: int  # the number of pairs that only the second model gets right
    # The number of pairs on which they differ because one of them has a tie (1/2). These count for neither model.
    half: int
    p: float  # the probability of such a difference, or a larger one, if both were equally good


def mcnemar(first: np.ndarray, second: np.ndarray) -> McNemar:
    """Test whether two models are equally good on the same pairs, from the points of each, [pairs]."""
    whole = np.isin(first, (0, 1)) & np.isin(second, (0, 1))
    better, worse = int((whole & (first > second)).sum()), int((whole & (first < second)).sum())
    p = float(binomtest(better, better + worse).pvalue) if better + worse else 1.0
    return McNemar(better, worse, int((~whole & (first != second)).sum()), p)


def holm(values: Sequence[float]) -> list[float]:
    """Return p values corrected for multiple tests (Holm, 1979), in the order given."""
    order = np.argsort(values, kind="stable")
    steps = np.array(values, float)[order] * np.arange(len(values), 0, -1)
    corrected = np.empty(len(values))
    corrected[order] = np.minimum(1.0, np.maximum.accumulate(steps))
    return corrected.tolist()


def bootstrap(
    first: np.ndarray,
    second: np.ndarray,
    strata: np.ndarray | None = None,
    sizes: Sequence[float] = (),
    seed: int = 0,
    draws: int = DRAWS,
) -> list[float]:
    """Return the 95 % interval (percentiles) of the difference of two sides' scores, first minus second.

    `first`, `second`: the points of each side's models on the same pairs, [models, pairs]. `strata`: the number of each
    pair's group, if the score is a mean of groups; pairs are then resampled within their group. `sizes`: the weight of
    each group in the mean, in the order of their numbers; without them, all count alike.
    """
    random = np.random.default_rng(seed)
    points = np.concatenate((first, second))
    groups = np.zeros(points.shape[1], int) if strata is None else strata
    numbers = np.unique(groups)
    weights = np.array(sizes or [1] * len(numbers)) / (sum(sizes) or len(numbers))
    scores = np.zeros((draws, len(points)))
    for number, weight in zip(numbers, weights, strict=True):
        scores += weight * _means(points[:, groups == number], random, draws)
    sides = scores[:, : len(first)], scores[:, len(first) :]
    found = of_models(sides[0], random) - of_models(sides[1], random)
    return [float(end) for end in np.clip(np.quantile(found, (0.025, 0.975)), -1, 1)]  # no difference is larger


def _means(points: np.ndarray, random: np.random.Generator, draws: int) -> np.ndarray:
    """Return the mean points of each model over resampled pairs: [draws, models].

    Pairs with equal points are one kind, and there are few kinds. So it is enough to draw how often each kind occurs,
    from a multinomial distribution, instead of drawing each pair.
    """
    kinds, counts = np.unique(points, axis=1, return_counts=True)
    total = points.shape[1]
    return np.concatenate([drawn @ kinds.T for drawn in resamples(counts, total, draws, random)]) / total


def resamples(
    counts: np.ndarray, total: int, draws: int, random: np.random.Generator, width: int = 1
) -> Iterator[np.ndarray]:
    """Yield how often each kind is drawn among `total` rows, [draws, kinds], some draws at a time.

    `counts`: how often each kind occurs. `width`: how many numbers a draw takes, if more than there are kinds.
    """
    part = max(1, AT_ONCE // max(len(counts), width))
    for start in range(0, draws, part):
        yield random.multinomial(total, counts / total, min(part, draws - start))


def of_models(scores: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Return the means over resampled models, [draws]; `scores`: [draws, models].

    The mean of k resampled models has only (k - 1) / k of the variance of a mean of k models. So its deviations are
    multiplied by sqrt(k / (k - 1)).
    """
    draws, models = scores.shape
    mean = scores.mean(1)
    if models == 1:
        return mean
    weights = random.multinomial(models, np.full(models, 1 / models), draws) / models
    return mean + np.sqrt(models / (models - 1)) * ((weights * scores).sum(1) - mean)


class Difference(NamedTuple):
    """A difference, first minus second, and the ends of its 95 % interval, None if it is not known."""

    value: float
    low: float | None
    high: float | None


def over_documents(tables: tuple[pa.Table, pa.Table], columns: tuple[str, str]) -> Difference:
    """Return the difference between two models on the same documents; raise a UserError if they are not the same.

    `tables`: the documents of each model (`validation_text.of_documents`). `columns`: that of each model's nats.
    """
    same = ("language", "document", "bytes")
    if any(tables[0][key].to_pylist() != tables[1][key].to_pylist() for key in same):
        raise UserError("the two models were not measured on the same documents; run the workflow again for both")
    nats = tables[0][columns[0]].to_numpy() - tables[1][columns[1]].to_numpy()
    languages, size, whole = (tables[0][key].to_numpy() for key in ("language", "bytes", "whole_bytes"))
    each = [languages == code for code in dict.fromkeys(languages)]
    found = pooled([entry(nats[mine], size[mine], 1) for mine in each], [int(whole[mine][0]) for mine in each])
    freedom = len(nats) - len(each)
    error = found["standard_error"]
    if error is None or freedom < 1:
        return Difference(found["value"], None, None)
    half = float(student.ppf(0.975, freedom)) * error
    return Difference(found["value"], found["value"] - half, found["value"] + half)
