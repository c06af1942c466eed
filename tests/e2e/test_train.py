"""The training stage as a user runs it: interrupted, killed, damaged."""

import fcntl
import functools
import os
import pty
import random
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from babelmill.runtime.run_lock import holder
from babelmill.runtime.slurm import OWN_STEP
from conftest import EXPLODING
from helpers.programs import held
from helpers.programs.prepared import START
from helpers.training.training_data import (
    EXPECTED,
    STEPS,
    UNDISTURBED,
    Data,
    assert_same,
    logged,
    wait_for_step,
    wait_for_writing,
)


def test_training_learns_and_records(finished):
    lines = finished.metrics()
    assert logged(lines) == EXPECTED
    train = [line for line in lines if line["kind"] == "train"]
    assert train[-1]["loss"] < 0.85 * train[0]["loss"]
    last = lines[-1]
    assert last["kind"] == "validation" and last["loss"] == pytest.approx(
        (last["loss_masked"] + last["loss_causal"]) / 2
    )
    assert abs(last["ema_loss"] - last["loss"]) < 0.2
    assert [line["tokens"] for line in train[:2]] == [160, 320]
    for key in ("perplexity", "accuracy", "z_loss", "grad_norm", "learning_rate", "mask_rate", "rows", "memory"):
        assert isinstance(train[0][key], int | float), key
    weights = load_file(finished.folder / "model/model.safetensors")
    assert (
        "embedding.word_embedding.weight" in weights and "transformer.attention_layers.0.in_proj_qk.weight" in weights
    )
    assert all(value.dtype == torch.float32 for value in weights.values())
    assert oct((finished.folder / "model/model.safetensors").stat().st_mode & 0o777) in ("0o644", "0o664")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_leaves_a_checkpoint_and_code_75(data, finished, number):
    output = data.interrupt(12, number)
    assert f"received {number.name}" in output
    assert not (data.folder / "model/manifest.json").exists()
    assert f"going on after step {output.split('left after step ')[1].split(';')[0]}" in data.train()
    assert_same(data, finished)


@pytest.mark.slow
def test_closing_the_terminal_leaves_a_checkpoint(data):
    """With its progress bar on it: the terminal takes no more text, and the lock is not left behind."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", held.START + START, *data.command()]
    environment = os.environ | {held.VARIABLE: "vote 13"}
    terminal = functools.partial(fcntl.ioctl, theirs, termios.TIOCSCTTY, 0)
    outputs = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
    process = subprocess.Popen(
        command, env=environment, **outputs, start_new_session=True, preexec_fn=terminal, cwd=data.folder
    )
    os.close(theirs)
    while not any('"step": 12,' in path.read_text() for path in data.checkpoints.glob("*/metrics.jsonl")):
        assert process.poll() is None
        if select.select([ours], [], [], 0.05)[0]:
            os.read(ours, 2**16)
    os.close(ours)
    assert process.wait(120) == 75
    (run,), log = data.runs, data.log
    assert "received SIGHUP: finishing step" in log.read_text() and "Traceback" not in log.read_text()
    assert list(run.glob("step-*.json")) and holder(run) is None


def test_variables_that_another_launcher_left_are_not_used(data):
    """As an interactive job or a notebook leaves them. Waiting for the other processes would be in vain."""
    data.settings(max_steps=4)
    data.train("calm")
    shutil.rmtree(data.checkpoints)
    left = {"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "MASTER_ADDR": "nowhere", "MASTER_PORT": "29500"}
    data.train(environment=left)
    assert data.weights() == data.weights("calm") and "step 4/4" in data.log.read_text()


def kill_at_random_moments(data: Data, seed: int, kills: int) -> None:
    """With kill -9, while it starts, trains or saves; then let it end."""
    choose = random.Random(seed)
    for step in sorted(choose.randrange(STEPS - 2) for _ in range(kills)):
        process = data.start(hold=f"vote {STEPS - 1}")
        if step:
            wait_for_step(data, step, process)
        time.sleep(choose.random() * 0.05)
        process.kill()
        process.communicate()
    data.train()


def logs_of(data: Data) -> list[Path]:
    """The logs of all attempts of a run, in order of their times."""
    return sorted((data.runs[0] / "logs").glob("*.log"))


SEEDS_AND_KILLS = [(0, 4), *(pytest.param(seed, 5, marks=pytest.mark.nightly) for seed in range(1, 5))]


@pytest.mark.parametrize(("seed", "kills"), SEEDS_AND_KILLS)
def test_killed_at_random_moments(data, finished, seed, kills):
    """Nothing is lost but steps."""
    kill_at_random_moments(data, seed, kills)
    assert_same(data, finished)
    logs = [path.read_text() for path in logs_of(data)]
    killed = logs[0]
    assert "attempt 1 of test on" in killed and "M parameters" in killed and killed.endswith("\n")
    # The last attempt has no line of a step where the one before it was killed after the last checkpoint.
    assert "step 60/60" not in killed and len(logs) > 1
    # All attempts are counted, though the command does not say which one it is.
    assert [path.stem.split("_", 1)[1] for path in logs_of(data)] == [f"attempt{1 + i}" for i in range(len(logs))]


@pytest.mark.slow
def test_means_over_several_steps_are_those_of_a_run_that_nothing_disturbed(data):
    """A line of the record is about 4 steps, a checkpoint is made every 5; one of two processes' runs is killed."""
    data.run_settings(log_every=4, checkpoint_every=5, validate_every=0)
    for out in ("calm", "model"):
        if out == "model":
            shutil.rmtree(data.checkpoints)
            data.interrupt(28, signal.SIGKILL, 2)  # the last checkpoint is that of step 25, in the middle of four
        data.train(out, 2)
    assert data.weights("model") == data.weights("calm")
    calm, ours = data.metrics("calm"), data.metrics("model")
    assert [line["step"] for line in ours] == [*range(4, STEPS + 1, 4), STEPS]
    for key in ("loss", "loss_masked", "loss_causal", "accuracy", "tokens", "skipped"):
        assert [line[key] for line in ours if key in line] == [line[key] for line in calm if key in line]


def recorded_steps(path: Path) -> set[int]:
    """The steps of W&B's offline recording of a run, which has the form of LevelDB's logs: blocks with pieces of records."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, place, whole, steps = path.read_bytes(), 7, b"", set()
    while place + 7 <= len(data):
        if (left := 2**15 - place % 2**15) < 7:
            place += left
            continue
        size, kind = int.from_bytes(data[place + 4 : place + 6], "little"), data[place + 6]
        whole += data[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in (1, 4):  # a whole record, or its last piece
            record = Record.FromString(whole)
            whole = b""
            if record.WhichOneof("record_type") == "history":
                steps.add(record.history.step.num)
    return steps


@pytest.mark.slow
def test_weights_and_biases(data, monkeypatch):
    """Offline without a key; one run, though it was interrupted; nothing at all without tracking, or with WANDB_MODE=disabled."""
    for name in ("WANDB_API_KEY", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(data.folder))  # no key of `wandb login`
    data.run_settings(tracking="wandb", checkpoint_every=5, validate_every=20)
    before: set[Path] = set()
    for attempt, code in ((1, 75), (2, 0)):
        process = data.start(hold="vote +13")  # W&B may need longer to begin than this run to end
        wait_for_step(data, 12 * attempt, process)
        (run,) = data.runs
        while not (recorded := set(run.glob("wandb/offline-run-*/*.wandb")) - {*before}) or len(recorded) > 1:
            time.sleep(0.05)
        before = recorded
        if attempt == 1:
            process.send_signal(signal.SIGTERM)
        else:
            data.go_on()
        output = process.communicate()[1]
        assert process.returncode == code, output
    (recorded,) = run.glob("wandb/offline-run-*/*.wandb")
    assert recorded.name == f"run-test-{run.name}.wandb" and {recorded} == before
    assert recorded_steps(recorded) == set(range(1, STEPS + 1)), "all of the run, also from before it was interrupted"
    for key in ("loss_masked", "perplexity", "accuracy", "grad_norm", "learning_rate", "mask_rate", "sequence_length"):
        assert f"train/{key}".encode() in recorded.read_bytes(), key
    assert b"clip_norm" in recorded.read_bytes(), "the settings"
    assert b"validation/ema_loss" in recorded.read_bytes()
    data.settings(max_steps=4)
    for tracking, variables in (("none", {}), ("wandb", {"WANDB_MODE": "disabled"})):
        shutil.rmtree(data.checkpoints)
        data.run_settings(tracking=tracking)
        data.train(environment=variables)
        assert not list(data.runs[0].rglob("wandb"))


@pytest.mark.parametrize("kills", [2, pytest.param(10, marks=pytest.mark.nightly)])
def test_killed_while_a_checkpoint_is_written(data, kills):
    """Several times in one run, in the first or the second checkpoint that an attempt writes."""
    most = 2 * kills  # steps: each kill lets it write at most one checkpoint
    data.settings(max_steps=most)
    data.run_settings(checkpoint_every=1, validate_every=0)
    data.train("calm")
    shutil.rmtree(data.checkpoints)
    done = 0
    for killed in range(kills):
        process = data.start(hold=f"save +{1 + killed % 2}")
        half = wait_for_writing(data, process, done + 1 + killed % 2)
        process.kill()
        output = process.communicate()[1]
        assert process.returncode == -signal.SIGKILL, output
        assert bool(re.search(rf"going on after step {done}\b", output)) == (done > 0)
        done += killed % 2
        assert (
            half.exists() and max((int(path.stem[5:]) for path in half.parent.glob("step-*.json")), default=0) == done
        )
    data.train()
    assert data.weights() == data.weights("calm")
    steps = [line["step"] for line in data.metrics() if line["kind"] == "train"]
    assert steps == list(range(1, most + 1))


@pytest.mark.parametrize(("every", "minutes", "steps"), [(5, 60, [10, 12]), (None, 1e-9, [11, 12]), (None, 60, [12])])
def test_checkpoints_come_by_steps_and_by_minutes(data, every, minutes, steps):
    """And the last two stay."""
    data.settings(max_steps=12)
    data.run_settings(checkpoint_every=every, checkpoint_minutes=minutes)
    data.train("model", 2)
    assert [int(path.stem[5:]) for path in sorted(data.runs[0].glob("step-*.json"))] == steps


def test_going_back_to_earlier_settings_trains_nothing(data, finished):
    shutil.copytree(finished.checkpoints, data.checkpoints)
    shutil.copytree(finished.folder / "model", data.folder / "model")
    before = data.weights()
    data.settings(max_steps=5, learning_rate=0.001, ema_decay=0)
    output = data.train()
    assert data.weights() != before and len(data.runs) == 2
    assert "step 5: validation loss" in output and "averaged" not in output
    assert len(set(data.weights())) == 1, "without an average, the last weights"
    (checkpoint,) = data.checkpoints.glob("*/step-00000005.safetensors")
    assert not any(name.startswith("average.") for name in load_file(checkpoint))
    assert data.metrics()[-1]["ema_loss"] == data.metrics()[-1]["loss"]
    data.settings(**UNDISTURBED)
    data.run_settings(checkpoint_every=7)
    assert "already trained" in data.train()
    assert data.weights() == before
    assert logged(data.metrics()) == EXPECTED


def test_a_second_trainer_is_kept_out(data, finished):
    process = data.at_step(2)
    output = data.train(code=1)
    assert f"another training run is writing here: process {process.pid} on {socket.gethostname()}" in output
    data.go_on()
    output = process.communicate()[1]
    assert process.returncode == 0, output
    assert_same(data, finished)


def test_an_allocation_about_to_end_leaves_a_checkpoint(data, tmp_path):
    squeue = tmp_path / "bin/squeue"
    squeue.parent.mkdir()
    squeue.write_text("#!/bin/sh\ndate -d '+25 seconds' +%FT%T\n")
    squeue.chmod(0o755)
    environment = {"SLURM_JOB_ID": "7", OWN_STEP: "1", "PATH": f"{squeue.parent}:{os.environ['PATH']}"}
    output = data.train(environment=environment, code=75)
    assert "the allocation ends soon: finishing step 1" in output
    assert (data.runs[0] / "step-00000001.json").exists()


def test_an_attempt_without_progress_is_not_repeated(data):
    data.settings(**EXPLODING)
    data.run_settings(checkpoint_every=STEPS)
    for attempt in ("1", "2"):
        assert "not finite" in data.train("model", 1, "--attempt", attempt, code=1)
    output = data.train("model", 1, "--attempt", "3", code=1)
    assert "training failed in two attempts without progress after step 0" in output
    kept = [path.name.split("_", 1)[1] for path in logs_of(data)]
    assert kept == ["attempt1.log", "attempt2.log"], "in order of their times; there was no third"
    for number, path in enumerate(logs_of(data), 1):
        first, *_, last = path.read_text().splitlines()
        assert f"attempt {number} of test on" in first and "loss or gradient is not finite" in last


def test_a_loss_that_is_not_finite_stops_the_run_or_is_left_out(data):
    data.settings(**EXPLODING)
    output = data.train(code=1)
    assert "loss or gradient is not finite" in output and "rows of 16 tokens from row" in output and "eng" in output
    assert "train.non_finite: skip" in output and "Traceback" not in output
    assert not (data.folder / "model/model.safetensors").exists()
    data.settings(**EXPLODING, non_finite="skip")
    output = data.train()
    assert "the step is skipped" in output
    skipped = [line["skipped"] for line in data.metrics() if line["kind"] == "train"]
    assert sum(skipped) >= 10 and [line["loss"] for line in data.metrics()][-2] is None
    weights = load_file(data.folder / "model/model.safetensors")
    assert all(value.isfinite().all() for value in weights.values())


def test_a_full_disk_keeps_the_checkpoint_before(data, finished):
    """The folder of checkpoints is a disk with room for two, in a mount namespace that ends with the command."""
    data.run_settings(checkpoint_every=5, validate_every=20)
    disk = data.checkpoints
    disk.mkdir()
    inside = 'mount -t tmpfs -o size=400k tmpfs "$0" && { "$@"; code=$?; cp -r "$0" "$0.kept"; exit $code; }'
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", inside, disk]
    done = subprocess.run(
        [*command, sys.executable, "-m", *data.command()], capture_output=True, text=True, cwd=data.folder
    )
    assert done.returncode == 1, done.stderr
    assert re.search(
        r"/step-000000\d\d.safetensors: cannot be written: No space left on device",
        done.stderr,
    )
    assert "Traceback" not in done.stderr
    disk.rmdir()
    disk.with_name("checkpoints.kept").rename(disk)
    assert "going on after step" in data.train()
    assert_same(data, finished)
