"""The statistics of experiments: against known numbers and scipy's tests, and the share of false bold marks."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from babelmill.evaluation.statistics import over_seeds
from babelmill.experiments.comparison import compare

BITS, SHARE = ("", "causal", "bits per byte"), ("blimp", "causal", "share")


def compared(*columns: tuple, reference: str = "lamb") -> pd.DataFrame:
    """The comparison of columns: (what is scored, {cell: its scores by seed}), by column and cell."""
    rows = [
        ("eng", "eng", *column, cell, seed, score, 0.5)
        for column, cells in columns
        for cell, scores in cells.items()
        for seed, score in (scores if isinstance(scores, dict) else dict(enumerate(scores))).items()
    ]
    names = ["base", "language", "suite", "method", "unit", "cell", "seed", "score", "simple"]
    return compare(pd.DataFrame(rows, columns=names), reference).set_index(["suite", "cell"])


def test_the_interval_of_a_mean_is_that_of_the_t_distribution():
    """Of 1, 2, 3: the quantile of t with 2 degrees of freedom is 4.3027, the standard error 1 / sqrt(3)."""
    assert over_seeds([1.0, 2.0, 3.0]) == (2.0, pytest.approx(4.302653 / 3**0.5))
    assert over_seeds([5.0]) == (5.0, None)


def test_a_difference_is_paired_by_seed():
    """Not by the order of the seeds. Seeds that only one of the cells has do not count."""
    ours = {1: 2.30, 2: 2.10, 3: 2.21, 4: 9.0}
    theirs = {3: 2.33, 1: 2.41, 2: 2.20}
    found = compared((BITS, {"lamb": theirs, "adamw": ours})).loc["", "adamw"]
    expected = stats.ttest_rel([ours[s] for s in (1, 2, 3)], [theirs[s] for s in (1, 2, 3)])
    assert found["difference"] == pytest.approx(-0.11) and found["p"] == pytest.approx(expected.pvalue)
    ends = found["difference"] - found["spread"], found["difference"] + found["spread"]
    assert ends == pytest.approx(tuple(expected.confidence_interval(0.95)))


def test_all_tests_of_an_experiment_are_corrected_together():
    """By Holm's method, worked out by hand: the smallest p is multiplied by the number of tests."""
    bits = BITS, {"lamb": [2.0, 2.1, 2.2], "adamw": [1.9, 2.01, 2.09]}
    shares = SHARE, {"lamb": [0.6, 0.62, 0.61], "adamw": [0.61, 0.615, 0.63]}
    both = compared(bits, shares)["p"]
    first, second = (compared(each)["p"].dropna().iloc[0] for each in (bits, shares))
    assert both["", "adamw"] == pytest.approx(2 * first)
    assert both["blimp", "adamw"] == pytest.approx(max(second, both["", "adamw"]))


@pytest.mark.parametrize(
    ("ours", "theirs", "p"),
    [([0.68], [0.64], np.nan), ([0.68, 0.7, 0.46], [0.64, 0.66, 0.42], 1.0), ([0.5] * 2, [0.5] * 2, 1.0)],
)
def test_equal_differences_or_one_seed_prove_nothing(ours, theirs, p):
    """Scores of few items can differ by the same amount for all seeds, by chance; rounding must not hide that."""
    found = compared((SHARE, {"lamb": theirs, "adamw": ours}))
    assert found["difference"]["blimp", "adamw"] == pytest.approx(ours[0] - theirs[0])
    assert found["p"]["blimp", "adamw"] == pytest.approx(p, nan_ok=True) and not found["best"].any()


LOW, HIGH = [1.0, 1.11, 1.2], [2.0, 2.1, 2.21]


@pytest.mark.parametrize(
    ("column", "cells", "reference", "best"),
    [
        (BITS, {"lamb": HIGH, "adamw": LOW}, "lamb", ["adamw"]),  # less is better
        (SHARE, {"lamb": HIGH, "adamw": LOW}, "lamb", ["lamb"]),  # more is
        (("reading", "causal", "partial R²"), {"lamb": LOW, "adamw": HIGH}, "lamb", ["adamw"]),
        (BITS, {"lamb": HIGH, "adamw": LOW}, "", []),
        (BITS, {"lamb": [1.0, 1.1, 1.21], "adamw": [0.9, 1.3, 1.0]}, "lamb", []),
        (BITS, {"lamb": LOW, "adamw": HIGH, "muon": [1.1, 1.0, 1.3]}, "lamb", []),  # it must beat all others
        (BITS, {"lamb": LOW}, "lamb", []),
    ],
)
def test_the_best_is_marked_only_if_it_is_sure(column, cells, reference, best):
    found = compared((column, cells), reference=reference)
    assert [cell for (_, cell), sure in found["best"].items() if sure] == best


@pytest.mark.slow
def test_bold_marks_are_false_in_less_than_five_percent():
    """2,000 experiments without any effect: 4 cells, 2 scores, 3 seeds, and seeds that matter for all cells alike."""
    generator, false = np.random.default_rng(0), 0
    for _ in range(2000):
        drawn = generator.normal(size=(2, 1, 3)) + generator.normal(size=(2, 4, 3))
        bits, shares = (dict(zip("abcd", values.tolist(), strict=True)) for values in drawn)
        false += compared((BITS, bits), (SHARE, shares), reference="a")["best"].any()
    assert 0 < false / 2000 < 0.05


@pytest.mark.slow
@pytest.mark.parametrize(("seeds", "items", "tests", "draws"), [(2, 100, 20, 200), (3, 100, 20, 200), (3, 20, 5, 400)])
def test_scores_of_few_items_raise_no_more_false_alarms(seeds, items, tests, draws):
    """They are on a grid, so differences are often equal, or nearly."""
    generator, false = np.random.default_rng(1), 0
    for _ in range(draws):
        drawn = generator.binomial(items, 0.6, (tests, 2, seeds)) / items
        columns = [((f"suite{i}", "causal", "share"), {"lamb": drawn[i, 0], "b": drawn[i, 1]}) for i in range(tests)]
        false += (compared(*columns)["p"] < 0.05).any()
    assert false / draws < 0.05
