"""The loop of training: when it ends, what it records, and what it waits for."""

import dataclasses
import os
import signal
from types import SimpleNamespace

import pytest
import torch

from babelmill.commands.progress import model_status
from babelmill.runtime import slurm
from babelmill.runtime.run_folder import Done, RunFolder, energy_kwh
from babelmill.runtime.slurm import Stop
from babelmill.runtime.watching import GpuFigures
from babelmill.training import loop as loop_module
from babelmill.training.loop import Loop, Window
from helpers.training.nvml import FIGURES, gpu  # noqa: F401  a fixture
from helpers.training.tiny_trainer import shrink_device, trainer_maker
from helpers.training.training_data import read_metrics, section


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
        rest = None, {}, 0.0
        yield lambda trainer, done, stop: Loop(trainer, run, folder, done, stop, *rest)


def test_the_loop_goes_on_where_a_pass_does_not_fit(make, loop, stop, monkeypatch):
    shrink_device(monkeypatch)
    trainer = make(micro_batch_tokens=320)
    assert loop(trainer, Done(35, validated=True, precision="fp32"), stop).run() and trainer.micro_batch_tokens < 320


def test_it_leaves_before_the_allocation_ends(make, loop, stop, monkeypatch):
    """With time for two more steps, whose numbers are read where a line is logged: after the tenth."""
    now, trainer, done = [1000.0], make(), []
    monkeypatch.setattr(loop_module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(slurm, "time", SimpleNamespace(time=lambda: now[0]))
    run_step = trainer.run_step

    def slow(number):
        done.append(number)
        now[0] += 100.0
        return run_step(number)

    monkeypatch.setattr(trainer, "run_step", slow)
    stop._end = now[0] + 1350.0  # the allocation's
    assert not loop(trainer, Done(0, validated=True, precision="fp32"), stop).run()
    assert done == list(range(11)), "after ten steps there is time for three more, and then for two"


def test_the_numbers_of_steps_are_read_where_a_line_is_logged(make, loop, stop, monkeypatch):
    trainer, read = make(), []
    run = loop(trainer, Done(5, validated=True, precision="fp32"), stop)
    monkeypatch.setattr(run, "_read", lambda read_all=run._read: (read.append(len(run._unread)), read_all()))
    assert run.run() and read == [5, 10, 10, 10]
    monkeypatch.setattr(loop_module, "READ_EVERY", 4)
    run = loop(trainer, Done(30, validated=True, precision="fp32"), stop)
    monkeypatch.setattr(run, "_read", lambda read_all=run._read: (read.append(len(run._unread)), read_all()))
    assert run.run() and read[4:] == [4, 4, 2]


def test_a_signal_ends_a_validation(make, loop, stop):
    """The run has done its last step; what remains is its validation."""
    trainer = make()
    assert loop(trainer, Done(40, validated=False, precision="fp32"), stop).run()
    os.kill(os.getpid(), signal.SIGTERM)
    assert not loop(trainer, Done(40, validated=False, precision="fp32"), stop).run()
    assert trainer.validation.measure(lambda: True) is None


def test_a_validation_shows_how_far_it_is_and_a_checkpoint_is_there_before(make, loop, stop, monkeypatch, tmp_path):
    """For a user who waits, for `status`, and for a run that is killed meanwhile."""
    trainer, seen, shown = make(), [], []
    run = loop(trainer, Done(38, validated=False, precision="fp32"), stop)
    (folder,) = tmp_path.glob("identity.json")
    folder = folder.parent

    def leave() -> bool:
        seen.append((model_status.validating(folder), [path.name for path in folder.glob("step-*.safetensors")]))
        return False

    validate, draw = trainer.validation.measure, run._progress._bar.show
    monkeypatch.setattr(loop_module, "SAY_EVERY", 0.0)
    monkeypatch.setattr(trainer.validation, "measure", lambda _, show: validate(leave, show))
    monkeypatch.setattr(run._progress._bar, "show", lambda done, text: shown.append((done, text)) or draw(done, text))
    assert run.run() and model_status.validating(folder) == ""
    assert seen[0] == ("validating, 0 %", ["step-00000040.safetensors"])
    assert {note for note, _ in seen} > {"validating, 25 %", "validating, 50 %", "validating, 75 %"}
    validation = [text for _, text in shown if "validation" in text]
    assert validation[0] == "step 40/40  validation 0%" and validation[-1] == "step 40/40  validation 100%"
    done = [done for done, _ in shown]
    assert done == sorted(done) and done[-1] == run._progress._bar._total > trainer.plan.tokens_until(40)


def test_a_validation_that_is_given_up_is_no_training_time(make, loop, stop, monkeypatch):
    """It must not count in the throughput of the line that the resumed run goes on with."""
    trainer, now = make(), 1000.0

    def give_up(*_) -> None:
        nonlocal now
        now += 60.0

    monkeypatch.setattr(loop_module, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(trainer.validation, "measure", give_up)
    run = loop(trainer, Done(40, validated=False, precision="fp32"), stop)
    assert not run.run()
    assert now > 1000.0 and run._window.began == now


def test_what_gpus_say_is_in_the_record(make, loop, stop, gpu, tmp_path):  # noqa: F811
    """Figures, and the energy since the line before: with what a checkpoint of a half-finished window held."""
    run = loop(make(micro_batch_tokens=320), Done(15, validated=True, precision="fp32"), stop)
    run._window = Window.restored(dataclasses.replace(Window.empty(4), joules=7.0).state())
    run._gpus = GpuFigures(torch.device("cuda", 0))
    gpu(5_036_000)
    assert run.run()
    path = next(tmp_path.glob("metrics.jsonl"))
    lines = [line for line in read_metrics(path) if line["kind"] == "train"]
    assert [line["step"] for line in lines] == [20, 30, 40]
    assert [line["energy"] for line in lines] == [7 + 36, 0, 0] and energy_kwh(path) == 43 / 3.6e6
    assert all(line | FIGURES == line for line in lines)
    gpu(None)  # from here on, the driver refuses
    run = loop(make(micro_batch_tokens=320), Done(15, validated=True, precision="fp32"), stop)
    run._gpus = GpuFigures(torch.device("cuda", 0))
    assert run.run()
    assert energy_kwh(path) is None, "not known of every part"
