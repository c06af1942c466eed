"""Compare what fine-tuned models predict for the same test rows: the difference of their scores, and if it is chance.

A run is a model tuned with one seed. Of one run on each side, McNemar's exact test counts the rows that only one of
them gets right. Otherwise a bootstrap resamples the rows and, on a side with several, the runs: it says what other rows
and other seeds would give. Where a side has several models, it resamples these, each with all its seeds.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from babelmill.suites.statistics import DRAWS, McNemar, mcnemar, of_models, resamples
from babelmill.tasks.metrics import from_counts, of_counts


class Tested(NamedTuple):
    """The difference between the scores of two sides."""

    scores: tuple[float, float]  # the score of each side: the mean over its models of the mean over their seeds
    # low, high: the ends of the 95 % interval of the difference, first minus second (percentiles of the bootstrap)
    low: float
    high: float
    p: float  # the probability of such a difference, or a larger one, if both were equally good
    test: McNemar | None  # the counts of McNemar's test; None if p is from the bootstrap


def difference(
    metric: str, labels: np.ndarray, sides: Sequence[Sequence[np.ndarray]], classes: int, draws: int = DRAWS
) -> Tested:
    """Test the difference between two sides, whose predictions are [seeds, rows] for each of their models.

    The metric is accuracy, f1 or mcc. `labels` [rows] are the numbers of the right classes.
    """
    predictions = np.concatenate([seeds for side in sides for seeds in side])
    random = np.random.default_rng(0)
    whole = _scores(metric, labels, predictions, classes, np.ones((1, len(labels)), int))
    resampled = _resampled(metric, labels, predictions, classes, random, draws)
    found = _tested(sides, whole, resampled, 2 if metric == "mcc" else 1, random)
    if len(predictions) > 2:
        return found
    test = mcnemar(*(predictions == labels).astype(float))
    return found._replace(p=test.p, test=test)


def _tested(
    sides: Sequence[Sequence[np.ndarray]],
    whole: np.ndarray,
    resampled: np.ndarray,
    most: float,
    random: np.random.Generator,
) -> Tested:
    """Return the difference of scores, with the interval and the probability of the bootstrap.

    Each side has models with one entry per seed; `whole`, [1, runs], and `resampled`, [draws, runs], are the scores of
    all runs over all rows and over resampled rows. No difference is larger than `most`.
    """
    owners = _owners(sides)
    first, second = (float(_of_units(whole, owners, number).mean()) for number in (0, 1))
    drawn = [of_models(_of_units(resampled, owners, number), random) for number in (0, 1)]
    found = drawn[0] - drawn[1]
    low, high = (float(end) for end in np.clip(np.quantile(found, (0.025, 0.975)), -most, most))
    beyond = min(int((found <= 0).sum()), int((found >= 0).sum()))
    return Tested((first, second), low, high, min(1.0, 2 * (beyond + 1) / (len(found) + 1)), None)


def _of_units(scores: np.ndarray, owners: list[tuple[int, int]], side: int) -> np.ndarray:
    """Return the scores of what a side resamples, [draws, units]: its models, or the seeds of its only model.

    The scores are those of all runs, [draws, runs]; the owners are the side and the model of each run.
    """
    mine = np.array([owner[0] == side for owner in owners])
    models = np.array([owner[1] for owner in owners])
    if len(kinds := np.unique(models[mine])) == 1:
        return scores[:, mine]
    return np.stack([scores[:, mine & (models == model)].mean(1) for model in kinds], 1)


def _resampled(
    metric: str, labels: np.ndarray, predictions: np.ndarray, classes: int, random: np.random.Generator, draws: int
) -> np.ndarray:
    """Return the scores of all runs over resampled rows: [draws, runs].

    Rows with the same label and the same predictions are one kind, and there are few kinds. So it is enough to draw how
    often each kind occurs.
    """
    kinds, counts = np.unique(np.concatenate([labels[None], predictions]), axis=1, return_counts=True)
    drawn = resamples(counts, len(labels), draws, random, classes**2)
    return np.concatenate([_scores(metric, kinds[0], kinds[1:], classes, each) for each in drawn])


def _scores(metric: str, labels: np.ndarray, predictions: np.ndarray, classes: int, weights: np.ndarray) -> np.ndarray:
    """Return the score of each run, [draws, runs], where row r counts `weights[draw, r]` times."""
    of_class = np.arange(classes)
    found = []
    for of_run in predictions:
        right, true, told = (
            weights @ (numbers[:, None] == of_class).astype(float)
            for numbers in (np.where(of_run == labels, labels, -1), labels, of_run)
        )
        found.append(from_counts(metric, right, true, told))
    return np.stack(found, 1)


def difference_of_words(sides: Sequence[Sequence[np.ndarray]], draws: int = DRAWS) -> Tested:
    """Test the difference between two sides that tagged the words of sentences, by a bootstrap over sentences.

    The words of a sentence are not independent, so McNemar's test would find differences that are none. Each side has
    what `metrics.counts_of_words` returns of its models, [seeds, sentences, 3] each.
    """
    counts = np.concatenate([seeds for side in sides for seeds in side]).astype(float)
    random, sentences = np.random.default_rng(0), counts.shape[1]
    drawn = resamples(np.ones(sentences), sentences, draws, random)
    of_draws = np.concatenate([np.stack([of_counts(weights @ run) for run in counts], 1) for weights in drawn])
    of_all = of_counts(counts.sum(1))[None]
    return _tested(sides, of_all, of_draws, 1, random)


def _owners(sides: Sequence[Sequence[np.ndarray]]) -> list[tuple[int, int]]:
    """Return the side and the model of each run."""
    return [(number, model) for number, side in enumerate(sides) for model, seeds in enumerate(side) for _ in seeds]
