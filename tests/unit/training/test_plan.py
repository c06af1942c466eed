"""What happens at each step: schedules, shares, and each token once an epoch."""

import contextlib
from fractions import Fraction

import numpy as np
import pytest
from safetensors.numpy import load_file

from babelmill.config import schema
from babelmill.core.files import UserError
from babelmill.training.plan.objectives import objective_of
from babelmill.training.plan.plan import LanguageSchedule, Plan, interleave
from babelmill.training.plan.rows import Packed
from babelmill.training.plan.schedule import (
    PERIOD,
    fewest_steps,
    learning_rate_factor,
    mean_from,
    proportions,
    rows_by_step,
)
from helpers import DATA
from helpers.training import training_data


def settings(**values):
    return training_data.section("train", **values)


def counts(*tokens: int, document: int = 40) -> list[Packed]:
    return [Packed(np.array([*range(0, size, document), size])) for size in tokens]


def same(a, b) -> bool:
    return all(np.array_equal(getattr(a.rows, f), getattr(b.rows, f)) for f in a.rows.__dataclass_fields__) and (
        (a.length, a.mask_rate, a.learning_rate, a.weights, a.tokens)
        == (b.length, b.mask_rate, b.learning_rate, b.weights, b.tokens)
    )


def test_learning_rate_is_the_published_schedule():
    golden = load_file(DATA / "gpt_bert_tiny.safetensors")["lr_factor_1250"]
    ours = [learning_rate_factor(step, 1250, 0.016, 0.016, 0.1) for step in range(1250)]
    np.testing.assert_allclose(ours, golden, rtol=0, atol=1e-9)


@pytest.mark.parametrize(("share", "first"), [(0.2, 32), (0.51, 20), (1.0, 0), (0.001, 39), (0.0, None)])
def test_the_mean_is_of_the_last_steps_and_at_least_of_one(share, first):
    assert mean_from(settings(average_last=share), 40) == first


def test_a_step_does_not_depend_on_what_was_asked_before():
    plan = Plan(settings(max_steps=40), 1.0, counts(3000, 500))
    forwards = [plan.step(step) for step in range(40)]
    again = Plan(settings(max_steps=40), 1.0, counts(3000, 500))
    assert all(same(again.step(step), forwards[step]) for step in reversed(range(40)))
    other = Plan(settings(max_steps=40, seed=8), 1.0, counts(3000, 500))
    assert not same(other.step(3), forwards[3])


def test_the_batch_grows_linearly_in_tokens_through_all_phases():
    lengths = {"sequence_lengths": [128, 512], "phase_starts": [0, 0.5]}
    train = settings(global_batch_tokens=4096, batch_reduction=4.0, **lengths)
    lengths, rows = rows_by_step(train, 1000)
    wanted = 4096 * (0.25 + 0.75 * np.arange(1000) / 1000)
    assert (np.abs(lengths * rows - wanted) <= lengths / 2).all()
    assert (rows[0], rows[-1]) == (8, 8)


@pytest.mark.parametrize("tokens", [100, 997, 5000, 33333])
@pytest.mark.parametrize("reduction", [1.0, 4.0])
def test_steps_are_the_fewest_that_cover_the_epochs(tokens, reduction):
    train = settings(max_steps=None, epochs=3.5, batch_reduction=reduction)

    def covered(steps):
        lengths, rows = rows_by_step(train, steps)
        return (lengths * rows).sum() >= 3.5 * tokens

    steps = fewest_steps(train, 3.5 * tokens)
    assert covered(steps) and not any(covered(fewer) for fewer in range(1, steps))


@pytest.mark.parametrize("words", [700, 701, 1999, 2000, 12_345])
@pytest.mark.parametrize("ratio", ["1/2", "1/4"])
def test_a_run_ends_within_a_row_of_its_words(words, ratio):
    """Of two languages with different words per token. Only the last steps are smaller than without that end."""
    train = settings(max_steps=None, max_words=words, hybrid_ratio=ratio, global_batch_tokens=320)
    plan = Plan(train, 1.0, counts(3000, 500), words=[2000, 500])
    rate = (3000 / 3500 * 2000 / 3000) + (500 / 3500 * 500 / 500)
    assert plan.words_per_token == pytest.approx(rate, rel=1e-4)
    last = plan.rows_of(plan.steps - 1)[1]
    assert 0 <= plan.tokens_until(plan.steps) - words / plan.words_per_token < last
    _, rows = rows_by_step(train, plan.steps)
    ours = np.array([plan.rows_of(step)[0] for step in range(plan.steps)])
    assert ours.min() >= plan.objective.smallest_batch and (ours <= rows).all()
    less = np.flatnonzero(ours < rows)
    assert not len(less) or set(less) <= set(range(plan.steps - 1 - plan.objective.smallest_batch, plan.steps))
    assert all(len(plan.step(step).rows.row) == ours[step] for step in range(plan.steps))
    assert plan.first_step_with(words / plan.words_per_token) == plan.steps, "the last snapshot is that point"


@pytest.mark.parametrize(("most", "refused"), [(24, True), (25, False)])
def test_more_steps_than_there_may_be_are_refused(monkeypatch, most, refused):
    train = settings(max_steps=None, epochs=1.0, batch_reduction=1.0, sequence_lengths=[16], phase_starts=[0.0])
    monkeypatch.setattr(schema, "MAX_STEPS", most)
    with pytest.raises(UserError, match="more than 24 steps") if refused else contextlib.nullcontext():
        assert fewest_steps(train, 25 * train.global_batch_tokens) == 25


def test_each_token_is_a_target_once_an_epoch_in_an_order_of_its_own():
    train = settings(max_steps=100, sequence_lengths=[16], phase_starts=[0.0])
    plan = Plan(train, 1.0, counts(1601))
    rows = np.concatenate([plan.step(step).rows.row for step in range(100)])
    epochs = rows[: len(rows) // 101 * 101].reshape(-1, 101)
    assert len(epochs) >= 9
    assert (np.sort(epochs, 1) == np.arange(101)).all()
    assert len({tuple(epoch) for epoch in epochs}) == len(epochs)


@pytest.mark.parametrize(
    "shares", [[1, 1], [3, 1], [1, 1, 1], [90, 5, 5], [57, 30, 8, 4, 1], [1000, *[1] * 44], list(range(1, 46))]
)
def test_languages_keep_their_shares_at_every_prefix(shares):
    exact = proportions([1000 * share for share in shares], 1.0)
    assert exact.sum() == PERIOD
    one_hot = interleave(exact)[:, None] == np.arange(len(shares))
    wanted = np.arange(1, PERIOD + 1)[:, None] * exact / PERIOD
    assert np.abs(one_hot.cumsum(0) - wanted).max() < 2
    assert np.abs(exact / PERIOD - np.array(shares) / sum(shares)).max() < 1 / PERIOD
    first, twice = PERIOD - 50, np.tile(interleave(exact), 2)  # across the end of a period
    language, index = LanguageSchedule(exact).languages(first, 100)
    assert (language == twice[first : first + 100]).all()
    assert index.tolist() == [(twice[: first + i] == each).sum() for i, each in enumerate(language)]


def test_mixture_weights():
    root = np.sqrt(sizes := [8_000_000, 1_000_000, 1_000_000])
    np.testing.assert_allclose(proportions(sizes, 0.5) / PERIOD, root / root.sum(), atol=1e-4)
    assert proportions([10**9, 1, 1], 1.0).tolist() == [PERIOD - 2, 1, 1]


@pytest.mark.parametrize("ratio", ["1/2", "2/5", "15/16", "2/3"])
@pytest.mark.parametrize("sizes", [(5000,), (4000, 4000), (4000, 4000, 4000), (9000, 600)])
def test_each_language_keeps_the_hybrid_ratio_at_every_prefix(ratio, sizes):
    plan = Plan(settings(max_steps=200, hybrid_ratio=ratio, global_batch_tokens=512), 1.0, counts(*sizes))
    rows = [plan.step(step).rows for step in range(200)]
    language = np.concatenate([step.language for step in rows])
    masked = np.concatenate([step.kind == 0 for step in rows])
    share = Fraction(ratio)
    for i in range(len(sizes)):
        mine = masked[language == i].cumsum()
        assert np.abs(mine - float(share) * np.arange(1, len(mine) + 1)).max() < 1


@pytest.mark.parametrize("every", [1, 2, 3, 17, 60])
def test_the_expectation_of_the_loss_of_diffusion_is_that_of_llada(every):
    """Rows with k hidden tokens have the weight 1 in it for each k from 1 to e: their share, times k targets, times r."""
    targets = np.full(40_000, every)
    found = objective_of(settings(objective="diffusion")).aims(5, 100, targets, targets, targets, targets)
    assert found.targets.min() == 1 and found.targets.max() == every
    weight = np.bincount(found.targets, found.targets * found.importance, every + 1)[1:] / len(found.targets)
    assert weight == pytest.approx(np.ones(every), rel=0.02)


def test_a_batch_smaller_than_the_ratio_needs_is_refused():
    with pytest.raises(
        UserError, match=r"train.global_batch_tokens = 160 .* gives 5 rows of 32 tokens at step \d+, fewer"
    ):
        Plan(settings(hybrid_ratio="7/8", max_steps=None, epochs=1), 1.0, counts(2000))
