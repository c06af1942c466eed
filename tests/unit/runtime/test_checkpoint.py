"""Checkpoints, the lock of a run's folder, reasons to stop, and the record."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from datetime import datetime, timedelta

import pytest
import torch

from babelmill.core.files import UserError, write_json
from babelmill.runtime import slurm
from babelmill.runtime.checkpoint import Checkpoints, Snapshots
from babelmill.runtime.run_folder import Record
from babelmill.runtime.run_lock import holder, locked
from babelmill.runtime.slurm import Stop
from helpers.damage import flip_a_bit

TENSORS = {"model.a": torch.arange(6.0).view(2, 3), "b": torch.ones(2).bfloat16()}


# Checkpoints.


@pytest.mark.parametrize("damage", ["bit", "gone", "seal", "renamed"])
def test_damage_is_found_and_the_one_before_taken(tmp_path, caplog, damage):
    """An older checkpoint under a later name is damaged, too: its sha256 is right, and the run would seem at its end."""
    checkpoints = Checkpoints(tmp_path, keep=3)
    for step in (2, 5, 10):
        checkpoints.save(step, TENSORS, {})
    path = tmp_path / "step-00000010.safetensors"
    if damage == "bit":
        flip_a_bit(path)
    elif damage == "gone":
        path.unlink()
    elif damage == "seal":
        path.with_suffix(".json").write_text("{")
    else:
        for end in (".json", ".safetensors"):
            os.replace(tmp_path / f"step-00000002{end}", path.with_suffix(end))
    assert checkpoints.newest() == 5
    assert "step-00000010.safetensors is damaged" in caplog.text


def test_a_writer_that_dies_leaves_no_snapshot(tmp_path):
    """Its weights may be there, beside a .json that an earlier attempt wrote; damaged ones are refused."""
    kept = Snapshots(tmp_path)
    kept.save(0.00001, {"step": 1}, TENSORS, TENSORS.__getitem__)
    (tmp_path / "snapshots/.chck_0.00001M.safetensors.abc").write_bytes(b"half")
    assert list(kept.kept()) == ["chck_0.00001M"]
    flip_a_bit(kept.weights("chck_0.00001M"))
    with pytest.raises(UserError, match="missing or damaged"):
        kept.weights("chck_0.00001M")

    def dies(_name: str) -> torch.Tensor:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        kept.save(0.00001, {"step": 1}, TENSORS, dies)
    assert kept.kept() == {} and not list((tmp_path / "snapshots").glob(".chck*"))


# The lock.


HOLD = "import sys, time; from pathlib import Path; from babelmill.runtime.run_lock import holder, locked\nwith locked(Path(sys.argv[1])): print(flush=True); time.sleep(600)"


def test_who_is_suspended_holds_the_folder_and_who_is_killed_does_not(tmp_path, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    process = subprocess.Popen([sys.executable, "-c", HOLD, tmp_path], stdout=subprocess.PIPE)
    assert process.stdout.readline()
    monkeypatch.delenv("SLURM_JOB_ID")
    process.send_signal(signal.SIGSTOP)
    with pytest.raises(UserError, match=f"process {process.pid} on {socket.gethostname()}, job 77; wait for it"):
        locked(tmp_path).__enter__()
    process.kill()
    with locked(tmp_path):
        assert holder(tmp_path) == {"host": socket.gethostname(), "pid": os.getpid(), "job": None}
    assert holder(tmp_path) is None
    process.communicate()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"host": "n1"}', "\x00\x00"])
def test_a_damaged_lock_is_named_while_it_is_held(tmp_path, content):
    with locked(tmp_path):
        path = tmp_path / "lock.json"
        path.write_text(content)
        with pytest.raises(UserError, match=f"writing here: a process that {path} does not name; wait for it"):
            locked(tmp_path).__enter__()
    path.write_text(content)
    with locked(tmp_path):
        pass


# Leaving early.


@pytest.fixture
def program(tmp_path, monkeypatch):
    """A function that writes a shell script in place of a program of SLURM, for this process in job 7."""
    before = {number: signal.getsignal(number) for number in slurm.signals()}
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    def write(name: str, script: str) -> None:
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)

    yield write
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("scheduler", ["SLURM", "another"])
def test_the_end_of_an_allocation_is_a_reason_once_it_is_near(program, monkeypatch, scheduler):
    """Other schedulers' job scripts say when the job ends."""
    end = datetime.now() + timedelta(seconds=600)
    if scheduler == "SLURM":
        program("squeue", f"echo {end:%Y-%m-%dT%H:%M:%S}")
    else:
        monkeypatch.setenv(slurm.JOB_END, str(end.timestamp()))
    stop = Stop(ask_slurm=True)
    assert stop.reason(needed=60) is None
    assert stop.reason(needed=580) == "the allocation ends soon"
    assert Stop(ask_slurm=False).reason(needed=580) is None


def test_where_slurm_names_no_end_only_a_signal_is_a_reason(program):
    """It has no limit, or does not answer. A closed terminal counts unless `nohup` has it ignored."""
    for answer in ("echo N/A", "echo 2020-01-01T00:00:00; exit 1"):
        program("squeue", answer)
        assert Stop(ask_slurm=True).reason(needed=10_000) is None
    for handler, reason in ((signal.SIG_DFL, "received SIGHUP"), (signal.SIG_IGN, None)):
        signal.signal(signal.SIGHUP, handler)
        stop = Stop(ask_slurm=False)
        os.kill(os.getpid(), signal.SIGHUP)
        assert stop.reason(0) == reason


NOT_BACK = "job 7 is not put back into the queue"


@pytest.mark.parametrize(
    ("state", "code", "said"),
    [
        ("RUNNING", 0, "job 7 is put back into the queue"),
        ("RUNNING", 1, f"{NOT_BACK}: SLURM refused, or did not answer (scontrol requeue 7)"),
        *((state, 0, f"{NOT_BACK}: it is {state}") for state in ("COMPLETING", "CANCELLED", "PREEMPTED")),
        ("", 0, f"{NOT_BACK}: it is over"),
    ],
)
def test_only_a_running_job_goes_back_into_the_queue(program, monkeypatch, tmp_path, capfd, state, code, said):
    """A job that was cancelled would come back. The first question gets no answer."""
    monkeypatch.setattr(slurm, "REQUEUE_SECONDS", 3)
    program("squeue", f"cd {tmp_path}; echo >> asked; [ $(grep -c '' asked) -gt 1 ] && echo '{state}'")
    program("scontrol", f"echo $@ > {tmp_path}/requeued; exit {code}")
    slurm.requeue()
    assert capfd.readouterr().err == f"{said}\n"
    asked = tmp_path / "requeued"
    assert asked.read_text() == "requeue 7\n" if state == "RUNNING" else not asked.exists()
    monkeypatch.delenv("SLURM_JOB_ID")
    monkeypatch.setenv(slurm.AGAIN, str(tmp_path / "again"))  # of other schedulers: their job script looks at it
    slurm.requeue()
    assert (tmp_path / "again").exists()


# The record.


def test_the_record_drops_what_came_after_the_checkpoint(tmp_path):
    path = tmp_path / "metrics.jsonl"
    record = Record(path, 0)
    for step in (1, 2, 3):
        record.append({"step": step, "kind": "train", "loss": float("nan") if step == 2 else 1.5})
    record.append({"step": 2, "kind": "validation"})
    record.sync()
    with open(path, "a") as file:
        file.write('{"step": 4, "ki')
    again = Record(path, 2)
    assert again.validated
    again.append({"step": 3, "kind": "train", "loss": 1.0})
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [f"{line['step']} {line['kind']}" for line in lines] == ["1 train", "2 train", "2 validation", "3 train"]
    assert lines[1]["loss"] is None
    assert not Record(path, 1).validated


def test_a_full_disk_while_the_record_is_written(tmp_path):
    record = Record(tmp_path / "metrics.jsonl", 0)
    record._file = open("/dev/full", "w")  # noqa: SIM115
    with pytest.raises(UserError, match=r"metrics.jsonl: cannot be written: No space left"):
        record.append({"step": 1})


KEY = "0" * 40
MIRROR = """
import json, pathlib, sys, time
from babelmill.core.stage_entry import configure_logging
from babelmill.runtime import watching
configure_logging(None)
folder, watching.PATIENCE, watching.END = pathlib.Path(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
with watching.mirror("eng", folder), open(folder / "metrics.jsonl", "a") as file:
    file.write(json.dumps({"step": 1, "kind": "train", "loss": 2.0, "languages": {"eng": {"loss": 2.0}}}) + "\\n")
print(time.time())
"""


@pytest.fixture
def run(tmp_path):
    """The folder of a run."""
    folder = tmp_path / "0123456789abcdef"
    write_json(folder / "identity.json", {"settings": {"train": {"seed": 1}}})
    return folder


def mirror(
    run, patience: float = 120, end: float = 240, **variables: str
) -> tuple[str, float]:  # importing W&B is slow
    """Mirror a run of one step in a process of its own. Return its messages, and how long it lived after the run's end."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")} | variables
    command = [sys.executable, "-c", MIRROR, run, str(patience), str(end)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    return done.stderr, time.time() - float(done.stdout)


@pytest.fixture
def silent_server():
    """A server that takes connections and never answers; its address."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.slow
@pytest.mark.parametrize("server", ["refuses", "is silent"])
def test_where_the_server_does_not_answer_metrics_are_recorded_offline(run, silent_server, server):
    url = "http://127.0.0.1:9" if server == "refuses" else silent_server
    output, _ = mirror(run, WANDB_BASE_URL=url, WANDB_API_KEY=KEY, WANDB_NAME="a name of one's own")
    assert f"see WANDB_API_KEY and the network; recording in {run}" in output and len(output.splitlines()) == 1
    (recorded,) = run.glob("wandb/offline-run-*-eng-0123456789abcdef/*.wandb")
    assert b"train/languages/eng/loss" in recorded.read_bytes() and b"a name of one's own" in recorded.read_bytes()
    files = [path for path in (run / "wandb").rglob("*") if path.is_file()]
    assert not any(KEY.encode() in path.read_bytes() for path in files)


def test_where_it_cannot_begin_a_line_says_why(run):
    (run / "identity.json").unlink()
    assert "W&B: turned off for the rest of this run: [Errno 2] No such file" in mirror(run)[0]


@pytest.mark.slow
def test_a_run_whose_server_is_silent_ends_in_time(run, silent_server):
    """Its process, too, which would wait for W&B's own."""
    output, seconds = mirror(run, patience=2, end=4, WANDB_BASE_URL=silent_server, WANDB_API_KEY=KEY)
    assert seconds < 8 and "W&B did not finish in 2 s" in output and "Traceback" not in output, output
