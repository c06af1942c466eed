"""The whole workflow on a cluster: what each job asks for, several nodes, failures, a crash of the login node."""

import copy
import json
import re
import shutil
import signal
import socket
import subprocess

import pytest
import yaml
from safetensors.torch import load_file

from babelmill.runtime import slurm
from conftest import ROOT, SMALL
from helpers.training.training_data import UNDISTURBED, largest_difference

pytest_plugins = ["slurm_cluster"]
pytestmark = [pytest.mark.xdist_group("slurm"), pytest.mark.usefixtures("cluster")]

TWO = SMALL | {"resources": {"gpus": 2}}
RESOURCES = {  # of small models, by their rules
    "tokenizer": {"mem_mb": "4001"},
    "train": {"mem_mb": "38000"},  # of two GPUs
    "export": {"mem_mb": "16000", "runtime": "30"},
    "evaluate": {"mem_mb": "16000", "runtime": "120"},
    "convert": {"mem_mb": "8000", "runtime": "30"},
}
TRAINING = [  # by hand
    *("--settings", "results/settings/eng/train.json", "--run", "results/settings/eng/run.json"),
    *("--tokenizer", "results/tokenizers/eng", "--shards", "results/shards/eng/eng"),
    *("--checkpoints", "results/checkpoints/eng", "--out", "results/models/eng"),
]


def test_end_to_end_with_a_failure_and_a_cancelled_job(workspace, cluster, start):
    """One model is made from text to folder; of the others, one cannot have a tokenizer and one, whose shards are there,
    is cancelled while it trains.

    What failed is tried again with more time and memory; what was cancelled is not.
    """
    for made in (workspace.path / "results").glob("*/eng"):
        shutil.rmtree(made)
    shutil.rmtree(workspace.path / "converted")
    endless = SMALL["train"] | {"max_steps": 1_000_000}
    models = {"greedy": {"languages": ["eng"], "tokenizer": {"vocab_size": 100_000}}, "deu": {"train": endless}}
    run = {"log_every": 1, "checkpoint_every": 1_000_000}  # none but that of the cancelled job
    workspace.configure(TWO | {"models": models, "batches": {"mine": ["eng", *models]}, "run": run})
    text = (ROOT / "profiles/slurm/profile.yaml").read_text()
    for key, value in {"slurm_account": "babelmill", "qos": "normal", "constraint": "standin"}.items():
        text, found = re.subn(rf"(?m)^  # {key}: \w+", f"  {key}: {value}", text)
        assert found == 1
    (workspace.path / "profile.yaml").write_text(text)
    run = start(workspace, "mine", "--retries", "1", profile=workspace.path)
    cancelled = cluster.training(workspace, "deu")
    cluster.wait("training", lambda: cancelled.step > 0)
    assert [len(seen.split(",")) for seen in cancelled.devices] == [2, 2]
    status = workspace.python("-m", "babelmill", "status", "deu").stdout.splitlines()[1]
    assert re.search(rf"train +running +[\d,]+/1,000,000 .* 1 +{cancelled.job.number} on n\d$", status)
    job = cancelled.job.number
    cluster.ask("scancel", job)
    assert run.finish() == 1

    summary = run.printed[run.printed.rindex("1 of 3 models converted, 2 jobs failed:") :]
    assert re.search(
        r"tokenizer greedy: 2 attempts, SLURM-job \d+ FAILED\n +logs/tokenizer/greedy.log:\n(.*\n){1,3}.*vocab_size = 100000",
        summary,
    )
    assert re.search(
        rf"train deu: 2 attempts, SLURM-job \d+ FAILED\n +logs/train/deu.log:\n.*training is not tried again: its job {job} was "
        r"cancelled; run the workflow again to continue after step [1-9]",
        summary,
    )
    assert (workspace.path / "converted/eng/manifest.json").is_file()
    assert "2 x cpu" in cluster.training(workspace, "eng").printed
    assert "No such file" not in summary

    profile = yaml.safe_load(text)
    asked = {
        row["Comment"].split("_")[1]: row for row in cluster.history(workspace.path) if row["Comment"].endswith("_eng")
    }
    assert set(asked) == {"corpus", "tokenizer", "shards", "train", "export", "evaluate", "convert"}
    for rule, row in asked.items():
        wanted = profile["default-resources"] | profile["set-resources"].get(rule, {})
        wanted = RESOURCES.get(rule, {}) | {key: str(value).split(" *")[0] for key, value in wanted.items()}
        assert row["Partition"] == wanted["slurm_partition"]
        assert int(row["TimelimitRaw"]) == int(wanted["runtime"])
        assert f"mem={wanted['mem_mb']}M" in row["AllocTRES"].replace("G", "000M")
        gpus = {"train": 2, "evaluate": 1}.get(rule)
        assert (f"gres/gpu={gpus}" in row["AllocTRES"]) if gpus else ("gpu" not in row["AllocTRES"])
        declared = re.search(r"threads: (\d+)", (ROOT / f"workflow/rules/{rule}.smk").read_text())
        threads = int(declared[1]) if declared else 1  # the corpus stage has one for each 128 MB of text
        assert (row["NNodes"], row["ReqCPUS"]) == ("1", str(threads))
        assert (row["Account"], row["QOS"], row["Constraints"]) == ("babelmill", "normal", "standin")
    tried = [
        (row["State"], row["TimelimitRaw"], re.search(r"mem=(\w+)", row["AllocTRES"])[1])
        for row in cluster.history(workspace.path, "tokenizer_wildcards_greedy")
    ]
    assert tried == [("FAILED", "60", "4001M"), ("FAILED", "120", "8002M")]


def test_a_job_that_slurm_does_not_take(workspace, start):
    run = start(workspace, "converted/deu", "--force", "--retries", "0", "--default-resources", "slurm_partition=none")
    assert run.finish() == 1
    refused = r"1 job failed:\n  \w+ deu: sbatch: invalid partition specified: none; Batch job submission failed: .+\n"
    assert re.search(refused, run.printed), run.printed


@pytest.mark.timeout(900)  # it waits for a time limit, which SLURM counts in minutes
def test_two_nodes_give_what_one_process_gives(workspace, cluster, start):
    """The shipped profile, with two GPUs a node instead of four; its time limit comes in between."""
    values = copy.deepcopy(TWO)
    values["model"]["num_hidden_layers"] = 1
    values["train"] |= UNDISTURBED | {"max_steps": 400}  # longer than a busy SLURM takes to answer
    values["run"] = {"log_every": 1, "checkpoint_every": 1000, "validate_every": 0}
    workspace.configure(values)
    workspace.snakemake("results/models/eng/manifest.json")
    alone = {name: load_file(workspace.path / f"results/models/eng/{name}.safetensors") for name in ("model", "ema")}
    for folder in ("results/models/eng", "results/checkpoints/eng"):
        subprocess.run(["rm", "-r", workspace.path / folder], check=True)
    text = (ROOT / "profiles/slurm-multinode/profile.yaml").read_text()
    text = text.replace("gpu: 8 ", "gpu: 4 ").replace("--gpus-per-node=4", "--gpus-per-node=2")
    (workspace.path / "profile.yaml").write_text(text)
    run = start(workspace, "results/models/eng/manifest.json", profile=workspace.path, hold="vote +21")
    training = cluster.training(workspace, "eng")
    story = training.stopped_by_its_time_limit(1)
    cluster.wait("its time limit", lambda: next(story, "told") == "told" or run.process.poll() is not None)

    def come_back() -> list[str]:
        """The GPUs that its four processes see, once it trains again; those of before may not be gone yet."""
        assert run.process.poll() is None, run.printed
        devices = training.devices
        return devices if len(devices) == 4 and training.printed.count("parameters, ") == 2 else []

    assert [len(seen.split(",")) for seen in cluster.wait("training", come_back)] == [2, 2, 2, 2]
    assert run.finish() == 0, run.printed
    assert "4 x cpu; going on after step" in training.printed
    jobs = re.findall(r"is SLURM job (\d+)", run.printed)
    assert len(jobs) == 1, "it has put its own job back"
    (row,) = training.history[-1:]
    assert (row["NNodes"], "gres/gpu=4" in row["AllocTRES"]) == ("2", True)
    for name, weights in alone.items():
        together = load_file(workspace.path / f"results/models/eng/{name}.safetensors")
        # Each process adds up other rows: gradients agree within 2e-7 (benchmarks), and steps let the difference grow.
        assert largest_difference(together, weights) < 1e-4


def test_nodes_that_do_not_meet(workspace, monkeypatch):
    """What the first node says if another program has the port of job 123."""
    here = {"SLURM_JOB_ID": "123", "SLURM_NODEID": "0", "SLURM_STEP_NODELIST": "n1", "SLURMD_NODENAME": "n1"}
    for name, value in (here | {slurm.OWN_STEP: "1"}).items():
        monkeypatch.setenv(name, value)
    with socket.create_server(("", slurm.FIRST_PORT + 123)):
        failed = workspace.python("-m", "babelmill.train", *TRAINING, "--nodes", "2", "--processes", "2")
    assert failed.returncode == 1
    assert failed.stderr.splitlines()[-1].startswith("error: the 2 nodes did not meet at n1:15123 (")
    assert "address already in use" in failed.stderr and "Traceback" not in failed.stderr


def test_a_crash_of_the_login_node(workspace, cluster, start):
    """A second Snakemake is refused; after a crash the job that still runs is cancelled, and a new one goes on."""
    values = copy.deepcopy(TWO)
    values["model"]["num_hidden_layers"] = 1
    values["train"]["max_steps"] = 100
    values["run"] = {"log_every": 1, "checkpoint_every": 1000, "validate_every": 0}
    workspace.configure(values)
    target = "results/models/eng/manifest.json"
    first, training = start(workspace, target, hold="vote 21"), cluster.training(workspace, "eng")
    cluster.wait("training", lambda: training.step >= 20)
    training.signal(signal.SIGSTOP)
    job, step = training.job, training.step

    second = start(workspace, target)
    assert second.finish() == 1
    locked = r"error: (another Snakemake, process \d+, works|this folder is locked)"
    assert re.search(locked, second.printed) and "LockException" not in second.printed

    refused = workspace.python("-m", "babelmill.train", *TRAINING)
    assert refused.returncode == 1
    assert (
        "another training run is writing here" in refused.stderr
        and f"on {job.node}, job {job.number}" in refused.stderr
    )

    first.kill()
    assert training.job == job, "nobody has told SLURM"
    workspace.snakemake("--unlock")
    third = start(workspace, target)
    cluster.wait("the cancellation", lambda: not training.job)
    training.signal(signal.SIGCONT)
    cluster.wait("the end of the job", lambda: not training.ending)
    left = training.step
    assert third.finish() == 0, third.printed
    assert f"Cancelling SLURM jobs that an earlier run left behind: {job.number}" in third.printed
    went_on = int(re.search(r"going on after step (\d+)", training.printed)[1])
    assert step <= left == went_on, "the cancelled job has saved a checkpoint, and no step is lost"
    lines = [json.dumps([line["kind"], line["step"]]) for line in training.metrics]
    assert len(lines) == len(set(lines)) == 101
