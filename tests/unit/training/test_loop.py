"""The loop of training: when it ends, what it records, and what it waits for."""

import dataclasses
import os
import signal
from types import SimpleNamespace

import pynvml
import pytest
import torch

from babelmill.runtime import slurm
from babelmill.runtime.run_folder import Done, RunFolder
from babelmill.runtime.slurm import Stop
from babelmill.runtime.watching import GpuFigures
from babelmill.training import loop as loop_module
from babelmill.training.loop import Loop, Window
from babelmill.training.trainer import Trainer
from helpers.training.tiny_trainer import trainer_maker
from helpers.training.training_data import read_metrics, section

FIGURES = {"gpu_utilization": 92, "gpu_memory": 71 * 1024.0, "gpu_power": 650.0005, "gpu_temperature": 61}


@pytest.fixture
def gpu(monkeypatch):
    """Return a function that sets the energy that the GPU has used so far, in mJ; None: it does not say that."""
    used: list[int | None] = [5_000_000]
    answers = {"utilization": 92, "device_memory_used": 71 << 30, "power_draw": 650_000.5, "temperature": 61}
    for name, answer in answers.items():
        monkeypatch.setattr(torch.cuda, name, lambda _, answer=answer: answer)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "_get_pynvml_handler", lambda device: device)

    def energy(_) -> int:
        if used[-1] is None:
            raise pynvml.NVMLError_NotSupported
        return used[-1]

    monkeypatch.setattr(pynvml, "nvmlDeviceGetTotalEnergyConsumption", energy)
    return used.append


@pytest.fixture
def make(tmp_path):
    """See `trainer_maker`."""
    return trainer_maker(tmp_path)


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
    run = section("run", checkpoint_every=10, checkpoint_minutes=60, log_every=10, validate_every=0)
    with RunFolder(tmp_path, {}, run) as folder:
        folder.open("test", attempt=1, steps=40, tokens=0, precision="fp32")
        yield lambda trainer, done, stop: Loop(trainer, folder, done, stop, None)


@pytest.fixture
def now(monkeypatch):
    """[The time], which each step moves on by 100 seconds."""
    now, run_step = [1000.0], Trainer.run_step
    monkeypatch.setattr(loop_module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(slurm, "time", SimpleNamespace(time=lambda: now[0]))

    def slow(trainer, number):
        now[0] += 100.0
        return run_step(trainer, number)

    monkeypatch.setattr(Trainer, "run_step", slow)
    return now


def test_it_leaves_before_the_allocation_ends(make, loop, stop, now, tmp_path):
    """With time for two more steps, whose numbers are read where a line is logged: after the tenth."""
    stop._end = now[0] + 1350.0  # the allocation's
    assert not loop(make(), Done(0, validated=True, precision="fp32"), stop).run()
    kept = [path.stem for path in sorted(tmp_path.glob("step-*.json"))]
    assert kept[-1] == "step-00000011", "after ten steps there is time for three more, and then for two"


def test_a_signal_ends_a_validation(make, loop, stop, tmp_path, monkeypatch):
    """The run has done its last step, and its checkpoint is there; what remains is its validation."""
    trainer, before = make(), []
    validate = trainer.validation.measure
    kept = lambda leave: (before.extend(path.stem for path in tmp_path.glob("step-*.json")), validate(leave))[1]  # noqa: E731
    monkeypatch.setattr(trainer.validation, "measure", kept)
    assert loop(trainer, Done(39, validated=False, precision="fp32"), stop).run() and before == ["step-00000040"]
    assert loop(trainer, Done(40, validated=False, precision="fp32"), stop).run()
    os.kill(os.getpid(), signal.SIGTERM)
    assert not loop(trainer, Done(40, validated=False, precision="fp32"), stop).run()
    assert trainer.validation.measure(lambda: True) is None


def test_what_gpus_say_is_in_the_record(make, loop, stop, gpu, now, tmp_path, monkeypatch):
    """Figures, speed, and the energy since the line before: with what a checkpoint of a half-finished window held."""
    monkeypatch.setattr(loop_module, "READ_EVERY", 3)
    run = loop(make(micro_batch_tokens=320), Done(15, validated=True, precision="fp32"), stop)
    run._window = Window.restored(dataclasses.replace(Window.empty(4), joules=7.0, seconds=1100.0).state())
    run._gpus = GpuFigures(torch.device("cuda", 0))
    gpu(5_036_000)
    assert run.run()
    path = next(tmp_path.glob("metrics.jsonl"))
    lines = [line for line in read_metrics(path) if line["kind"] == "train"]
    assert [line["step"] for line in lines] == [20, 30, 40]
    assert [line["energy"] for line in lines] == [7 + 36, 0, 0]
    assert [line["tokens_per_second"] for line in lines] == [320 * 5 / 1600, 3.2, 3.2]
    assert all(line | FIGURES == line for line in lines)
    figures = GpuFigures(torch.device("cuda", 0))
    gpu(100)
    assert figures.joules() == 0, "the driver was loaded again"
    gpu(None)
    assert figures.joules() is None
