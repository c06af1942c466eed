"""Tests and intervals for two models on the same pairs, beside known values and many made comparisons."""

import math

import numpy as np
import pyarrow as pa
import pytest

from babelmill.core.files import UserError
from babelmill.evaluation.metrics import entry, pooled
from babelmill.suites.statistics import bootstrap, holm, mcnemar, over_documents


def test_mcnemar_is_the_exact_one():
    first = np.repeat([1.0, 0, 1, 0], [5, 15, 60, 20])
    second = np.repeat([0.0, 1, 1, 0], [5, 15, 60, 20])
    found = mcnemar(first, second)
    assert found[:3] == (5, 15, 0)
    from scipy.stats import binom  # which takes a second, so not in each process that collects tests

    assert found.p == pytest.approx(2 * binom.cdf(5, 20, 0.5)) == pytest.approx(0.04138947, abs=1e-8)
    assert mcnemar(first, first).p == 1.0


def test_ties_count_for_neither_and_are_counted():
    found = mcnemar(np.array([1, 0.5, 0.5, 0, 1, 1]), np.array([0, 0, 0.5, 1, 1, 0.5]))
    assert found == (1, 1, 2, 1.0)


def test_holm_is_what_one_gets_by_hand():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.9]) == [1.0, 1.0] and holm([]) == [] and holm([0.02]) == [0.02]


@pytest.mark.slow
def test_labels_swapped_at_random_are_seldom_a_difference():
    """A model that was swapped with another, pair by pair, is as good as it: p < 0.05 by chance alone."""
    random = np.random.default_rng(1)
    first, second = (np.array(random.random(500) < share, float) for share in (0.8, 0.7))
    assert mcnemar(first, second).p < 0.01
    found = 0
    for _ in range(2000):
        swap = random.random(500) < 0.5
        found += mcnemar(np.where(swap, second, first), np.where(swap, first, second)).p < 0.05
    assert 0.02 * 2000 < found <= 0.06 * 2000


@pytest.mark.parametrize("stratified", [False, True])
def test_the_interval_covers_the_true_difference(stratified):
    """Of unequal groups with unequal shares, where the score is their mean; models agree more than by chance."""
    random = np.random.default_rng(2)
    sizes, shares = (40, 80, 200, 80), np.array([0.6, 0.9, 0.75, 0.5])
    strata = np.repeat(np.arange(4), sizes)
    truth = 0.1 * (shares.mean() if stratified else np.average(shares, weights=sizes))
    inside, widths = 0, []
    for i in range(400):
        second = random.random(400) < shares[strata] * 0.9
        first = second | (random.random(400) < 0.1 * shares[strata] / (1 - 0.9 * shares[strata]))
        sides = np.array([[first], [second]], float)
        low, high = bootstrap(*sides, strata if stratified else None, seed=i, draws=500)
        inside += low <= truth <= high
        widths.append(high - low)
    assert 0.91 * 400 <= inside <= 0.98 * 400
    assert bootstrap(*sides, seed=3) == bootstrap(*sides, seed=3)


@pytest.mark.slow
def test_seeds_of_a_recipe_are_drawn_again_too():
    """Two recipes that are as good, whose seeds differ by more than the pairs say."""
    random = np.random.default_rng(4)
    inside = {"recipes": 0, "weights": 0}
    for i in range(100):
        sides = [
            np.array([random.random(1000) < share for share in random.normal(0.7, 0.04, 5)], float) for _ in range(2)
        ]
        low, high = bootstrap(*sides, seed=i, draws=500)
        inside["recipes"] += low <= 0 <= high
        low, high = bootstrap(sides[0][:1], sides[1][:1], seed=i, draws=500)
        inside["weights"] += low <= 0 <= high
    assert inside["recipes"] >= 0.86 * 100, "five seeds are few: less than 95 %"
    assert inside["weights"] < 0.7 * 100


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
        value, low, high = over_documents(tables, ("x", "x"))
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
