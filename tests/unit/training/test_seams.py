"""What another objective, another network or another tokenizer needs is there: each is tried with a small stand-in."""

import functools
import re

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from babelmill.config.resolve import ROOT
from babelmill.model.gpt_bert import training_mask
from babelmill.training.plan import objectives
from helpers.training.tiny_trainer import trainer_maker
from helpers.training.training_data import VOCABULARY

STEP = 35


@pytest.fixture
def make(tmp_path):
    """A function that makes a trainer that learns by masked diffusion."""
    return functools.partial(trainer_maker(tmp_path), objective="diffusion", z_loss_weight=0, micro_batch_tokens=96)


def test_an_objective_whose_targets_stand_for_several(make):
    """Counts, the published loss sum (e / k) CE / sum e, its gradient over several forward passes, and the record."""
    trainer = make()
    step = trainer.plan.step(STEP)
    rows = step.rows
    layouts = trainer.plan.layouts
    every = np.array([layouts[i].targets(row, step.length)[1] for i, row in zip(rows.language, rows.row, strict=True)])
    assert (rows.stands_for == every).all() and (rows.targets < every).any() and len(set(rows.targets)) > 3
    batch = trainer.stream.micro_batch(rows, step.length, step.weights)
    assert np.array_equal(np.bincount(batch.positions // step.length, minlength=len(rows)), rows.targets)
    assert (batch.targets == VOCABULARY.eos).any(), "the end of a document is hidden, too"
    inside = batch.positions[batch.positions % step.length < step.length - 1]
    assert (batch.input_ids.flatten()[inside + 1] == VOCABULARY.mask).all()
    logits = trainer.model(batch.input_ids, training_mask(batch.segments, batch.causal)).flatten(0, 1)[batch.positions]
    losses = F.cross_entropy(logits, batch.targets, reduction="none")
    importance = torch.from_numpy(every / rows.targets)[batch.positions // step.length]
    expected = (importance * losses).sum() / every.sum()
    wanted = torch.autograd.grad(expected, list(trainer.model.parameters()))
    outcome = trainer.run_step(STEP)
    for parameter, gradient in zip(trainer.model.parameters(), wanted, strict=True):
        torch.testing.assert_close(parameter.grad, gradient.float(), atol=1e-6, rtol=1e-4)
    assert outcome.sums[:, 0].sum() / every.sum() == pytest.approx(expected.item(), rel=1e-5)
    result = trainer.validation.measure()
    assert result["loss"] == result["loss_diffusion"] > 0 and set(result["languages"]) == {"eng", "deu"}


def test_the_objective_of_the_guide_trains(make, monkeypatch):
    """CONTRIBUTING shows a whole objective; here it takes the place of `diffusion`."""
    (code,) = re.findall(
        r"```python\n(class .*?)```", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.DOTALL
    )
    names = dict(vars(objectives))
    exec(code, names)
    monkeypatch.setitem(objectives.OBJECTIVES, "diffusion", names["Sparse"])
    trainer = make()
    rows = trainer.plan.step(STEP).rows
    assert (rows.targets <= 2).all() and rows.targets.sum() > 0
    before = [parameter.clone() for parameter in trainer.model.parameters()]
    outcome = trainer.run_step(STEP)
    assert outcome.sums[:, 0].sum() > 0
    assert not all(torch.equal(old, new) for old, new in zip(before, trainer.model.parameters(), strict=True))
    assert trainer.validation.measure()["loss"] > 0
