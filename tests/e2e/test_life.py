"""The workflow as a user lives with it: interrupted, damaged, changed and changed back, fed with bad input."""

import os
import re
import shutil
import signal
import sys

import pytest

from babelmill.commands.earlier_runs import snakemake_here
from babelmill.core.files import sha256
from conftest import ROOT, SMALL, Workspace, one_layer
from helpers.damage import flip_a_bit
from helpers.programs import held
from helpers.programs.background import Background, trainers, wait
from helpers.programs.prepared import START, VARIABLE

pytestmark = pytest.mark.slow

LONG = one_layer({"max_steps": 90}, checkpoint_every=10, validate_every=30)  # enough to be interrupted in the middle
TRAINED = ("converted/eng", "--until", "train", "--rerun-incomplete")


def outcome(workspace) -> tuple[list[str], list[tuple]]:
    """Weights and logged steps."""
    weights = [sha256(workspace.path / f"results/of/eng/train/{name}.safetensors") for name in ("model", "ema")]
    return weights, [(line["kind"], line["step"]) for line in workspace.metrics("eng")]


@pytest.fixture(scope="module")
def undisturbed(built, tmp_path_factory):
    """The outcome of the run that nobody interrupts."""
    workspace = Workspace(shutil.copytree(built, tmp_path_factory.mktemp("undisturbed") / "work", symlinks=True))
    workspace.configure(LONG)
    workspace.snakemake(*TRAINED)
    return outcome(workspace)


def start(workspace) -> Background:
    """Snakemake, whose jobs run in forks, once training has made a checkpoint, and waits."""
    workspace.configure(LONG)
    shutil.rmtree(workspace.path / "results/checkpoints")
    jobs = f"import sys; sys.executable = {os.environ[VARIABLE] + '/python'!r}; {START}"
    command = [sys.executable, "-c", jobs, *workspace.command("converted/eng", "--rerun-incomplete")[2:]]
    run = Background(command, workspace.path, os.environ | {held.VARIABLE: "vote 15"})
    wait("a checkpoint", lambda: [*workspace.path.glob("results/checkpoints/*/step-*.json")], run)
    return run


@pytest.mark.parametrize("way", ["Ctrl-C", "SIGTERM to the trainer", "kill -9 of the trainer"])
def test_an_interrupted_run_goes_on_and_ends_the_same(undisturbed, workspace, way):
    run = start(workspace)
    if way == "Ctrl-C":  # the terminal sends it to the whole group
        os.killpg(run.process.pid, signal.SIGINT)
    else:
        for trainer in trainers(workspace.path):
            trainer.send_signal(signal.SIGTERM if "SIGTERM" in way else signal.SIGKILL)
    assert run.finish() != 0
    killed = r"1 job failed:\n  train eng-\w+ \(eng\): 1 attempt, killed before it could"
    ended = killed if way == "kill -9 of the trainer" else "interrupted after "
    assert re.search(f"^0 of 1 model converted, {ended}", run.printed, re.MULTILINE)
    assert not (workspace.path / "results/of/eng/train").exists(), "interrupted too late to show anything"
    done = workspace.snakemake(*TRAINED)
    assert "going on after step" in done.stdout + done.stderr
    assert outcome(workspace) == undisturbed


def test_a_killed_snakemake_is_unlocked_and_goes_on(undisturbed, workspace, monkeypatch):
    process = start(workspace).process
    monkeypatch.chdir(workspace.path)
    assert snakemake_here() == process.pid
    none_runs = ("-m", "babelmill.commands.earlier_runs")
    assert workspace.python(*none_runs).returncode == 1, "so `make demo` leaves its lock"
    process.kill()
    process.wait()
    orphans = trainers(workspace.path)
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
    for orphan in orphans:
        orphan.send_signal(signal.SIGTERM)
    wait("their end", lambda: not trainers(workspace.path))
    workspace.snakemake(*TRAINED)
    assert outcome(workspace) == undisturbed


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
    changed = {"run": SMALL["run"] | {"tracking": "wandb"}, "train": SMALL["train"] | {"seed": 2}}
    workspace.configure(SMALL | changed)
    done = workspace.snakemake("published/eng.json", "--verbose", "--printshellcmds")
    (repository,) = hub.repositories.values()
    written = {str(path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    written |= repository.commits[repository.branches["main"]] | {"output": (done.stdout + done.stderr).encode()}
    assert any(name.endswith(".wandb") for name in written) and "README.md" in written
    assert not [name for name, text in written.items() for secret in secrets.values() if secret.encode() in text]
