"""How many tokens masked diffusion hides by `train.noise_schedule`, against the formulas."""

import numpy as np
import pytest

from babelmill.training.plan import randomness
from babelmill.training.plan.objectives import Diffusion, objective_of
from helpers.training.training_data import section


def diffusion(**values) -> Diffusion:
    objective = objective_of(section("train", objective="diffusion", **values))
    assert isinstance(objective, Diffusion)
    return objective


def aims(noise: str, every: int, rows: int = 40_000):
    """What rows of so many targets learn; their times fill [0, 1) evenly."""
    targets = np.full(rows, every)
    return diffusion(noise_schedule=noise).aims(5, 100, np.arange(rows), np.arange(rows), targets, targets)


@pytest.mark.parametrize("every", [1, 2, 3, 17, 60])
@pytest.mark.parametrize("noise", ["uniform", "cosine"])
def test_the_expectation_of_the_loss_is_that_of_llada(noise, every):
    """Rows with k hidden tokens have the weight 1 in it for each k from 1 to e: their share, times k targets, times r."""
    found = aims(noise, every)
    assert found.targets.min() == 1 and found.targets.max() == every
    weight = np.bincount(found.targets, found.targets * found.importance, every + 1)[1:] / len(found.targets)
    assert weight == pytest.approx(np.ones(every), rel=0.02)


def test_long_rows_have_the_published_shares_and_weights():
    """alpha(t) = cos(pi/2 (1 - t)); a token is hidden with probability 1 - alpha and weighs |alpha'| / (1 - alpha)."""
    every = 1_000_000
    found = aims("cosine", every, 1000)
    first = randomness.uniform(randomness.key(7, randomness.RATES, 5))
    t = 1 - (first + (5**0.5 - 1) / 2 * np.arange(1000)) % 1
    alpha, derivative = np.cos(np.pi / 2 * (1 - t)), np.pi / 2 * np.sin(np.pi / 2 * (1 - t))
    assert found.targets / every == pytest.approx(1 - alpha, abs=2e-6)
    usual = found.targets > 1000  # of few hidden tokens the exact weight differs
    assert usual.mean() > 0.9
    assert found.importance[usual] == pytest.approx((derivative / (1 - alpha))[usual], rel=2e-3)
    assert (found.targets / every).mean() == pytest.approx(
        diffusion(noise_schedule="cosine").mask_rate(5, 100), abs=2e-3
    )


def test_rows_without_targets_hide_none():
    found = aims("cosine", 0, 10)
    assert not found.targets.any() and np.isfinite(found.importance).all()


def test_validation_measures_the_same_whatever_the_noise():
    number, every = np.arange(50), np.full(50, 40)
    one, other = (
        diffusion(noise_schedule=noise).validation_aims(0, number, every, every) for noise in ("uniform", "cosine")
    )
    assert (one.targets == other.targets).all() and (one.importance == other.importance).all()
    assert one.targets.tolist() == (1 + np.floor((5**0.5 - 1) / 2 * number % 1 * 40)).tolist()
