"""The statistics of experiments: against known numbers and scipy's tests, and the share of false bold marks."""

import numpy as np
import pytest
from scipy import stats

from babelmill.evaluation.statistics import over_seeds
from babelmill.experiments.comparison import Column, Line, best, effects

BITS = Column("", "causal", "bits per byte")
SHARE = Column("blimp", "causal", "share")
REFERENCE, OTHER, THIRD = (Line("eng", "eng", cell) for cell in ("lamb", "adamw", "muon"))


def test_the_interval_of_a_mean_is_that_of_the_t_distribution():
    """Of 1, 2, 3: the quantile of t with 2 degrees of freedom is 4.3027, the standard error 1 / sqrt(3)."""
    assert over_seeds([1.0, 2.0, 3.0]) == (2.0, pytest.approx(4.302653 / 3**0.5))
    assert over_seeds([5.0]) == (5.0, None)


def test_a_difference_is_paired_by_seed():
    """Not by the order of the seeds. Seeds that only one of the cells has do not count."""
    ours = {1: 2.30, 2: 2.10, 3: 2.21, 4: 9.0}
    theirs = {3: 2.33, 1: 2.41, 2: 2.20}
    effect = effects({REFERENCE: {BITS: theirs}, OTHER: {BITS: ours}}, "lamb")[OTHER, BITS]
    expected = stats.ttest_rel([ours[s] for s in (1, 2, 3)], [theirs[s] for s in (1, 2, 3)])
    assert effect.difference == pytest.approx(-0.11)
    assert effect.p == pytest.approx(expected.pvalue)
    interval = expected.confidence_interval(0.95)
    assert (effect.difference - effect.half, effect.difference + effect.half) == pytest.approx(tuple(interval))


def test_all_tests_of_an_experiment_are_corrected_together():
    """By Holm's method, worked out by hand: the smallest p is multiplied by the number of tests."""
    scores = {
        REFERENCE: {BITS: {1: 2.0, 2: 2.1, 3: 2.2}, SHARE: {1: 0.6, 2: 0.62, 3: 0.61}},
        OTHER: {BITS: {1: 1.9, 2: 2.01, 3: 2.09}, SHARE: {1: 0.61, 2: 0.615, 3: 0.63}},
    }
    found = effects(scores, "lamb")
    alone = {
        column: effects({line: {column: scores[line][column]} for line in scores}, "lamb") for column in (BITS, SHARE)
    }
    assert found[OTHER, BITS].p == pytest.approx(2 * alone[BITS][OTHER, BITS].p)
    assert found[OTHER, SHARE].p == pytest.approx(max(alone[SHARE][OTHER, SHARE].p, found[OTHER, BITS].p))


@pytest.mark.parametrize(
    ("ours", "theirs", "p"),
    [([0.68], [0.64], None), ([0.68, 0.7, 0.46], [0.64, 0.66, 0.42], 1.0), ([0.5] * 2, [0.5] * 2, 1.0)],
)
def test_equal_differences_or_one_seed_prove_nothing(ours, theirs, p):
    """Scores of few items can differ by the same amount for all seeds, by chance; rounding must not hide that."""
    scores = {REFERENCE: {SHARE: dict(enumerate(theirs))}, OTHER: {SHARE: dict(enumerate(ours))}}
    found = effects(scores, "lamb")
    assert found[OTHER, SHARE].difference == pytest.approx(ours[0] - theirs[0]) and found[OTHER, SHARE].p == p
    assert best(scores, found, "lamb") == set()


def test_the_best_is_marked_only_if_it_is_sure():
    """Less is better for bits, more for shares; the reference must beat all others."""
    low, high = {1: 1.0, 2: 1.11, 3: 1.2}, {1: 2.0, 2: 2.1, 3: 2.21}
    scores = {REFERENCE: {BITS: high, SHARE: high}, OTHER: {BITS: low, SHARE: low}}
    found = effects(scores, "lamb")
    assert best(scores, found, "lamb") == {(OTHER, BITS), (REFERENCE, SHARE)}
    near = {1: 2.01, 2: 2.08, 3: 2.22}
    scores[THIRD] = {SHARE: near}
    assert best(scores, effects(scores, "lamb"), "lamb") == {(OTHER, BITS)}
    assert effects(scores, None) == {} and best(scores, {}, None) == set()


def test_of_correlations_more_is_better():
    low, high = {1: 1.0, 2: 1.11, 3: 1.2}, {1: 2.0, 2: 2.1, 3: 2.21}
    column = Column("reading", "causal", "Spearman")
    scores = {REFERENCE: {column: low}, OTHER: {column: high}}
    assert best(scores, effects(scores, "lamb"), "lamb") == {(OTHER, column)}


def test_bold_marks_are_false_in_less_than_five_percent():
    """2,000 experiments without any effect: 4 cells, 2 scores, 3 seeds, and seeds that matter for all cells alike."""
    generator, false = np.random.default_rng(0), 0
    lines = [Line("eng", "eng", cell) for cell in "abcd"]
    for _ in range(2000):
        shared = generator.normal(size=(2, 3))
        drawn = shared + generator.normal(size=(4, 2, 3))
        scores = {
            line: {column: dict(enumerate(drawn[i, j].tolist(), 1)) for j, column in enumerate((BITS, SHARE))}
            for i, line in enumerate(lines)
        }
        false += bool(best(scores, effects(scores, "a"), "a"))
    assert 0 < false / 2000 < 0.05


@pytest.mark.parametrize(("seeds", "items", "tests", "draws"), [(2, 100, 20, 200), (3, 100, 20, 200), (3, 20, 5, 400)])
def test_scores_of_few_items_raise_no_more_false_alarms(seeds, items, tests, draws):
    """They are on a grid, so differences are often equal, or nearly."""
    generator, false = np.random.default_rng(1), 0
    columns = [Column(f"suite{i}", "causal", "share") for i in range(tests)]
    for _ in range(draws):
        scores = {
            line: {
                column: dict(enumerate((generator.binomial(items, 0.6, seeds) / items).tolist())) for column in columns
            }
            for line in (REFERENCE, OTHER)
        }
        false += any(effect.significant for effect in effects(scores, "lamb").values())
    assert false / draws < 0.05
