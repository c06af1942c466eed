"""The loop of training: when it ends, what it records, and what it waits for."""

import os
import signal
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from babelmill.commands.progress import model_status
from babelmill.core.files import UserError
from babelmill.runtime.progress import GpuFigures
from babelmill.runtime.record import energy_kwh
from babelmill.runtime.run_folder import Done, RunFolder
from babelmill.runtime.slurm import Stop
from babelmill.training import loop as loop_module
from babelmill.training import pending as pending_module
from babelmill.training.loop import Loop, Window
from babelmill.training.pending import Pending
from helpers.training.nvml import FIGURES, UUIDS
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
    run = section("run", checkpoint_every=10, checkpoint_share=1, log_every=10, validate_every=0)
    with RunFolder(tmp_path, {}, run) as folder:
        folder.open("test", attempt=1, steps=40, tokens=0, precision="fp32")
        rest = None, {}, 0.0
        yield lambda trainer, done, stop: Loop(trainer, run, folder, done, stop, *rest)


def test_the_loop_goes_on_where_a_pass_does_not_fit(make, loop, stop, monkeypatch):
    shrink_device(monkeypatch)
    trainer = make(micro_batch_tokens=320)
    assert loop(trainer, Done(35, validated=True, precision="fp32"), stop).run() and trainer.size.tokens < 320


def test_the_time_of_a_step_is_that_of_the_device(make, loop, stop, monkeypatch):
    """A GPU is behind the host, which only tells it what to do: such a step takes 100 s."""
    trainer = make()
    run_step, done = trainer.run_step, []

    def slow(number, votes):
        done.append(number)
        return replace(run_step(number, votes), whole=SimpleNamespace(over=lambda: True, seconds=lambda: 100.0))

    monkeypatch.setattr(trainer, "run_step", slow)
    stop._end = time.monotonic() + 220  # the allocation's
    assert not loop(trainer, Done(30, validated=True, precision="fp32"), stop).run()
    assert done == [30, 31, 32], "the first may take longer; after the second there is no time for two more"


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


@pytest.mark.slow
def test_a_validation_that_is_shorter_than_saving_is_not_saved_before(make, loop, stop, monkeypatch):
    run = loop(make(), Done(0, validated=False, precision="fp32"), stop)
    run._validations = {*range(5, 41, 5)}
    run._run = run._run.model_copy(update={"checkpoint_every": 1000})
    saved = []
    monkeypatch.setattr(run, "_save", lambda done: (saved.append(done), setattr(run, "_cost", 100.0)))
    assert run.run() and saved == [5, 40]


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
    assert now > 1000.0 and run._window.state()["seconds"] == 0


def test_numbers_that_never_come_are_a_lost_process(stop, monkeypatch):
    """NCCL waits for a process that is gone, and the launcher has asked this one to end."""
    os.kill(os.getpid(), signal.SIGTERM)
    now = time.monotonic() + Pending.LOST + 1  # a signal of long ago does not count, the waiting since does

    def sleep(_) -> None:
        nonlocal now
        now += 10.0

    monkeypatch.setattr(pending_module, "time", SimpleNamespace(monotonic=lambda: now, sleep=sleep))
    answers = iter([False, True])

    def pending(query) -> Pending:
        return Pending(None, torch.zeros(2, 3), torch.zeros(4), torch.zeros(()), SimpleNamespace(over=query), [])

    pending(lambda: next(answers)).read(stop)
    with pytest.raises(UserError, match="lost contact with another process"):
        pending(lambda: False).read(stop)


def test_what_gpus_say_is_in_the_record(make, loop, stop, driver, tmp_path):
    """Figures, and the energy since the line before: with what a checkpoint of a half-finished window held."""
    run = loop(make(micro_batch_tokens=320), Done(15, validated=True, precision="fp32"), stop)
    window = Window(4)
    window.joules = 7
    run._window.restore(window.state())
    run._gpus = GpuFigures(UUIDS)
    driver(energy=[5_036_000, 7_000_000])
    assert run.run()
    path = next(tmp_path.glob("metrics.jsonl"))
    lines = [line for line in read_metrics(path) if line["kind"] == "train"]
    assert [line["step"] for line in lines] == [20, 30, 40]
    assert [line["energy"] for line in lines] == [7 + 36, 0, 0] and energy_kwh(path) == 43 / 3.6e6
    assert all(line | FIGURES == line for line in lines)
    driver(result=4)  # from here on, the driver refuses
    run = loop(make(micro_batch_tokens=320), Done(15, validated=True, precision="fp32"), stop)
    run._gpus = GpuFigures(UUIDS)
    assert run.run()
    assert energy_kwh(path) is None, "not known of every part"
