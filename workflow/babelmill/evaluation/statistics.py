"""Say how sure a score or a difference of two sides is: intervals and tests for suites, tasks and validation text.

A score of one share has Wilson's interval. All other intervals are of one bootstrap: `resampled` draws the rows (items,
sentences, rows of a task) again, and the score of each draw follows from how often each row occurs in it.

In bits per byte, two models are compared on the same documents: what makes a document hard for both then cancels out,
and the interval is that of the ratio estimate over the differences of documents (`metrics.entry`).
"""

import math
import statistics
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from babelmill.core.files import UserError
from babelmill.evaluation.metrics import entry, pooled

if TYPE_CHECKING:
    import pyarrow as pa

Z = 1.959963984540054  # the normal distribution's quantile for 95 % intervals
DRAWS = 10_000  # resamples of a bootstrap
AT_ONCE = 1 << 22  # numbers that are drawn or counted at once, at most

# Scores of resamples, [draws, runs]. `weights`, [draws, kinds], says how often each kind of row is in a resample;
# `kinds`, [kinds, columns], are the rows that differ from each other.
Score = Callable[[np.ndarray, np.ndarray], np.ndarray]


class Difference(NamedTuple):
    """A difference, first minus second, the ends of its 95 % interval, and the probability if there were none."""

    value: float
    low: float | None  # low, high: None if they are not known
    high: float | None
    p: float | None = None  # None if there is no test


class McNemar(NamedTuple):
    """The exact test of McNemar (1947) on the items that one of two models gets right and the other wrong."""

    first: int  # the number of items that only the first model gets right
    second: int  # the number of items that only the second model gets right
    # The number of items on which they differ because one of them has a tie (1/2). These count for neither model.
    half: int
    p: float  # the probability of such a difference, or a larger one, if both were equally good


def student(freedom: float) -> float:
    """Return the quantile of Student's t for 95 % intervals."""
    from scipy.stats import t  # see `mcnemar`

    return float(t.ppf(0.975, freedom))


def wilson(share: float, count: int) -> list[float]:
    """Return the 95 % interval of a share of `count` items (Wilson, 1927). The share may count halves."""
    middle = share + Z * Z / (2 * count)
    half = Z * math.sqrt(share * (1 - share) / count + Z * Z / (4 * count * count))
    return [max(0.0, (middle - half) / (1 + Z * Z / count)), min(1.0, (middle + half) / (1 + Z * Z / count))]


def over_seeds(scores: Sequence[float]) -> tuple[float, float | None]:
    """Return the mean over seeds, and half of its 95 % interval (Student's t); None for a single seed."""
    mean, count = statistics.fmean(scores), len(scores)
    if count < 2:
        return mean, None
    return mean, student(count - 1) * statistics.stdev(scores) / count**0.5


def mcnemar(first: np.ndarray, second: np.ndarray) -> McNemar:
    """Test whether two models are equally good on the same items, from the points of each, [items]: 1, 0 or 1/2."""
    from scipy.stats import binomtest  # takes half a second, and most programs need it late or never

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


def resampled(
    rows: np.ndarray,
    score: Score,
    strata: np.ndarray | None = None,
    draws: int = DRAWS,
    seed: int = 0,
    width: int = 1,
) -> np.ndarray:
    """Return the scores of a bootstrap, [draws, runs], over `rows`, [rows, columns].

    `strata`: the group of each row, if rows are drawn within their group. `width`: how many numbers the score makes of
    each draw, if more than there are kinds. Equal rows are one kind, and there are few kinds, so it is enough to draw
    how often each kind occurs.
    """
    random = np.random.default_rng(seed)
    groups = [rows] if strata is None else [rows[strata == number] for number in np.unique(strata)]
    each = [np.unique(group, axis=0, return_counts=True) for group in groups]
    kinds, found = np.concatenate([kinds for kinds, _ in each]), []
    part = max(1, AT_ONCE // max(len(kinds), width))
    for start in range(0, draws, part):
        count = min(part, draws - start)
        weights = [random.multinomial(counts.sum(), counts / counts.sum(), count) for _, counts in each]
        found.append(score(np.concatenate(weights, 1), kinds))
    return np.concatenate(found)


def interval(scores: np.ndarray) -> tuple[float, float]:
    """Return the 95 % interval of a bootstrap (percentiles), from the scores of its draws."""
    low, high = np.quantile(scores, (0.025, 0.975))
    return float(low), float(high)


def difference(scores: np.ndarray, whole: np.ndarray, first: int, largest: float = 1.0) -> Difference:
    """Return the difference of two sides, each with one run per seed, from the scores of a bootstrap, [draws, runs].

    `whole`: the scores of all rows, [runs], of which the `first` ones are the first side. On a side with several runs,
    these are resampled, too. No difference is larger than `largest`.
    """
    random = np.random.default_rng(0)
    found = _over_runs(scores[:, :first], random) - _over_runs(scores[:, first:], random)
    low, high = np.clip(interval(found), -largest, largest).tolist()
    beyond = min(int((found <= 0).sum()), int((found >= 0).sum()))
    p = min(1.0, 2 * (beyond + 1) / (len(found) + 1))
    return Difference(float(whole[:first].mean() - whole[first:].mean()), low, high, p)


def _over_runs(scores: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Return the means over resampled runs, [draws]; `scores`: [draws, runs].

    The mean of k resampled runs has only (k - 1) / k of the variance of a mean of k runs. So its deviations are
    multiplied by sqrt(k / (k - 1)).
    """
    draws, runs = scores.shape
    mean = scores.mean(1)
    if runs == 1:
        return mean
    weights = random.multinomial(runs, np.full(runs, 1 / runs), draws) / runs
    return mean + np.sqrt(runs / (runs - 1)) * ((weights * scores).sum(1) - mean)


def of_points(
    points: np.ndarray, strata: np.ndarray | None = None, sizes: Sequence[float] = (), seed: int = 0, draws: int = DRAWS
) -> Difference:
    """Return the difference of two models on the same items, from their points (1, 0 or 1/2), [2, items].

    `strata`: the number of each item's group, if the score is a mean of groups. `sizes`: the weight of each group in
    this mean, in the order of their numbers; without them, all count alike.
    """
    groups = np.zeros(points.shape[1], int) if strata is None else strata
    _, place, counts = np.unique(groups, return_inverse=True, return_counts=True)
    weights = np.array(sizes or [1] * len(counts)) / (sum(sizes) or len(counts))
    parts = points.T * (weights / counts)[place, None]  # the part of each item in the score
    scores = resampled(parts, np.matmul, place, draws, seed)
    return difference(scores, parts.sum(0), 1)


def over_documents(tables: "tuple[pa.Table, pa.Table]", columns: tuple[str, str]) -> Difference:
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
    half = student(freedom) * error
    return Difference(found["value"], found["value"] - half, found["value"] + half)
