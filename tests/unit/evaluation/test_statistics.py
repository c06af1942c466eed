"""Tests and intervals for two models on the same pairs, beside known values and many made comparisons."""

import math

import numpy as np
import pyarrow as pa
import pytest

from babelmill.core.files import UserError
from babelmill.evaluation.metrics import entry, pooled
from babelmill.evaluation.statistics import difference, holm, mcnemar, of_points, over_documents, resampled


def test_mcnemar_is_the_exact_one():
    first = np.repeat([1.0, 0, 1, 0], [5, 15, 60, 20])
    second = np.repeat([0.0, 1, 1, 0], [5, 15, 60, 20])
    found = mcnemar(first, second)
    assert found[:3] == (5, 15, 0)
    from scipy.stats import binom  # which takes a second, so not in each process that collects tests

    assert found.p == pytest.approx(2 * binom.cdf(5, 20, 0.5)) == pytest.approx(0.04138947, abs=1e-8)
    assert mcnemar(first, first).p == 1.0
    found = mcnemar(np.array([1, 0.5, 0.5, 0, 1, 1]), np.array([0, 0, 0.5, 1, 1, 0.5]))
    assert found == (1, 1, 2, 1.0), "ties count for neither, and are counted"


def test_holm_is_what_one_gets_by_hand():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.9]) == [1.0, 1.0] and holm([]) == [] and holm([0.02]) == [0.02]


@pytest.mark.parametrize("stratified", [False, True])
def test_the_interval_covers_the_true_difference(stratified):
    """Of unequal groups with unequal shares, where the score is their mean; models agree more than by chance."""
    random = np.random.default_rng(2)
    sizes, shares = (40, 80, 200, 80), np.array([0.6, 0.9, 0.75, 0.5])
    strata = np.repeat(np.arange(4), sizes)
    truth = 0.1 * (shares.mean() if stratified else np.average(shares, weights=sizes))
    inside = 0
    for i in range(400):
        second = random.random(400) < shares[strata] * 0.9
        first = second | (random.random(400) < 0.1 * shares[strata] / (1 - 0.9 * shares[strata]))
        points = np.array([first, second], float)
        found = of_points(points, strata if stratified else None, seed=i, draws=500)
        inside += found.low <= truth <= found.high
    assert 0.91 * 400 <= inside <= 0.98 * 400


def test_seeds_are_resampled_with_the_items():
    """By hand: items and seeds drawn one by one, deviations of seeds multiplied by sqrt(k / (k - 1))."""
    random = np.random.default_rng(3)
    points = (random.random((5, 200)) < np.array([0.9, 0.75, 0.6, 0.55, 0.65])[:, None]).astype(float)
    scores = resampled(points.T / 200, np.matmul)
    found, draws = difference(scores, points.mean(1), 3), []
    for _ in range(3000):
        mine, means = points[:, random.integers(200, size=200)].mean(1), []
        for side in (mine[:3], mine[3:]):
            again = side[random.integers(len(side), size=len(side))].mean()
            means.append(side.mean() + np.sqrt(len(side) / (len(side) - 1)) * (again - side.mean()))
        draws.append(means[0] - means[1])
    assert found.value == pytest.approx(points[:3].mean() - points[3:].mean())
    assert found[1:3] == pytest.approx(np.quantile(draws, (0.025, 0.975)), abs=0.02)
    assert found.p == pytest.approx(2 * np.mean(np.array(draws) <= 0), abs=0.03)


def of_documents(nats: np.ndarray, size: np.ndarray, language: np.ndarray | None = None) -> pa.Table:
    language = np.zeros(len(size), int) if language is None else language
    columns = {"language": [f"l{i}" for i in language], "document": np.arange(len(size)), "bytes": size}
    return pa.table(columns | {"whole_bytes": [int(size[language == i].sum()) for i in language], "x": nats})


def test_the_difference_over_documents_covers_the_truth_and_knows_that_they_are_the_same():
    """Documents differ much more than the models do: 95 % of narrow intervals hold the true difference."""
    random, inside, widths, alone = np.random.default_rng(5), 0, [], []
    for _ in range(300):
        size, hard = random.integers(100, 2000, 40), random.normal(1.2, 0.4, 40)
        first, second = (size * math.log(2) * (hard + shift + random.normal(0, 0.05, 40)) for shift in (0.0, 0.1))
        tables = of_documents(first, size), of_documents(second, size)
        value, low, high, _ = over_documents(tables, ("x", "x"))
        assert low is not None and high is not None
        assert value == pytest.approx((first.sum() - second.sum()) / size.sum() / math.log(2))
        inside += low <= -0.1 <= high
        widths.append(high - low)
        alone.append(4 * entry(first, size, 1)["standard_error"])
    assert 0.91 * 300 <= inside <= 0.98 * 300
    assert np.mean(widths) < np.mean(alone) / 3
    with pytest.raises(UserError, match="not measured on the same documents"):
        over_documents((tables[0], of_documents(second, size + 1)), ("x", "x"))


def test_the_difference_of_several_languages_is_that_of_their_scores():
    random = np.random.default_rng(6)
    size, language = random.integers(100, 2000, 60), np.repeat([0, 1], 30)
    nats = [size * random.normal(1 + i, 0.3, 60) for i in (0, 1)]
    whole = [int(size[language == i].sum()) for i in (0, 1)]
    scores = [pooled([entry(each[language == i], size[language == i], 9) for i in (0, 1)], whole) for each in nats]
    found = over_documents((of_documents(nats[0], size, language), of_documents(nats[1], size, language)), ("x", "x"))
    assert found.value == pytest.approx(scores[0]["value"] - scores[1]["value"])
