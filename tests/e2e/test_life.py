"""The workflow as a user lives with it: interrupted, damaged, changed and changed back, fed with bad input."""

import copy
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest

from babelmill.commands.earlier_runs import snakemake_here
from babelmill.core.files import sha256
from conftest import ROOT, SMALL, Workspace
from helpers.damage import flip_a_bit
from helpers.programs import held
from helpers.programs.prepared import START, VARIABLE, Program

pytestmark = pytest.mark.slow

TRAINED = ("converted/eng", "--until", "train", "--rerun-incomplete")
WEIGHTS = ("model.safetensors", "ema.safetensors")


def long_run() -> dict:
    """The small model with one layer, trained for long enough to be interrupted in the middle."""
    values = copy.deepcopy(SMALL)
    values["model"]["num_hidden_layers"] = 1
    values["train"]["max_steps"] = 90
    values["run"] = {"log_every": 1, "checkpoint_every": 10, "validate_every": 30}
    return values


def weights(workspace) -> list[str]:
    return [sha256(workspace.path / "results/of/eng/train" / name) for name in WEIGHTS]


def metrics_steps(workspace) -> list[tuple]:
    return [(line["kind"], line["step"]) for line in workspace.metrics("eng")]


@pytest.fixture(scope="module")
def undisturbed(built, tmp_path_factory):
    """Weights and logged steps of the run that nobody interrupts."""
    workspace = Workspace(shutil.copytree(built, tmp_path_factory.mktemp("undisturbed") / "work", symlinks=True))
    workspace.configure(long_run())
    workspace.snakemake(*TRAINED)
    return weights(workspace), metrics_steps(workspace)


def start(workspace, prepared: bool = True) -> subprocess.Popen | Program:
    """Snakemake in a process group of its own, once training has made a checkpoint, and waits; `prepared`: in a fork."""
    workspace.configure(long_run())
    shutil.rmtree(workspace.path / "results/checkpoints")
    words = workspace.command("converted/eng", "--rerun-incomplete")[2:]
    environment = os.environ | {held.VARIABLE: "vote 15"}
    with open(workspace.path / "out.txt", "w") as out:
        if prepared:
            process = Program("-m", *words, environment=environment, outputs=[out, out], session=True)
        else:
            jobs = f"import sys; sys.executable = {os.environ[VARIABLE] + '/python'!r}; {START}"  # in forks
            process = subprocess.Popen(
                [sys.executable, "-c", jobs, *words], env=environment, stdout=out, stderr=out, start_new_session=True
            )
    while not list((workspace.path / "results/checkpoints").glob("*/step-*.json")):
        assert process.poll() is None, (workspace.path / "out.txt").read_text()
        time.sleep(0.1)
    return process


def trainers(workspace) -> list[int]:
    """Process numbers of the trainers that work in this folder."""
    found = subprocess.run(["pgrep", "-f", "babelmill.train"], capture_output=True, text=True).stdout.split()
    here = []
    for pid in found:
        try:
            if os.readlink(f"/proc/{pid}/cwd") == str(workspace.path) and "python" in os.readlink(f"/proc/{pid}/exe"):
                here.append(int(pid))
        except OSError:
            continue
    return here


@pytest.mark.parametrize("way", ["Ctrl-C", "SIGTERM to the trainer", "kill -9 of the trainer"])
def test_an_interrupted_run_goes_on_and_ends_the_same(undisturbed, workspace, way):
    process = start(workspace)
    if way == "Ctrl-C":  # the terminal sends it to the whole group
        os.killpg(process.pid, signal.SIGINT)
    else:
        for pid in trainers(workspace):
            os.kill(pid, signal.SIGTERM if "SIGTERM" in way else signal.SIGKILL)
    assert process.wait() != 0
    output = (workspace.path / "out.txt").read_text()
    if way != "kill -9 of the trainer":
        assert "0 of 1 model converted, interrupted after " in output
    else:
        assert re.search(
            r"^0 of 1 model converted, 1 job failed:\n  train eng-\w+ \(eng\): 1 attempt, killed before it could",
            output,
            re.MULTILINE,
        )
    assert not (workspace.path / "results/of/eng/train").exists(), "interrupted too late to show anything"
    done = workspace.snakemake(*TRAINED)
    assert "going on after step" in done.stdout + done.stderr
    assert weights(workspace) == undisturbed[0]
    assert metrics_steps(workspace) == undisturbed[1]


def test_a_killed_snakemake_is_unlocked_and_goes_on(undisturbed, workspace, monkeypatch):
    process = start(workspace, prepared=False)
    monkeypatch.chdir(workspace.path)
    assert snakemake_here() == process.pid
    none_runs = ("-m", "babelmill.commands.earlier_runs")
    assert workspace.python(*none_runs).returncode == 1, "so `make demo` leaves its lock"
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    orphans = trainers(workspace)
    assert orphans, "the trainer outlives its Snakemake"
    local = (*TRAINED, "--profile", ROOT / "profiles/local")
    assert workspace.snakemake(*local, "--dry-run").returncode == 0
    locked = workspace.snakemake(*local, check=False)
    assert locked.returncode == 1 and "Directory cannot be locked" in locked.stderr
    assert workspace.python(*none_runs).returncode == 0
    workspace.snakemake("--unlock")
    second = workspace.snakemake(*TRAINED, check=False)
    assert second.returncode != 0
    (holder,) = set(re.findall(r"error: \S+: another training run is writing here: process (\d+) on ", second.stderr))
    assert os.readlink(f"/proc/{holder}/cwd") == str(workspace.path)
    for pid in orphans:
        os.kill(pid, signal.SIGTERM)
    while trainers(workspace):
        time.sleep(0.1)
    workspace.snakemake(*TRAINED)
    assert weights(workspace) == undisturbed[0]
    assert metrics_steps(workspace) == undisturbed[1]


@pytest.mark.parametrize(
    ("damaged", "consumer"),
    [
        ("corpus/train.parquet", "tokenizer"),
        ("tokenizer/tokenizer.json", "shards"),
        ("shards/train.safetensors", "train"),
        ("train/ema.safetensors", "export"),
        ("export/model.safetensors", "evaluate"),
        ("evaluate/evaluation.json", "convert"),
    ],
)
def test_a_flipped_bit_stops_its_consumer_and_is_named(workspace, damaged, consumer):
    path = (workspace.path / "results/of/eng" / damaged).resolve()
    flip_a_bit(path)
    done = workspace.snakemake("converted/eng", "--forcerun", consumer, check=False)
    assert done.returncode != 0
    errors = [line for line in (done.stdout + done.stderr).splitlines() if "error: " in line]
    assert errors and f"{path.relative_to(workspace.path)}: damaged, " in errors[0], done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    leftovers = [path for path in workspace.path.rglob(".*") if path.name.startswith((".tmp", ".manifest", ".eng."))]
    assert not leftovers


def test_no_secret_gets_into_a_file(workspace, hub, monkeypatch, tmp_path):
    """Of a run from text to the Hub, with W&B: not of the results, the logs, Snakemake or W&B, nor what is published."""
    secrets = {"HF_TOKEN": f"hf_{'Canary' * 5}", "WANDB_API_KEY": "c0ffee42" * 5, "AWS_SECRET_ACCESS_KEY": "canary" * 5}
    for name, value in (secrets | {"WANDB_MODE": "offline"}).items():
        monkeypatch.setenv(name, value)
    hub.tokens = {secrets["HF_TOKEN"]}
    values = copy.deepcopy(SMALL)
    values["run"] |= {"tracking": "wandb"}
    values["train"] |= {"seed": 2}
    workspace.configure(values)
    done = workspace.snakemake("published/eng.json", "--verbose", "--printshellcmds")
    (repository,) = hub.repositories.values()
    written = {str(path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    written |= repository.commits[repository.branches["main"]] | {"output": (done.stdout + done.stderr).encode()}
    assert any(name.endswith(".wandb") for name in written) and "README.md" in written
    assert not [name for name, text in written.items() for secret in secrets.values() if secret.encode() in text]
