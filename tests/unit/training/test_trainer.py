"""One process's trainer: the loss is the one that was promised, whatever the micro-batches."""

import dataclasses
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from babelmill.core.files import UserError
from babelmill.model.gpt_bert import training_mask
from babelmill.runtime import cost
from babelmill.runtime.processes import Processes
from babelmill.train import announce, describe
from babelmill.training.kernels import dropout
from babelmill.training.optimization import gradients
from babelmill.training.optimization.sharding import Sharding
from babelmill.training.pass_size import Fitted
from babelmill.training.pending import Votes
from babelmill.training.plan import rows as dealing
from babelmill.training.trainer import Trainer
from helpers.training.tiny_trainer import ALONE, make_trainer, shrink_device, trainer_maker
from helpers.training.training_data import every_row, write_documents

STEP = 35


@pytest.fixture
def make(tmp_path):
    """See `trainer_maker`."""
    return trainer_maker(tmp_path)


@pytest.fixture
def small_device(monkeypatch):
    """See `shrink_device`."""
    shrink_device(monkeypatch)


def gradient(trainer: Trainer) -> torch.Tensor:
    trainer.run_step(STEP)
    return trainer._gradients.flat.clone()


def means(trainer: Trainer) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean over masked and over causal targets of the global batch, of cross-entropy plus z-loss, written out."""
    step = trainer.plan.step(STEP)
    batch = trainer._stream.micro_batch(step.rows, step.length, step.weights)
    logits = trainer.model(batch.input_ids, training_mask(batch.segments, batch.causal)).flatten(0, 1)[batch.positions]
    losses = F.cross_entropy(logits, batch.targets, reduction="none") + 1e-4 * logits.logsumexp(1) ** 2
    causal = batch.causal[batch.positions // step.length]
    return losses[~causal].mean(), losses[causal].mean()


@pytest.mark.parametrize("ratio", ["1/2", "1/4"])
def test_the_gradient_is_that_of_the_weighted_means(make, ratio):
    trainer = make(hybrid_ratio=ratio, micro_batch_tokens=64)
    masked, causal = means(trainer)
    share = float(Fraction(ratio))
    parameters = list(trainer.model.parameters())
    expected = torch.autograd.grad(share * masked + (1 - share) * causal, parameters)
    got = gradient(trainer)
    assert len(got) < sum(parameter.numel() + 16 for parameter in parameters), "at most 60 bytes of padding for each"
    assert got.count_nonzero() == sum(parameter.grad.count_nonzero() for parameter in parameters)
    for parameter, wanted in zip(parameters, expected, strict=True):
        torch.testing.assert_close(parameter.grad, wanted, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("tokens", [32, 96, 320])
def test_micro_batches_add_up(make, tokens):
    wanted, got = gradient(make(micro_batch_tokens=64)), gradient(make(micro_batch_tokens=tokens))
    assert (got - wanted).norm() / wanted.norm() < 1e-6


@pytest.mark.parametrize("by_hand", [True, False])
def test_activation_checkpointing_changes_nothing(make, by_hand):
    trainers = [make(dropout=0.1, by_hand=by_hand, activation_checkpointing=again) for again in (False, True)]
    wanted, got = map(gradient, trainers)
    assert (got - wanted).norm() / wanted.norm() < 1e-6


@pytest.mark.parametrize("objective", ["hybrid", "masked", "causal"])
def test_a_step_without_the_functions_for_cpus(make, objective):
    """Attention, GEGLU and dropout as on CUDA, mixing as shipped: the same gradient, but for what dropout draws."""
    by_hand, plain = (make(objective=objective, by_hand=by_hand) for by_hand in (True, False))
    wanted, got = gradient(by_hand), gradient(plain)
    assert not torch.equal(got, wanted)  # it is other code
    assert (got - wanted).norm() / wanted.norm() < 1e-6
    dropped = gradient(make(objective=objective, dropout=0.1, by_hand=False))
    assert dropped.isfinite().all() and 0.01 < (dropped - wanted).norm() / wanted.norm() < 2


def test_dropout_is_the_same_at_each_repetition_and_another_at_the_next_step(make):
    first, second = make(dropout=0.1), make(dropout=0.1)
    second.run_step(3)  # draws random numbers before; the learning rate is not 0, so restore the weights
    second.model.load_state_dict(first.model.state_dict())
    assert torch.equal(gradient(first), gradient(second))


@pytest.mark.parametrize("by_hand", [True, False])
def test_dropout_does_not_depend_on_the_forward_passes(make, by_hand):
    """One row at a time, three, or all at once; and the generic path drops what the functions for CPUs drop."""
    wanted = gradient(make(dropout=0.1, micro_batch_tokens=320))
    for rows in (1, 3, 10):
        got = gradient(make(dropout=0.1, micro_batch_tokens=32 * rows, by_hand=by_hand))
        assert (got - wanted).norm() / wanted.norm() < 1e-6


def test_a_pass_may_have_no_target(make):
    """A row with nothing to hide, alone in a forward pass: it adds nothing."""
    trainer = make(dropout=0.1)
    step = trainer.plan.step(STEP)
    trainer.network.begin_step(STEP)
    trainer._gradients.zero()
    sums, _ = trainer._learn(dealing.without_targets(step.rows[:1]), step.length, step.weights)
    assert not sums.any() and not trainer._gradients.flat.any()


def test_dropout_is_another_at_each_step_and_in_each_place(make):
    trainer = make(dropout=0.1)
    kept = {}
    for step in (3, 4):
        trainer.run_step(step)
        for of in ("rows", "step"):
            for place in (1, 2):
                keys = dropout.draw(getattr(trainer.network.keys, of), dropout.counter(place, ALONE.device))
                kept[step, of, place] = dropout.keep(keys, 1000, 0.1)
    masks = [row for mask in kept.values() for row in mask]
    assert len({tuple(row.tolist()) for row in masks}) == len(masks)


@pytest.mark.parametrize("architecture, half", [("gpt_bert", 0.6), ("norbert4", 0.75)])
def test_gradients_are_sent_while_the_backward_pass_runs(make, monkeypatch, architecture, half):
    """The first bucket leaves as soon as the last layer is done, the others as they fill, the shared ones at the end.

    Half of the buckets have left when `half` of the gradients are there.
    """
    monkeypatch.setattr(gradients, "BUCKET_ELEMENTS", 2000)
    trainer = make(layers=6, architecture=architecture)
    buckets = trainer._gradients = gradients.FlatGradients(trainer.model, Processes(0, 2, 2, torch.device("cpu")))
    sent, arrived = [], []
    for parameter in trainer.model.parameters():
        parameter.register_post_accumulate_grad_hook(arrived.append)

    def all_reduce(bucket, async_op):
        sent.append(len(arrived))
        return SimpleNamespace(wait=lambda: None)

    monkeypatch.setattr(gradients.dist, "all_reduce", all_reduce)
    step = trainer.plan.step(STEP)
    trainer._learn(step.rows[:2], step.length, step.weights, last=True)
    buckets.reduce()
    assert len(sent) >= 6
    assert sent[0] < len(arrived) / 6 and sent[len(sent) // 2] < half * len(arrived)


def test_backward_passes_add_the_gradients_that_there_are(make, monkeypatch):
    """In buckets of several parameters, half of which have no gradient; and one pass fails."""
    monkeypatch.setattr(gradients, "BUCKET_ELEMENTS", 2000)
    model = make().model
    buckets, found = gradients.FlatGradients(model, ALONE), list(model.parameters())
    assert 1 < len(buckets._buckets) < len(found) / 2

    def loss(parameters) -> torch.Tensor:
        return sum(i * parameter.sum() for i, parameter in enumerate(parameters, 1))

    buckets.zero()
    for last in (False, True):
        buckets.backward(loss(found[::2]), last)
    with pytest.raises(RuntimeError, match="scalar outputs"):
        buckets.backward(found[0] * 1, False)
    for i, parameter in enumerate(found):
        assert parameter.grad.eq(0 if i % 2 else i + 2).all()
        assert parameter.grad.untyped_storage().data_ptr() == buckets.flat.untyped_storage().data_ptr()


def test_each_gradient_begins_where_a_gpu_reads_fastest(make, monkeypatch):
    """With a vocabulary of odd size and six layers, at multiples of 64 bytes; what is between two stays 0."""
    monkeypatch.setattr(gradients, "BUCKET_ELEMENTS", 2000)
    trainer = make(layers=6)
    found, flat = list(trainer.model.parameters()), trainer._gradients.flat
    assert any(parameter.numel() % 16 for parameter in found)
    assert {parameter.grad.data_ptr() % 64 for parameter in found} == {0}
    trainer._gradients.zero()
    trainer._learn_share(trainer.plan.step(STEP), [])
    norms = torch.stack([parameter.grad.norm() for parameter in found])
    torch.testing.assert_close(flat.norm(), norms.norm())
    assert flat.count_nonzero() == sum(parameter.grad.count_nonzero() for parameter in found)
    assert torch.equal(torch.cat(trainer._gradients._buckets), flat)
    assert {bucket.data_ptr() % 64 for bucket in trainer._gradients._buckets} == {0}


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
    outcome = trainer.run_step(empty[0]).read()
    assert outcome.norm == 0 and not outcome.sums.any() and not trainer.plan.group_counts(step.rows).any()
    assert all(torch.equal(value, before[name]) for name, value in trainer.network.weights().items())
    causal = make_trainer([shard], dropout=0.1, objective="causal").validation.measure()
    assert causal["loss"] == causal["loss_causal"] > 0 and causal["loss_masked"] is None
    assert trainer.validation.measure()["loss"] > 0


@pytest.mark.slow
def test_the_average_is_not_measured_before_it_begins(make):
    """With train.ema_decay: 0, it is the weights themselves until then."""
    trainer = make(ema_decay=0.0, average_last=0.5)
    for number, differs in ((19, False), (20, True), (21, True)):
        trainer.run_step(number).read()
        assert trainer.average.differs is differs
        found = trainer.validation.measure()
        trainer.average.differs = True
        assert found == trainer.validation.measure(), number
    assert found["loss"] != found["ema_loss"]


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
    """Gradient and sums are those of a device with room for all; a resumed run begins with the size that was found."""
    trainer = make(dropout=0.1, micro_batch_tokens=320)
    trainer.size.auto = trainer.size.unknown = True
    pending = trainer.run_step(STEP)
    assert trainer.size.tokens == 64 and trainer.size.ran_out_of_memory
    assert caplog.text.count("a forward pass did not fit into memory: passes of ") == 2
    other = make(dropout=0.1, micro_batch_tokens=64)
    wanted = other.run_step(STEP)
    assert (trainer._gradients.flat - other._gradients.flat).norm() / other._gradients.flat.norm() < 1e-6
    assert pending.read().sums == pytest.approx(wanted.read().sums)
    resumed = make(dropout=0.1, micro_batch_tokens=320)
    resumed.size.auto = resumed.size.unknown = True
    resumed.state.restore(trainer.state.tensors(), trainer.state.numbers())
    assert resumed.size.tokens == 64
    elsewhere = make(dropout=0.1, micro_batch_tokens=320)
    elsewhere.size.auto = elsewhere.size.unknown = True
    elsewhere.state.restore(
        trainer.state.tensors(), trainer.state.numbers() | {"micro_batch": {"device": "another", "tokens": 80}}
    )
    assert elsewhere.size.tokens == 320


@pytest.mark.parametrize(("memory", "rows", "optimizer"), [(100, 6, "lamb"), (16, 1, "lamb"), (2, 1, "muon")])
def test_the_largest_passes_that_fit_are_found(make, monkeypatch, memory, rows, optimizer):
    """A simulated GPU that has 10 kB taken already, where a row takes 12.5 kB; 85 % of it may be used.

    Meanwhile memory is taken for what comes later: two moments of each weight, in fp32; with Muon, its matrices have
    their momentum already.
    """
    trainer, seen, later = make(objective="masked", optimizer=optimizer), [], []
    embedding, per_row, taken, empty = F.embedding, 12.5, 10.0, torch.empty

    def watched(ids, *args, **more):
        if ids.ndim == 2:
            seen.append(taken + per_row * len(ids))
            if seen[-1] > memory:
                raise torch.OutOfMemoryError("CUDA out of memory.")
        return embedding(ids, *args, **more)

    monkeypatch.setattr(F, "embedding", watched)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: seen.clear())
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: seen[-1])
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (memory, memory))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 0)
    monkeypatch.setattr(torch, "empty", lambda *size, **more: later.append(size) or empty(*size, **more))
    trainer.find_size()
    assert trainer.size.tokens == rows * max(trainer.train.sequence_lengths)
    ready = trainer.network.matrices() if optimizer == "muon" else ()
    weights = trainer.network.trained()
    assert later[0] == (2 * sum(weight.nbytes for name, weight in weights.items() if name not in ready),)


def test_passes_with_more_targets_have_not_fitted(make):
    rows = make().plan.step(STEP).rows
    few, many = (rows[np.flatnonzero(rows.kind == kind)[:2]] for kind in (0, 1))
    fitted = Fitted()
    fitted.add(32, [few])
    assert fitted.has(32, [few, few[:1]]) and not fitted.has(64, [few])
    assert few.targets.sum() < many.targets.sum() and not fitted.has(32, [many]), "as many rows, more targets"
    fitted.add(32, [many])
    assert fitted.has(32, [few, many]) and not fitted.has(32, [rows])


def test_a_validation_that_does_not_fit_is_made_of_smaller_passes(make, small_device, caplog):
    """The size of those in training stays as it is."""
    trainer = make(micro_batch_tokens=320)
    found, wanted = trainer.validation.measure(), make(micro_batch_tokens=64).validation.measure()
    assert found.keys() == wanted.keys()
    for name in ("loss", "loss_masked", "loss_causal", "accuracy", "ema_loss"):
        assert found[name] == pytest.approx(wanted[name], rel=1e-5)
    assert caplog.messages[-1].startswith(
        "from now on, 5 rows are validated at once, since more do not fit into memory: CUDA"
    )
    assert trainer.size.tokens == 320
    with pytest.raises(torch.OutOfMemoryError):
        make(micro_batch_tokens=320, sequence_lengths=[128, 128], global_batch_tokens=640).validation.measure()


def test_a_row_that_does_not_fit_ends_the_run(make, small_device, monkeypatch):
    trainer = make(micro_batch_tokens=128, sequence_lengths=[128, 128], global_batch_tokens=640)
    with pytest.raises(UserError, match=r"a row of 128 tokens does not fit into memory; .* GiB.$"):
        trainer.run_step(STEP)


def test_where_whole_micro_batches_are_dealt_their_size_is_not_changed(make, small_device):
    trainer = make(micro_batch_tokens=320)
    trainer.network.sharding = Sharding({"some weight": torch.Size([9])}, ALONE)
    with pytest.raises(UserError, match=r"train.micro_batch_tokens = 320 does not fit into memory; lower it; .* GiB.$"):
        trainer.run_step(STEP)


def test_what_a_process_votes_for_is_read_with_the_numbers_of_the_step(make):
    outcome = make().run_step(3, lambda: Votes(save=True)).read()
    assert outcome.decided == Votes(leave=False, save=True) and outcome.sums.shape == (4, 3) and outcome.norm > 0


def test_a_run_opens_with_what_it_is(make):
    trainer = make(learning_rate=0.004)
    trainer.processes = dataclasses.replace(ALONE, size=4)
    first, *lines = describe(trainer, 12, 0.25).splitlines()
    words = f"{0.25 * trainer.plan.tokens_until(40):,.0f} words in all"
    assert first.endswith(f"tokens, {words}; 4 x cpu; going on after step 12") and "M parameters, 40 steps" in first
    assert lines == [
        "  source      random weights, seed 7",
        "  first step  20 rows of up to 16 tokens, 320 tokens; per process 5 rows, 80 tokens",
        "  last step   10 rows of up to 32 tokens, 320 tokens; per process 2.5 rows, 80 tokens",
        "  rate        0.004 at its peak, lamb",
        "  precision   fp32",
        "  device      cpu",
    ]


GOES_ON = "this run stays in bf16, in which it began; a new one would be in fp32 here"


@pytest.mark.parametrize(
    ("flags", "precision", "here", "said"),
    [
        ("avx2", "bf16", "bf16", cost.BF16_IS_SLOW),
        ("avx2", "bf16", "fp32", GOES_ON),
        ("avx2", "fp32", "fp32", None),
        (None, "bf16", "bf16", None),
    ],
)
def test_bf16_on_a_processor_without_it_is_said_once(make, tmp_path, monkeypatch, caplog, flags, precision, here, said):
    monkeypatch.setattr(cost, "CPU_INFO", tmp_path / "cpuinfo")
    if flags:
        cost.CPU_INFO.write_text(f"flags : fpu {flags}\n")
    caplog.set_level("INFO")
    announce(make(precision=precision), tmp_path, 0, 0, 0.25, here)
    assert caplog.messages[1:] == [said] * bool(said)
