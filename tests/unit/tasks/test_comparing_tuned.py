"""The difference of two sides on a fine-tuned task: scipy's test, resampling by hand, and what counts as one unit."""

import numpy as np
import pytest
from scipy.stats import binomtest
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

from babelmill.tasks.comparing import difference, difference_of_words

SCORES = {
    "accuracy": accuracy_score,
    "mcc": matthews_corrcoef,
    "f1": lambda labels, found: f1_score(labels, found, average="macro", labels=np.unique([*labels, *found])),
}


def predictions(labels, share, seed, classes=3, count=1):
    """Predictions of some seeds, each right on a share of the rows."""
    random = np.random.default_rng(seed)
    wrong = (labels + random.integers(1, classes, (count, len(labels)))) % classes
    return np.where(random.random((count, len(labels))) < share, labels, wrong)


@pytest.fixture
def labels():
    return np.random.default_rng(0).integers(3, size=200)


def test_one_seed_each_is_tested_by_mcnemar(labels):
    first, second = predictions(labels, 0.8, 1), predictions(labels, 0.65, 2)
    found = difference("accuracy", labels, [[first], [second]], 3)
    right = first[0] == labels, second[0] == labels
    counts = int((right[0] & ~right[1]).sum()), int((right[1] & ~right[0]).sum())
    assert found.test and (found.test.first, found.test.second) == counts
    assert found.p == pytest.approx(binomtest(counts[0], sum(counts)).pvalue)


@pytest.mark.parametrize("metric", SCORES)
def test_the_interval_is_that_of_resampled_rows(labels, metric):
    """Drawn one by one, scored by scikit-learn."""
    first, second = predictions(labels, 0.8, 1), predictions(labels, 0.65, 2)
    found = difference(metric, labels, [[first], [second]], 3)
    score = SCORES[metric]
    assert found.scores == pytest.approx((score(labels, first[0]), score(labels, second[0])))
    random, draws = np.random.default_rng(5), []
    for _ in range(150):
        rows = random.integers(200, size=200)
        draws.append(score(labels[rows], first[0][rows]) - score(labels[rows], second[0][rows]))
    assert (found.low, found.high) == pytest.approx(np.quantile(draws, (0.025, 0.975)), abs=0.03)


def test_seeds_are_resampled_with_the_rows(labels):
    """By hand: rows and seeds drawn one by one, deviations of seeds multiplied by sqrt(k / (k - 1))."""
    first = np.concatenate([predictions(labels, share, i) for i, share in enumerate((0.9, 0.75, 0.6))])
    second = predictions(labels, 0.6, 9, count=2)
    found = difference("accuracy", labels, [[first], [second]], 3)
    assert found.test is None and found.scores[0] == pytest.approx((first == labels).mean())
    random, draws = np.random.default_rng(5), []
    for _ in range(3000):
        rows, means = random.integers(200, size=200), []
        for side in (first, second):
            scores = (side[:, rows] == labels[rows]).mean(1)
            again = scores[random.integers(len(scores), size=len(scores))].mean()
            means.append(scores.mean() + np.sqrt(len(scores) / (len(scores) - 1)) * (again - scores.mean()))
        draws.append(means[0] - means[1])
    assert (found.low, found.high) == pytest.approx(np.quantile(draws, (0.025, 0.975)), abs=0.02)
    assert found.p == pytest.approx(2 * np.mean(np.array(draws) <= 0), abs=0.03)
    assert (found.p < 0.05) == (found.low > 0)


def test_of_several_models_each_is_one_unit_with_its_seeds(labels):
    """Models that differ widen the interval, however many seeds each was tuned with; alike models do not."""
    good, bad = predictions(labels, 0.9, 1), predictions(labels, 0.5, 2)
    other = predictions(labels, 0.7, 3)
    apart = difference("accuracy", labels, [[np.repeat(good, 9, 0), np.repeat(bad, 9, 0)], [other]], 3)
    few = difference("accuracy", labels, [[good, bad], [other]], 3)
    assert (apart.low, apart.high) == pytest.approx((few.low, few.high))
    as_seeds = difference(
        "accuracy", labels, [[np.concatenate([np.repeat(good, 9, 0), np.repeat(bad, 9, 0)])], [other]], 3
    )
    assert apart.high - apart.low > 1.5 * (as_seeds.high - as_seeds.low)


@pytest.mark.parametrize("seeds", [1, 3])
def test_equal_predictions_have_no_difference(labels, seeds):
    same = predictions(labels, 0.7, 1, count=1).repeat(seeds, 0)
    found = difference("mcc", labels, [[same], [same]], 3)
    assert (found.p, found.low, found.high) == (1.0, 0.0, 0.0)


def test_tags_of_words_are_compared_by_sentences(monkeypatch):
    """By hand: sentences drawn one by one. Words of a sentence that are right or wrong together make the interval wide."""
    random = np.random.default_rng(3)
    right = np.stack([10 * (random.random(40) < share) for share in (0.8, 0.6)])
    sides = [[np.stack([each, *[np.full(40, 10)] * 2], 1)[None]] for each in right]
    found = difference_of_words(sides)
    monkeypatch.setattr("babelmill.suites.statistics.AT_ONCE", 400)
    assert difference_of_words(sides) == found, "in small parts, too"
    assert found.test is None and found.scores == pytest.approx(right.mean(1) / 10)
    drawn = [right[:, random.integers(40, size=40)].mean(1) / 10 for _ in range(3000)]
    ends = np.quantile([first - second for first, second in drawn], (0.025, 0.975))
    assert (found.low, found.high) == pytest.approx(ends, abs=0.03)
    assert difference_of_words([sides[0], sides[0]]).p == 1
