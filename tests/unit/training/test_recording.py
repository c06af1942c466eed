"""Recorded passes: the same training as without them, also where passes cannot be recorded."""

import gc
import weakref

import pytest
import torch

from babelmill.training import cuda_graphs
from babelmill.training.kernels import dropout
from helpers.training.tape import Tape
from helpers.training.tiny_trainer import trainer_maker

pytestmark = pytest.mark.slow

STEPS = 8
FULL = "CUDA out of memory. Tried to allocate 2.00 GiB."


@pytest.fixture
def make(request, tmp_path, monkeypatch):
    """Make trainers on a CPU whose passes are recorded. Its parameter: with prompts."""
    monkeypatch.setattr(cuda_graphs, "CUDAGraph", Tape)
    return trainer_maker(tmp_path, getattr(request, "param", False))


def recorded(trainer):
    trainer._recorder._works = True  # as on a GPU
    return trainer


def train(trainer, steps: int = STEPS) -> tuple[torch.Tensor, list]:
    """Train for some steps; return the weights, and the numbers of all steps."""
    outcomes = [trainer.run_step(number) for number in range(steps)]
    return torch.cat([weight.detach().flatten() for weight in trainer.model.parameters()]), outcomes


@pytest.mark.parametrize(
    ("objective", "make", "most"),
    [
        ("hybrid", False, 16),
        ("causal", False, 2),
        ("diffusion", False, 16),
        ("diffusion", True, 16),
        ("causal", True, 16),
    ],
    indirect=["make"],
)
def test_training_with_recorded_passes_is_the_same(make, monkeypatch, objective, most):
    """With prompts, too, and if only `most` shapes are remembered."""
    repeated, repeat = [], Tape.repeat
    monkeypatch.setattr(Tape, "repeat", lambda tape: (repeated.append(tape), repeat(tape)))
    monkeypatch.setattr(cuda_graphs, "SHAPES", most)
    settings = {"dropout": 0.1, "batch_reduction": 2, "objective": objective}
    # Twice as many steps, since prompts make more shapes.
    (wanted, outcomes), other = train(make(**settings), 2 * STEPS), recorded(make(**settings))
    weights, others = train(other, 2 * STEPS)
    shapes = other._recorder._recorded
    assert 0 < len(shapes) <= len(other._recorder._given) <= most
    assert most == 2 or len(repeated) > 2 * len(shapes) > 2, "few shapes, which occur often"
    torch.testing.assert_close(weights, wanted, rtol=0, atol=1e-5)
    for one, two in zip(outcomes, others, strict=True):
        assert float(two.norm) == pytest.approx(float(one.norm), rel=1e-5)
        torch.testing.assert_close(two.sums, one.sums, rtol=1e-5, atol=0)


def test_a_pass_that_cannot_be_recorded_is_computed_as_before(make, monkeypatch, caplog):
    begin_pass = dropout.Keys.begin_pass

    def with_a_number_of_the_host(keys, rows, *more):
        begin_pass(keys, rows * torch.tensor(1), *more)

    monkeypatch.setattr(dropout.Keys, "begin_pass", with_a_number_of_the_host)
    wanted, _ = train(make(dropout=0.1))
    tapes, record = [], Tape.record
    monkeypatch.setattr(Tape, "record", lambda tape, *more: (tapes.append(weakref.ref(tape)), record(tape, *more))[1])
    gc.disable()
    weights, _ = train(recorded(make(dropout=0.1)))
    freed = [tape() is None for tape in tapes]
    gc.enable()
    assert freed == [True], "its memory is free at once"
    (record,) = caplog.records
    assert record.getMessage().endswith("not recorded, so small steps take longer: a number comes from the host")
    torch.testing.assert_close(weights, wanted, rtol=0, atol=1e-5)


def test_recordings_are_forgotten_when_memory_runs_out(make, monkeypatch, caplog):
    """Passes are halved, and smaller ones are recorded."""
    wanted, _ = train(make(dropout=0.1), 2 * STEPS)
    other, repeat, refused = recorded(make(dropout=0.1)), Tape.repeat, []

    def full(tape):
        if len(other._recorder._recorded) == 4 and not refused:
            refused.append(other._recorder._recorded)
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nMore lines follow.")
        repeat(tape)

    monkeypatch.setattr(Tape, "repeat", full)
    weights, _ = train(other, 2 * STEPS)
    (message,) = caplog.messages
    assert message == f"memory ran out: forward passes of 32 tokens from now on: {FULL}" and other._recorder._recorded
    torch.testing.assert_close(weights, wanted, rtol=0, atol=1e-5)
