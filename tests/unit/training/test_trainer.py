"""One process's trainer: the loss is the one that was promised, whatever the micro-batches."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from babelmill.core.files import UserError
from babelmill.model.gpt_bert import training_mask
from babelmill.runtime.processes import in_words
from babelmill.training.optimization.gradients import Sharding
from babelmill.training.trainer import Trainer
from helpers.training.tiny_trainer import ALONE, make_trainer, trainer_maker
from helpers.training.training_data import every_row, write_documents

STEP = 35
NORBERT4 = {"architecture": "norbert4", "layers": 3}  # its windows are shorter than rows, which hold several documents


@pytest.fixture
def make(tmp_path):
    """See `trainer_maker`."""
    return trainer_maker(tmp_path)


@pytest.fixture
def small_device(monkeypatch):
    """Let the device run out of memory in a forward pass of more than 100 tokens."""
    embedding = F.embedding

    def small(ids, *args, **more):
        if ids.numel() > 100:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nMore lines follow.")
        return embedding(ids, *args, **more)

    monkeypatch.setattr(F, "embedding", small)


def gradient(trainer: Trainer) -> torch.Tensor:
    trainer.run_step(STEP)
    return trainer._gradients.flat.clone()


def means(trainer: Trainer) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean over masked and over causal targets of the global batch, of cross-entropy plus z-loss, written out."""
    step = trainer.plan.step(STEP)
    batch = trainer.stream.micro_batch(step.rows, step.length, step.weights)
    logits = trainer.model(batch.input_ids, training_mask(batch.segments, batch.causal)).flatten(0, 1)[batch.positions]
    losses = F.cross_entropy(logits, batch.targets, reduction="none") + 1e-4 * logits.logsumexp(1) ** 2
    causal = batch.causal[batch.positions // step.length]
    return losses[~causal].mean(), losses[causal].mean()


def differ(found: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((found - wanted).norm() / wanted.norm())


@pytest.mark.parametrize(("ratio", "about"), [("1/2", {}), ("1/4", {}), ("1/2", NORBERT4)], ids=str)
def test_the_gradient_is_that_of_the_weighted_means(make, ratio, about):
    trainer = make(hybrid_ratio=ratio, micro_batch_tokens=64, **about)
    masked, causal = means(trainer)
    share = float(Fraction(ratio))
    parameters = list(trainer.model.parameters())
    expected = torch.autograd.grad(share * masked + (1 - share) * causal, parameters)
    got = gradient(trainer)
    assert len(got) < sum(parameter.numel() + 16 for parameter in parameters), "at most 60 bytes of padding for each"
    assert got.count_nonzero() == sum(parameter.grad.count_nonzero() for parameter in parameters)
    for parameter, wanted in zip(parameters, expected, strict=True):
        torch.testing.assert_close(parameter.grad, wanted, atol=1e-6, rtol=1e-4)


OF_NORBERT4 = [NORBERT4 | {"objective": objective} for objective in ("hybrid", "masked", "causal", "diffusion")]


@pytest.mark.parametrize("about", [{}, *OF_NORBERT4], ids=str)
def test_the_gradient_does_not_depend_on_the_forward_passes(make, about):
    """One row at a time, three, or all at once; without functions for CPUs; where activations are computed again.

    Dropout is keyed by row.
    """
    wanted = gradient(make(**about, dropout=0.1, micro_batch_tokens=320))
    for changes in ({"micro_batch_tokens": 32}, {"micro_batch_tokens": 96}, {"activation_checkpointing": True}):
        for by_hand in (True, False):
            assert differ(gradient(make(**about, dropout=0.1, by_hand=by_hand, **changes)), wanted) < 1e-6, changes
    assert differ(gradient(make(**about)), wanted) > 0.01


@pytest.mark.parametrize("objective", ["hybrid", "masked", "causal"])
def test_a_step_without_the_functions_for_cpus(make, objective):
    """Attention, GEGLU and dropout as on CUDA, mixing as shipped: the same gradient, but for what dropout draws."""
    by_hand, plain = (make(objective=objective, by_hand=by_hand) for by_hand in (True, False))
    wanted, got = gradient(by_hand), gradient(plain)
    assert not torch.equal(got, wanted)  # it is other code
    assert differ(got, wanted) < 1e-6
    dropped = gradient(make(objective=objective, dropout=0.1, by_hand=False))
    assert dropped.isfinite().all() and 0.01 < differ(dropped, wanted) < 2


def test_in_bf16_the_gradient_of_a_norbert4_differs_by_rounding(make):
    exact, rounded = (gradient(make(**NORBERT4, precision=precision)) for precision in ("fp32", "bf16"))
    assert 1e-4 < differ(rounded, exact) < 0.02


@pytest.mark.parametrize("values", [{"precision": "bf16"}, {"dropout": 0.1}], ids=str)
def test_training_keeps_no_weights_of_attention(make, values):
    """If it kept those of all layers of a NorBERT4, activation checkpointing would save little."""
    trainer, kept = make(**NORBERT4, **values), []
    trainer.model.encoder.register_forward_hook(lambda _module, _given, found: kept.extend(found[1]))
    trainer.run_step(STEP)
    assert len(kept) >= 3 and set(kept) == {None}


def test_matrices_of_a_norbert4_decay_and_nothing_else(make):
    """Muon gets those of the layers."""
    trainer = make(**NORBERT4)
    groups = trainer._optimizer.param_groups
    names = {name: bool(group["weight_decay"]) for group in groups for name in group["param_names"]}
    assert names["encoder.layers.1.attention.qk_proj.weights.1"] and names["embedding.word_embedding.weight"]
    assert not any(decays for name, decays in names.items() if name.endswith(("scale", "lambdas", "bias")))
    assert trainer.network.matrices() == {name for name, decays in names.items() if decays and ".layers." in name}


def test_a_step_without_any_target_moves_nothing(tmp_path):
    """Rows of long prompts alone; validation counts the few targets that there are."""
    texts = [np.array([1, *range(16, 96), *range(16, 96), 2])] * 8
    shard = write_documents(tmp_path / "long.safetensors", texts, prompts=[159] * 8)
    one_row = {"sequence_lengths": [16], "phase_starts": [0.0], "global_batch_tokens": 16}
    trainer = make_trainer([shard], dropout=0.1, objective="diffusion", optimizer="adamw", weight_decay=0.0, **one_row)
    empty = [s for s in range(40) if not trainer.plan.step(s).rows.targets.any()]
    step = trainer.plan.step(empty[0])
    assert len(empty) > 5 and len(step.rows) == 1
    before = {name: value.clone() for name, value in trainer.network.weights().items()}
    outcome = trainer.run_step(empty[0])
    assert outcome.norm == 0 and not outcome.sums.any() and not trainer.plan.group_counts(step.rows).any()
    assert all(torch.equal(value, before[name]) for name, value in trainer.network.weights().items())
    causal = make_trainer([shard], dropout=0.1, objective="causal").validation.measure()
    assert causal["loss"] == causal["loss_causal"] > 0 and causal["loss_masked"] is None
    assert trainer.validation.measure()["loss"] > 0


def test_validation_takes_every_token_once_with_both_kinds_of_rows(make):
    trainer = make()
    result = trainer.validation.measure()
    assert set(result["languages"]) == {"eng", "deu"} and result["ema_loss"] == result["loss"]
    counts, tokens = trainer.validation.layouts, trainer.validation.stream
    rows = every_row(counts, 16, None)
    assert rows.targets.sum() == sum(count.tokens for count in counts) - 90  # all but the <s> of 90 documents
    batch = tokens.micro_batch(rows, 16, (0.0, 0.0))
    trainer.model.eval()
    with torch.no_grad():
        logits = trainer.model(batch.input_ids, training_mask(batch.segments, batch.causal))
    expected = F.cross_entropy(logits.flatten(0, 1)[batch.positions], batch.targets)
    assert result["loss_causal"] == pytest.approx(expected.item(), rel=1e-5)
    masked = every_row(counts, 16, trainer.train.mask_rate_end).targets.sum()
    assert result["targets"] == rows.targets.sum() + masked and "ema_targets" not in result


def test_what_does_not_fit_is_halved_and_the_step_repeated(make, small_device, caplog):
    """Gradient and sums are those of a device with room for all."""
    trainer = make(dropout=0.1, micro_batch_tokens=320)
    outcome = trainer.run_step(STEP)
    assert trainer.micro_batch_tokens == 64
    assert [text.partition(" from")[0] for text in caplog.messages] == [
        f"memory ran out: forward passes of {tokens} tokens" for tokens in (160, 64)
    ]
    other = make(dropout=0.1, micro_batch_tokens=64)
    wanted = other.run_step(STEP)
    assert differ(trainer._gradients.flat, other._gradients.flat) < 1e-6
    torch.testing.assert_close(outcome.sums, wanted.sums)


@pytest.mark.parametrize("whole", [False, True])
def test_what_cannot_be_halved_ends_the_run(make, small_device, whole):
    """A single row, and whole micro-batches, whose size is part of the result."""
    rows = 2 if whole else 1
    trainer = make(micro_batch_tokens=rows * 128, sequence_lengths=[128, 128], global_batch_tokens=640)
    trainer.network.sharding = Sharding({"some weight": torch.Size([9])} if whole else {}, ALONE)
    told = r"^training does not fit into memory; .* lower train.micro_batch_tokens, .* GiB.$"
    with pytest.raises(UserError, match=told), in_words():
        trainer.run_step(STEP)
    assert trainer.micro_batch_tokens == rows * 128
