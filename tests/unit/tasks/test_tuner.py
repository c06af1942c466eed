"""Fine-tuning: the order of rows, choosing the best epoch, going on with the same bits, and what can be learnt."""

import contextlib

import numpy as np
import pytest
import torch
from torch import nn
from transformers import set_seed

from babelmill.config.entries import Tuning
from babelmill.core.files import UserError
from babelmill.tasks.encoding import Padding, Row, targets
from babelmill.tasks.tuner import Judge, Tuner, held_out, rate_factor

HOW = {"head": "model", "longest": 16, "epochs": 3, "batch": 8, "learning_rate": 0.05, "schedule": "cosine"}
HOW |= {"shuffle": "state", "select": "best", "seeds": [1]}
PADDING = Padding(0, False, None)


class Bag(nn.Module):
    """The mean of the embeddings of a row's tokens, with dropout, then a linear layer."""

    def __init__(self, classes: int = 2):
        super().__init__()
        self.embedding, self.head = nn.Embedding(32, 8), nn.Linear(8, classes)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        states = nn.functional.dropout(self.embedding(input_ids), 0.2, self.training) * attention_mask[..., None]
        return self.head(states.sum(1) / attention_mask.sum(1, keepdim=True))


class Killed(Exception):
    """Comes within a step."""


def encoded(ids: list[list[int]], labels) -> list[Row]:
    there = np.ones(1, bool)
    return [Row({"input_ids": row}, np.array([label]), there, False) for row, label in zip(ids, labels, strict=True)]


def rows(count: int, seed: int = 0, learnable: bool = True) -> list[Row]:
    """Rows whose class is whether the token 5 is in them; or a coin's."""
    random = np.random.default_rng(seed)
    labels = random.integers(2, size=count)
    ids = [[*random.integers(6, 32, size=random.integers(3, 9)).tolist(), 5 if label else 4] for label in labels]
    return encoded(ids, labels if learnable else random.integers(2, size=count))


def judge_of(chosen: list[Row]) -> Judge:
    return lambda logits_of: float((logits_of(chosen).argmax(1) == targets(chosen)).mean())


def tuner_of(folder, seed: int = 1, train=None, judge=None, model=Bag, **changes) -> Tuner:
    how, judging = Tuning.model_validate(HOW | changes), judge_of(judge or rows(40, 1))
    return Tuner(model(), how, seed, train or rows(60), judging, PADDING, folder, torch.device("cpu"))


def tuned(folder, kills=(), seed: int = 1, test=None, **changes) -> tuple[Tuner, np.ndarray]:
    """Tune as the stage does; each attempt of `kills` ends within that step, and a new process goes on."""
    for last in (*kills, None):
        set_seed(seed)
        tuner = tuner_of(folder, seed, **changes)

        def step_or_end(step: int, chosen: list[int], goes=tuner._train_step, last=last) -> float:
            if step == last:
                raise Killed
            return goes(step, chosen)

        tuner._train_step = step_or_end
        with pytest.raises(Killed) if last is not None else contextlib.nullcontext():
            tuner.run()
    return tuner, tuner.predict(test or rows(40, 2))


@pytest.mark.parametrize("shuffle", ["state", "epoch"])
def test_killed_anywhere_the_result_has_the_same_bits(tmp_path, shuffle, caplog):
    """In the first epoch, as another begins, and twice: orders, dropout, moments and the best weights go on."""
    caplog.set_level("INFO")
    whole, logits = tuned(tmp_path / "whole", shuffle=shuffle)
    assert len(whole.scores) == 3 and whole.step == whole.steps == 21
    for name, kills in {"first": (3,), "begin": (7,), "twice": (10, 15)}.items():
        again, same = tuned(tmp_path / name, kills, shuffle=shuffle)
        assert np.array_equal(logits, same), name
        assert whole.scores == again.scores and whole.epoch == again.epoch
    assert "going on after epoch 2 of 3" in caplog.text, "one epoch is repeated, at most"
    _, other = tuned(tmp_path / "other", seed=2, shuffle=shuffle)
    assert not np.array_equal(logits, other)


def test_the_best_epoch_is_chosen_and_patience_ends_the_run(tmp_path):
    noise = {"train": rows(60, learnable=False), "judge": rows(9, 4, learnable=False)}
    best, of_best = tuned(tmp_path / "best", epochs=6, **noise)
    assert best.epoch == best.scores.index(max(best.scores)) + 1 < 6, "strictly better: the first of the best"
    last, of_last = tuned(tmp_path / "last", epochs=6, select="last", **noise)
    assert last.epoch == 6 and last.scores == best.scores and not np.array_equal(of_best, of_last)
    flat = encoded([[9, 4]] * 8, np.arange(8) % 2)  # all epochs are equally good
    for name, kills in {"whole": (), "killed": (16,)}.items():
        short, _ = tuned(tmp_path / name, kills, epochs=9, patience=2, judge=flat)
        assert short.scores == [0.5] * 3 and short.epoch == 1 and short.step == 21


def test_weights_decay_and_the_rate_ends_at_its_floor(tmp_path):
    """A token of no row gets no gradient, so its weights only decay."""
    set_seed(1)
    before, how = Bag(), Tuning.model_validate(HOW | {"floor": 0.1})
    tuner, _ = tuned(tmp_path, weight_decay=0.5, epochs=1, select="last", floor=0.1)
    left = np.prod([1 - 0.5 * 0.05 * rate_factor(step, 7, how) for step in range(7)])
    assert left < 0.95 and torch.allclose(tuner.model.embedding.weight[1], before.embedding.weight[1] * left)
    assert rate_factor(99, 100, how) == pytest.approx(0.1, abs=1e-3)


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

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        return super().forward(input_ids, attention_mask) * (torch.nan if self._always or not self.training else 1)


@pytest.mark.parametrize(
    ("always", "message"),
    [(True, "the loss at step 0 is not a number: the weights of this"), (False, "after epoch 1, .*; lower learning")],
)
def test_answers_that_are_no_numbers_are_an_error(always, message, tmp_path):
    with pytest.raises(UserError, match=message):
        tuner_of(tmp_path, model=lambda: Broken(always)).run()
