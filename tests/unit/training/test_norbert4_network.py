"""Training of a NorBERT4: the loss is the one that was promised, whatever the passes."""

import pytest
import torch
from torch.nn import functional as F

from babelmill.model.gpt_bert import training_mask
from helpers.training.tiny_trainer import make_trainer
from helpers.training.training_data import documents, write_documents

OBJECTIVES = ("hybrid", "masked", "causal", "diffusion")
STEP = 35


@pytest.fixture
def make(tmp_path):
    """A function that makes a trainer on two languages."""
    shards = [write_documents(tmp_path / f"{i}.safetensors", documents(60 >> i, seed=i)) for i in range(2)]
    return lambda **values: make_trainer(shards, architecture="norbert4", **{"layers": 3, "dropout": 0.1} | values)


def gradient(trainer) -> torch.Tensor:
    trainer.run_step(STEP)
    return trainer._gradients.flat.clone()


def differ(found: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((found - wanted).norm() / wanted.norm())


def test_the_gradient_is_that_of_the_weighted_means(make):
    """Of cross-entropy and z-loss, computed on the whole batch at once by PyTorch's functions."""
    trainer = make(dropout=0.0)
    step = trainer.plan.step(STEP)
    batch = trainer.stream.micro_batch(step.rows, step.length, step.weights)
    logits = trainer.model(batch.input_ids, training_mask(batch.segments, batch.causal)).flatten(0, 1)[batch.positions]
    losses = F.cross_entropy(logits, batch.targets, reduction="none") + 1e-4 * logits.logsumexp(1) ** 2
    causal = batch.causal[batch.positions // step.length]
    parameters = list(trainer.model.parameters())
    wanted = torch.autograd.grad((losses[causal].mean() + losses[~causal].mean()) / 2, parameters)
    gradient(trainer)
    for parameter, expected in zip(parameters, wanted, strict=True):
        torch.testing.assert_close(parameter.grad, expected, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_passes_of_any_size_give_the_same_gradient(make, objective):
    """With dropout, of attention, too, which is keyed by row."""
    wanted = gradient(make(objective=objective))
    for changes in ({"micro_batch_tokens": 320}, {"activation_checkpointing": True}):
        assert differ(gradient(make(objective=objective, **changes)), wanted) < 1e-6, changes
    assert differ(gradient(make(objective=objective, dropout=0.0)), wanted) > 0.01


def test_in_bf16_the_gradient_differs_by_rounding(make):
    """Windows are shorter than rows, which hold several documents."""
    exact, rounded = (gradient(make(dropout=0.0, precision=precision)) for precision in ("fp32", "bf16"))
    assert 1e-4 < differ(rounded, exact) < 0.02


@pytest.mark.parametrize("values", [{"precision": "bf16", "dropout": 0.0}, {"dropout": 0.1}])
def test_training_keeps_no_weights_of_attention(make, values):
    """If it kept those of all layers, activation checkpointing would save little."""
    trainer, kept = make(**values), []
    trainer.model.encoder.register_forward_hook(lambda _module, _given, found: kept.extend(found[1]))
    trainer.run_step(STEP)
    assert len(kept) >= 3 and set(kept) == {None}


def test_matrices_decay_and_nothing_else(make):
    """Muon gets those of the layers."""
    trainer = make()
    groups = trainer._optimizer.param_groups
    names = {name: bool(group["weight_decay"]) for group in groups for name in group["param_names"]}
    assert names["encoder.layers.1.attention.qk_proj.weights.1"] and names["embedding.word_embedding.weight"]
    assert not any(decays for name, decays in names.items() if name.endswith(("scale", "lambdas", "bias")))
    assert trainer.network.matrices() == {name for name, decays in names.items() if decays and ".layers." in name}
