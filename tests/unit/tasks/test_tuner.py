"""Fine-tuning: the order of rows, choosing the best epoch, stopping and going on with the same bits, what can be learnt."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from babelmill.config.entries import Tuning
from babelmill.core.files import UserError
from babelmill.runtime.slurm import Stop
from babelmill.tasks.tuner import EncodedRows, Padding, Tuner, held_out, rate_factor, set_seed

HOW = {
    "head": "model",
    "longest": 16,
    "epochs": 3,
    "batch": 8,
    "learning_rate": 0.05,
    "schedule": "cosine",
    "shuffle": "state",
    "select": "best",
    "seeds": [1],
}
PADDING = Padding(0, False, None)


class Bag(nn.Module):
    """The mean of the embeddings of a row's tokens, with dropout, then a linear layer."""

    def __init__(self, classes: int = 2):
        super().__init__()
        self.embedding, self.head = nn.Embedding(32, 8), nn.Linear(8, classes)

    def forward(self, ids: torch.Tensor, there: torch.Tensor) -> torch.Tensor:
        states = nn.functional.dropout(self.embedding(ids), 0.2, self.training) * there[..., None]
        return self.head(states.sum(1) / there.sum(1, keepdim=True))


class Interrupts(Stop):
    """Gives a reason to leave after a number of steps."""

    def __init__(self, after: int):
        self._left = after

    def reason(self, needed: float) -> str | None:
        self._left -= 1
        return "the test says so" if self._left == 0 else None


def rows(count: int, seed: int = 0, learnable: bool = True) -> EncodedRows:
    """Rows whose class is whether the token 5 is in them; or a coin's."""
    random = np.random.default_rng(seed)
    labels = random.integers(2, size=count)
    ids = [[*random.integers(6, 32, size=random.integers(3, 9)).tolist(), 5 if label else 4] for label in labels]
    return EncodedRows(ids, labels if learnable else random.integers(2, size=count), 0)


def tuned(folder, stops=(), seed: int = 1, train=None, judge=None, metric="accuracy", **changes) -> tuple[Tuner, list]:
    """Tune as the stage does; each attempt of `stops` ends after so many steps, and a new process goes on."""
    how = Tuning.model_validate(HOW | changes)
    for after in (*stops, 0):
        set_seed(seed)
        judged = judge or rows(40, 1)
        tuner = Tuner(Bag(), how, seed, metric, train or rows(60), judged, PADDING, folder, torch.device("cpu"))
        assert tuner.run(Interrupts(after)) == (after == 0)
    return tuner, tuner.outcome(rows(40, 2))


@pytest.mark.parametrize("shuffle", ["state", "epoch"])
def test_killed_anywhere_the_result_has_the_same_bits(tmp_path, shuffle):
    """In the middle of an epoch, at its end, and twice: orders, dropout, moments and the best weights go on."""
    _, whole = tuned(tmp_path / "whole", shuffle=shuffle)
    assert len(whole.chosen_by) == 3
    for name, stops in {"middle": (3,), "end": (7,), "twice": (9, 4), "first": (1,)}.items():
        _, again = tuned(tmp_path / name, stops, shuffle=shuffle)
        assert np.array_equal(whole.logits, again.logits), name
        assert whole.chosen_by == again.chosen_by and whole.epoch == again.epoch
    _, other = tuned(tmp_path / "other", seed=2, shuffle=shuffle)
    assert not np.array_equal(whole.logits, other.logits)


def test_the_order_by_state_is_that_of_a_dataloader(tmp_path):
    """The challenge's script iterates over a DataLoader per epoch, and another one to choose the best epoch."""
    how = Tuning.model_validate(HOW)
    tuner = Tuner(Bag(), how, 7, "accuracy", rows(60), rows(40, 1), PADDING, tmp_path, torch.device("cpu"))
    set_seed(7)
    ours = [tuner._next_order(0), torch.rand(2), tuner._next_order(1)]
    set_seed(7)
    loader = DataLoader(range(60), batch_size=8, shuffle=True, drop_last=True)
    theirs = [torch.cat([*loader]), torch.rand(2), torch.cat([*loader])]
    for mine, other in zip(ours, theirs, strict=True):
        assert torch.equal(mine[: len(other)], other)


def test_what_can_be_learnt_is_learnt_and_noise_stays_at_chance(tmp_path):
    _, outcome = tuned(tmp_path / "a", epochs=20)
    assert (outcome.logits.argmax(1) == rows(40, 2).labels).all()
    noise = rows(200, 3, learnable=False)
    _, outcome = tuned(tmp_path / "b", epochs=5, train=noise, judge=rows(200, 4, learnable=False))
    assert all(0.35 < score < 0.65 for score in outcome.chosen_by)


def test_the_best_epoch_is_chosen_and_patience_ends_the_run(tmp_path, caplog):
    caplog.set_level("INFO")
    _, best = tuned(tmp_path / "best", epochs=6)
    assert best.epoch == best.chosen_by.index(max(best.chosen_by)) + 1  # strictly better: the first of the best
    _, last = tuned(tmp_path / "last", epochs=6, select="last")
    assert last.epoch == 6 and last.chosen_by == best.chosen_by
    assert "better than all before" in caplog.text
    flat = EncodedRows([[9, 4]] * 8, np.zeros(8, np.int64), 0)
    _, short = tuned(tmp_path / "short", epochs=50, patience=2, train=rows(60, learnable=False), judge=flat)
    assert "best" not in caplog.text.split("epoch 1:")[-1] and "better" not in caplog.text.split("epoch 1:")[-1]
    assert "epochs 1, 2, 3 are equally good on the 8 rows that choose: the first of them counts" in caplog.text
    waited = short.chosen_by[-3:]
    assert len(short.chosen_by) < 50 and max(waited[1:]) <= max(short.chosen_by[:-2])


def test_patience_goes_on_where_it_was(tmp_path):
    """All epochs are equally good; killed in the third, which is the second without progress, the run ends with it."""
    flat = EncodedRows([[9, 4]] * 8, np.arange(8) % 2, 0)
    for name, stops in {"whole": (), "killed": (16,)}.items():
        _, outcome = tuned(tmp_path / name, stops, epochs=9, patience=2, judge=flat)
        assert outcome.chosen_by == [0.5] * 3 and outcome.epoch == 1


def test_rates():
    how = Tuning.model_validate(HOW | {"warmup": 0.1, "floor": 0.1})
    assert [rate_factor(step, 100, how) for step in (0, 5, 10)] == [0.0, 0.5, 1.0]
    assert rate_factor(99, 100, how) == pytest.approx(0.1, abs=1e-3)
    line = Tuning.model_validate(HOW | {"schedule": "linear"})
    assert [rate_factor(step, 100, line) for step in (0, 25, 100)] == [1.0, 0.75, 0.0]


def test_weights_decay_and_gradients_are_clipped(tmp_path):
    """A token of no row gets no gradient, so its weights only decay; what is clipped to nothing moves nothing."""
    set_seed(1)
    before = Bag()
    tuner, _ = tuned(tmp_path / "decay", weight_decay=0.5, epochs=1, select="last")
    how = Tuning.model_validate(HOW)
    left = np.prod([1 - 0.5 * 0.05 * rate_factor(step, 7, how) for step in range(7)])
    assert left < 0.95 and torch.allclose(tuner.model.embedding.weight[1], before.embedding.weight[1] * left)
    tuner, _ = tuned(tmp_path / "clipped", weight_decay=0.0, clip_norm=1e-14, epochs=1, select="last")
    assert torch.allclose(tuner.model.head.weight, before.head.weight, atol=1e-5)
    tuner, _ = tuned(tmp_path / "free", weight_decay=0.0, clip_norm=None, epochs=1, select="last")
    assert not torch.allclose(tuner.model.head.weight, before.head.weight, atol=1e-2)


def test_held_out_rows():
    kept, chosen = held_out(100, 0.1, 3)
    assert len(chosen) == 10 and sorted(kept + chosen) == [*range(100)]
    assert (kept, chosen) == held_out(100, 0.1, 3) != held_out(100, 0.1, 4)
    with pytest.raises(UserError, match="3 training rows are too few to hold out 10%"):
        held_out(3, 0.1, 1)


def test_too_few_rows_for_a_batch(tmp_path):
    with pytest.raises(UserError, match="7 rows to train on, fewer than a batch of 8"):
        tuned(tmp_path, train=rows(7))


class Broken(Bag):
    """Answers with nothing that is a number: always, or only without dropout."""

    def __init__(self, always: bool):
        super().__init__()
        self._always = always

    def forward(self, ids: torch.Tensor, there: torch.Tensor) -> torch.Tensor:
        return super().forward(ids, there) * (torch.nan if self._always or not self.training else 1)


@pytest.mark.parametrize(
    ("always", "message"),
    [
        (True, "the loss at step 0 is not a number: the weights of this model"),
        (False, "after step 7, .*; lower learning"),
    ],
)
def test_answers_that_are_no_numbers_are_an_error(always, message, tmp_path):
    how = Tuning.model_validate(HOW)
    given = (how, 1, "accuracy", rows(60), rows(40, 1), PADDING, tmp_path, torch.device("cpu"))
    with pytest.raises(UserError, match=message):
        Tuner(Broken(always), *given).run(Interrupts(0))
