"""The profiles of LSF, PBS, HTCondor and Kubernetes, with commands that stand in for those of the scheduler."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from conftest import ROOT, SMALL
from helpers.programs import stand_in_cluster
from helpers.programs.prepared import Program

# What the scheduler is asked for, with 2 threads, 3 GPUs, 5,000 MB and 20 minutes.
ASKED = {
    "lsf": ["-n 2 ", "-gpu num=3", "mem=5000MB", "-W 20 ", "-Q 99", "-J babelmill.tokenizer "],
    "pbs": ["ncpus=2:", "ngpus=3", "mem=5000mb", "walltime=1200", "-N bm.tokenizer "],
    "htcondor": ["request_cpus = 2\n", "request_gpus = 3\n", "request_memory = 5000MB", "job_duration = 1200\n"],
    "kubernetes": ["cpu: 2\n", "nvidia.com/gpu: 3\n", "memory: 5000M\n", "activeDeadlineSeconds: 1200", "tokenizer\n"],
}
NEEDS = ["--set-threads", "tokenizer=2", "--set-resources", "tokenizer:gpu=3", "tokenizer:mem_mb=5000"]
NEEDS += ["tokenizer:runtime=20"]


@pytest.fixture
def start(workspace):
    """A function that starts Snakemake with a profile; no job is left when the test ends."""
    jobs, runs = workspace.path / "cluster", []
    environment = stand_in_cluster.install(jobs)

    def start(profile: str, *arguments, own_python: bool = False) -> Program | subprocess.Popen:
        words = ["--snakefile", ROOT / "Snakefile", "--profile", ROOT / "profiles" / profile, *arguments]
        words += ["--latency-wait", "5", "--retries", "0", "--max-status-checks-per-second", "20"]
        words += ["--directory", workspace.path]
        with open(workspace.path / "out.txt", "w") as out:
            if own_python:  # a process that another one starts is then its child, as on a cluster
                command = [sys.executable, "-m", "snakemake", *map(str, words)]
                where = {"env": environment, "stdout": out, "stderr": out, "start_new_session": True}
                made = subprocess.Popen(command, **where)
            else:
                made = Program("-m", "snakemake", *words, environment=environment, outputs=[out, out], session=True)
        runs.append(made)
        return made

    yield start
    for run in runs:
        if run.poll() is None:
            run.kill()
            run.wait()
    for path in jobs.glob("*.pid"):
        os.killpg(int(path.read_text()), signal.SIGKILL)


@pytest.mark.parametrize("profile", ASKED)
def test_jobs_are_submitted_and_are_seen_to_succeed_and_to_fail(workspace, start, profile):
    too_many = {"vocab_size": 30_000}  # for so little text
    workspace.configure(SMALL | {"tokenizer": {"vocab_size": 300}, "models": {"deu": {"tokenizer": too_many}}})
    run = start(profile, *(f"results/tokenizers/{model}/manifest.json" for model in ("eng", "deu")), *NEEDS)
    code, output = run.wait(), (workspace.path / "out.txt").read_text()
    assert code == 1 and "1 job failed:\n  tokenizer deu:" in output, output
    asked = [json.loads(path.read_text())["asked"] for path in (workspace.path / "cluster").glob("*.json")]
    assert len(asked) == 2
    assert not [words for words in ASKED[profile] if words not in f"{asked[0]}\n"], asked[0]
    codes = [path.read_text() for path in (workspace.path / ".snakemake/jobs").glob("*.code")]
    assert sorted(codes) == ["0\n", "1\n"]
    assert not list((workspace.path / ".snakemake/jobs").glob("*script*"))


def test_training_saves_at_sigterm_to_the_job_script_alone_and_has_another_turn(workspace, start):
    """HTCondor and Kubernetes send it only there. Ctrl-C in Snakemake then ends the job."""
    endless = SMALL["train"] | {"max_steps": 1_000_000}
    runs = SMALL["run"] | {"checkpoint_every": 1_000_000}
    workspace.configure(SMALL | {"models": {"eng": {"train": endless}}, "run": runs})
    jobs, log = workspace.path / "cluster", workspace.path / "logs/train/eng.log"
    log.unlink()
    shutil.rmtree(workspace.path / "results/checkpoints")

    def wait(condition) -> None:
        while not condition():
            assert run.poll() is None, (workspace.path / "out.txt").read_text()
            time.sleep(0.1)

    def trains(turn: int = 1) -> bool:  # Snakemake deletes the log before each turn
        text = log.read_text() if log.exists() else ""
        return ("going on after step" in text) == (turn > 1) and " step " in text.split("going on")[-1]

    run = start("htcondor", "results/models/eng/manifest.json", "--set-threads", "train=1", own_python=True)
    wait(trains)
    (job,) = jobs.glob("*.pid")
    os.kill(int(job.read_text()), signal.SIGTERM)
    wait(lambda: trains(turn=2))
    assert job.with_suffix(".codes").read_text() == "99\n"
    os.killpg(run.pid, signal.SIGINT)
    assert run.wait() == 1
    end = time.monotonic() + 60
    while job.exists() and time.monotonic() < end:
        time.sleep(0.1)
    assert not job.exists()
    assert not list(workspace.path.glob(".snakemake/jobs/*script*")), "it would have started again with it"
    assert len(list(workspace.path.glob("results/checkpoints/eng/*/step-*.json"))) == 2
