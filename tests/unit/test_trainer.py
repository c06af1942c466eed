"""One process's trainer: the loss is the one that was promised, whatever the micro-batches."""

import dataclasses
import os
import signal
import time
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from babelmill.core.files import UserError
from babelmill.model.gpt_bert import GPTBertShape, training_mask
from babelmill.runtime.gpu_figures import GpuFigures
from babelmill.runtime.processes import Processes
from babelmill.runtime.record import energy_kwh
from babelmill.runtime.run_folder import Done, RunFolder
from babelmill.runtime.stopping import Stop
from babelmill.training import dropout, gradients, work
from babelmill.training.fitting import Fitted
from babelmill.training.gpt_bert_network import GPTBertNetwork
from babelmill.training.loop import Loop, Window
from babelmill.training.opening import block
from babelmill.training.pending import Pending
from babelmill.training.plan import Plan
from babelmill.training.trainer import Trainer
from babelmill.training.votes import Votes
from nvml import FIGURES, UUIDS, answered
from training_data import (
    VOCABULARY,
    documents,
    every_row,
    read_metrics,
    section,
    stream,
    train_settings,
    write_documents,
)

STEP = 35
ALONE = Processes(rank=0, size=1, local_size=1, device=torch.device("cpu"))


@pytest.fixture
def make(tmp_path):
    """A function that makes a trainer of two languages with these `train` settings, without dropout."""
    shards = [write_documents(tmp_path / f"{i}.safetensors", documents(60 >> i, seed=i)) for i in range(2)]
    tokens, counts = stream(shards)

    def make(
        dropout: float = 0.0, layers: int = 2, by_hand: bool = True, micro_batch_tokens: int = 64, **values
    ) -> Trainer:
        train = section("train", **({"max_steps": 40, "clip_norm": 1e9, "global_batch_tokens": 320} | values))
        model = section(
            "model", hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout, num_hidden_layers=layers
        )
        shape = GPTBertShape(vocab_size=VOCABULARY.size, **model.shape())
        settings = train_settings(["eng", "deu"], model, train)
        plan = Plan(train, 1.0, counts)
        network = GPTBertNetwork(shape, train, ALONE, by_hand)
        return Trainer(settings, network, plan, tokens, (counts, tokens), ALONE, micro_batch_tokens)

    return make


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
    sums, _ = trainer._learn(work.without_targets(step.rows[:1]), step.length, step.weights)
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


def test_gradients_are_sent_while_the_backward_pass_runs(make, monkeypatch):
    """The first bucket leaves as soon as the last layer is done, the others as they fill, the shared ones at the end."""
    monkeypatch.setattr(gradients, "BUCKET_ELEMENTS", 2000)
    trainer = make(layers=6)
    buckets = gradients.FlatGradients(trainer.model, Processes(0, 2, 2, torch.device("cpu")))
    sent, arrived = [], []
    for parameter in trainer.model.parameters():
        parameter.register_post_accumulate_grad_hook(arrived.append)

    def all_reduce(bucket, async_op):
        sent.append(len(arrived))
        return SimpleNamespace(wait=lambda: None)

    monkeypatch.setattr(gradients.dist, "all_reduce", all_reduce)
    buckets.last_backward()
    step = trainer.plan.step(STEP)
    trainer._learn(step.rows[:2], step.length, step.weights)
    buckets.reduce()
    assert len(sent) >= 6
    assert sent[0] < len(arrived) / 6 and sent[len(sent) // 2] < 0.7 * len(arrived)


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


def test_validation_takes_every_token_once_with_both_kinds_of_rows(make):
    trainer = make()
    result = trainer.validate()
    assert set(result["languages"]) == {"eng", "deu"} and result["ema_loss"] == result["loss"]
    counts, tokens = trainer._validation_layouts, trainer._validation_stream
    rows = every_row(counts, 16, None)
    assert rows.targets.sum() == sum(count.tokens for count in counts) - 90  # all but the <s> of 90 documents
    batch = tokens.micro_batch(rows, 16, (0.0, 0.0))
    trainer.model.eval()
    with torch.no_grad():
        logits = trainer.model(batch.input_ids, training_mask(batch.segments, batch.causal))
    expected = F.cross_entropy(logits.flatten(0, 1)[batch.positions], batch.targets)
    assert result["loss_causal"] == pytest.approx(expected.item(), rel=1e-5)


@pytest.fixture
def stop():
    """Reasons to leave; the signal handlers are put back."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield Stop(ask_slurm=False)
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def loop(tmp_path):
    """A function that makes a loop in a folder of its own, which is open."""
    run = section("run", checkpoint_every=10, checkpoint_share=1, log_every=10, validate_every=0)
    with RunFolder(tmp_path, {}, run) as folder:
        folder.open("test", attempt=1, steps=40, tokens=0)
        yield lambda trainer, done, stop: Loop(trainer, run, folder, done, stop)


@pytest.fixture
def small_device(monkeypatch):
    """A device on which a forward pass of more than 100 tokens does not fit."""
    embedding = F.embedding

    def small(ids, *args, **more):
        if ids.numel() > 100:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nMore lines follow.")
        return embedding(ids, *args, **more)

    monkeypatch.setattr(F, "embedding", small)


def test_what_does_not_fit_is_halved_and_the_step_repeated(make, loop, stop, small_device, caplog):
    """Gradient and sums are those of a device with room for all; a resumed run begins with the size that was found."""
    trainer = make(dropout=0.1, micro_batch_tokens=320)
    trainer._auto = trainer._finds_size = True
    pending = trainer.run_step(STEP)
    assert trainer.micro_batch_tokens == 64 and trainer.ran_out_of_memory
    assert caplog.text.count("a forward pass did not fit into memory: passes of ") == 2
    other = make(dropout=0.1, micro_batch_tokens=64)
    wanted = other.run_step(STEP)
    assert (trainer._gradients.flat - other._gradients.flat).norm() / other._gradients.flat.norm() < 1e-6
    assert pending.read().sums == pytest.approx(wanted.read().sums)
    resumed = make(dropout=0.1, micro_batch_tokens=320)
    resumed._auto = resumed._finds_size = True
    resumed.restore(trainer.tensors(), trainer.state())
    assert resumed.micro_batch_tokens == 64
    elsewhere = make(dropout=0.1, micro_batch_tokens=320)
    elsewhere._auto = elsewhere._finds_size = True
    elsewhere.restore(trainer.tensors(), trainer.state() | {"micro_batch": {"device": "another", "tokens": 80}})
    assert elsewhere.micro_batch_tokens == 320
    assert loop(make(dropout=0.1, micro_batch_tokens=320), Done(35, validated=True), stop).run()


@pytest.mark.parametrize(("memory", "rows"), [(100, 6), (16, 1), (2, 1)])
def test_the_largest_passes_that_fit_are_found(make, monkeypatch, memory, rows):
    """A simulated GPU that has 10 kB taken already, where a row takes 12.5 kB; 85 % of it may be used."""
    trainer, seen = make(objective="masked"), []
    embedding, per_row, taken = F.embedding, 12.5, 10.0

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
    trainer.find_size()
    assert trainer.micro_batch_tokens == rows * max(trainer.train.sequence_lengths)


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
    found, wanted = trainer.validate(), make(micro_batch_tokens=64).validate()
    assert found.keys() == wanted.keys()
    for name in ("loss", "loss_masked", "loss_causal", "accuracy", "ema_loss"):
        assert found[name] == pytest.approx(wanted[name], rel=1e-5)
    assert caplog.messages[-1].startswith("5 rows are validated at once from now on, more do not fit: CUDA")
    assert trainer.micro_batch_tokens == 320
    with pytest.raises(torch.OutOfMemoryError):
        make(micro_batch_tokens=320, sequence_lengths=[128, 128], global_batch_tokens=640).validate()


def test_the_time_of_a_step_is_that_of_the_device(make, loop, stop, monkeypatch):
    """A GPU is behind the host, which only tells it what to do: such a step takes 100 s."""
    trainer = make()
    run_step, done = trainer.run_step, []

    def slow(number, votes):
        done.append(number)
        return replace(run_step(number, votes), whole=SimpleNamespace(over=lambda: True, seconds=lambda: 100.0))

    monkeypatch.setattr(trainer, "run_step", slow)
    stop._end = time.monotonic() + 220  # the allocation's
    assert not loop(trainer, Done(30, validated=True), stop).run()
    assert done == [30, 31, 32], "the first may take longer; after the second there is no time for two more"


def test_a_row_that_does_not_fit_ends_the_run(make, small_device, monkeypatch):
    trainer = make(micro_batch_tokens=128, sequence_lengths=[128, 128], global_batch_tokens=640)
    with pytest.raises(UserError, match=r"a row of 128 tokens does not fit into memory; .* GiB.$"):
        trainer.run_step(STEP)


def test_where_whole_micro_batches_are_dealt_their_size_is_not_changed(make, small_device):
    trainer = make(micro_batch_tokens=320)
    trainer.network.whole_micro_batches = True
    with pytest.raises(UserError, match=r"train.micro_batch_tokens = 320 does not fit into memory; lower it; .* GiB.$"):
        trainer.run_step(STEP)


def test_a_signal_ends_a_validation(make, loop, stop):
    """The run has done its last step; what remains is its validation."""
    trainer = make()
    assert loop(trainer, Done(40, validated=False), stop).run()
    os.kill(os.getpid(), signal.SIGTERM)
    assert not loop(trainer, Done(40, validated=False), stop).run()
    assert trainer.validate(lambda: True) is None


def test_a_validation_that_is_given_up_is_no_training_time(make, loop, stop, monkeypatch):
    """It must not count in the throughput of the line that the resumed run goes on with."""
    trainer = make()
    monkeypatch.setattr(trainer, "validate", lambda leave: time.sleep(1.0))
    run = loop(trainer, Done(40, validated=False), stop)
    before = run._window.state()["seconds"]
    assert not run.run()
    assert run._window.state()["seconds"] - before < 1.0


def test_what_a_process_votes_for_is_read_with_the_numbers_of_the_step(make):
    outcome = make().run_step(3, lambda: Votes(save=True)).read()
    assert outcome.decided == Votes(leave=False, save=True) and outcome.sums.shape == (4, 3) and outcome.norm > 0


def test_numbers_that_never_come_are_a_lost_process(stop, monkeypatch):
    """NCCL waits for a process that is gone, and the launcher has asked this one to end."""
    monkeypatch.setattr(Pending, "LOST", 0.5)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(0.6)  # a signal of long ago does not count, the waiting since does
    answers = iter([False, True])

    def pending(query) -> Pending:
        return Pending(None, torch.zeros(2, 3), torch.zeros(4), torch.zeros(()), SimpleNamespace(over=query), [])

    pending(lambda: next(answers)).read(stop)
    with pytest.raises(UserError, match="lost contact with another process"):
        pending(lambda: False).read(stop)


def test_what_gpus_say_is_in_the_record(make, loop, stop, driver, tmp_path):
    """Figures, and the energy since the line before: with what a checkpoint of a half-finished window held."""
    run = loop(make(micro_batch_tokens=320), Done(15, validated=True), stop)
    window = Window(4)
    window.joules = 7
    run._window.restore(window.state())
    run._gpus = answered(GpuFigures(UUIDS))
    run._gpus.PATIENCE = 60.0
    driver(energy=[5_036_000, 7_000_000])
    assert run.run()
    path = next(tmp_path.glob("*/metrics.jsonl"))
    lines = [line for line in read_metrics(path) if line["kind"] == "train"]
    assert [line["step"] for line in lines] == [20, 30, 40]
    assert [line["energy"] for line in lines] == [7 + 36, 0, 0] and energy_kwh(path) == 43 / 3.6e6
    assert all(line | FIGURES == line for line in lines)
    driver(result=4)  # from here on, the driver refuses
    run = loop(make(micro_batch_tokens=320), Done(15, validated=True), stop)
    run._gpus = answered(GpuFigures(UUIDS))
    assert run.run()
    assert energy_kwh(path) is None, "not known of every part"
    window.restore({name: value for name, value in Window(4).state().items() if name != "joules"})
    assert window.joules == 0, "a checkpoint of an earlier version"


def test_a_run_opens_with_what_it_is(make):
    trainer = make(learning_rate=0.004)
    trainer.processes = dataclasses.replace(ALONE, size=4)
    first, *lines = block(trainer, 12).splitlines()
    assert first.endswith("tokens; 4 x cpu; going on after step 12") and "M parameters, 40 steps" in first
    assert lines == [
        "  source      random weights, seed 7",
        "  first step  20 rows of up to 16 tokens, 320 tokens; per process 5 rows, 80 tokens",
        "  last step   10 rows of up to 32 tokens, 320 tokens; per process 2.5 rows, 80 tokens",
        "  rate        0.004 at its peak, lamb",
        "  precision   fp32",
        "  device      cpu",
    ]
