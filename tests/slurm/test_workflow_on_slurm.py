"""The whole workflow runs on a cluster: what each job asks for, several nodes, failures, a crash of the login node."""

import re
import shutil
import signal

import pytest
from safetensors.torch import load_file

from conftest import ROOT, SMALL, one_layer
from helpers.programs.background import wait
from helpers.training.training_data import UNDISTURBED, largest_difference

pytest_plugins = ["slurm_cluster"]
pytestmark = [pytest.mark.xdist_group("slurm"), pytest.mark.usefixtures("cluster")]

TWO = {"resources": {"gpus": 2}}
RARELY = {"checkpoint_every": 1000, "validate_every": 0}
RESOURCES = {  # megabytes, minutes, threads, by the rules
    "corpus": (8000, 240, 8),
    "tokenizer": (24_000, 120, 8),
    "shards": (4000, 240, 8),
    "train": (32_000, 720, 8),
    "export": (16_000, 120, 2),
    "evaluate": (16_000, 240, 8),
    "convert": (8000, 60, 1),
}
UNTIL_TRAIN = ("converted/eng", "--until", "train")


def test_end_to_end_with_a_failure(workspace, cluster, start):
    """One model is made from text to folder; another cannot have a tokenizer, and is tried again with more resources."""
    for made in [*(workspace.path / "results").glob("*/eng-*"), workspace.path / "converted"]:
        shutil.rmtree(made)
    models = {"greedy": {"languages": ["eng"], "tokenizer": {"vocab_size": 100_000}}}
    workspace.configure(SMALL | TWO | {"models": models, "groups": {"mine": ["eng", *models]}})
    text = (ROOT / "profiles/slurm/profile.yaml").read_text()
    for key, value in {"slurm_account": "babelmill", "qos": "normal", "constraint": "standin"}.items():
        text, found = re.subn(rf"(?m)^  # {key}: \w+", f"  {key}: {value}", text)
        assert found == 1
    (workspace.path / "profile.yaml").write_text(text)
    run = start(workspace, "mine", "--retries", "1", profile=workspace.path)
    assert run.finish() == 1

    def name(model: str, stage: str) -> str:
        return (workspace.path / "results/of" / model / stage).resolve().name

    summary = run.printed[run.printed.rindex("1 of 2 models converted, 1 job failed:") :]
    greedy = name("greedy", "tokenizer")
    assert re.search(
        rf"tokenizer {greedy} \(greedy\): 2 attempts\n +logs/tokenizer/{greedy}.log:\n"
        r"(.*\n){1,3}.*vocab_size = 100000",
        summary,
    )
    assert (workspace.path / "converted/eng/manifest.json").is_file()
    assert "2 x cpu" in run.said
    assert "No such file" not in summary

    for rule, (megabytes, minutes, threads) in RESOURCES.items():
        of = "eng" if rule == "convert" else name("eng", rule)
        (row,) = cluster.history(workspace.path, f"rule_{rule}_wildcards_{of}")
        assert row["Partition"] == ("gpu" if rule in ("train", "evaluate") else "cpu")
        assert int(row["TimelimitRaw"]) == minutes
        assert f"mem={megabytes}M" in row["AllocTRES"].replace("G", "000M")
        gpus = {"train": 2, "evaluate": 1}.get(rule)
        assert (f"gres/gpu={gpus}" in row["AllocTRES"]) if gpus else ("gpu" not in row["AllocTRES"])
        assert (row["NNodes"], row["ReqCPUS"]) == ("1", str(threads))
        assert (row["Account"], row["QOS"], row["Constraints"]) == ("babelmill", "normal", "standin")
    tried = [
        (row["State"], row["TimelimitRaw"], re.search(r"mem=(\w+)", row["AllocTRES"])[1])
        for row in cluster.history(workspace.path, f"tokenizer_wildcards_{greedy}")
    ]
    assert tried == [("FAILED", "120", "24000M"), ("FAILED", "240", "48000M")]


def test_a_job_that_slurm_does_not_take(workspace, start):
    run = start(workspace, "converted/deu", "--force", "--retries", "0", "--default-resources", "slurm_partition=none")
    assert run.finish() == 1
    assert "1 job failed:\n  convert deu: 1 attempt; it left no log" in run.printed, run.printed
    assert re.search(r"failed +convert +deu .*invalid partition specified: none", run.printed), run.printed


@pytest.mark.timeout(900)  # it waits for a time limit, which SLURM counts in minutes
def test_two_nodes_give_what_one_process_gives(workspace, cluster, start):
    """The shipped profile, with two GPUs a node instead of four; its time limit comes in between."""
    steps = {"max_steps": 400}  # longer than a busy SLURM takes to answer
    workspace.configure(one_layer(UNDISTURBED | steps, **RARELY) | TWO)
    alone = cluster.train_without(workspace)
    text = (ROOT / "profiles/slurm-multinode/profile.yaml").read_text()
    text = text.replace("gpu: 8 ", "gpu: 4 ").replace("--gpus-per-node=4", "--gpus-per-node=2")
    (workspace.path / "profile.yaml").write_text(text)
    run = start(workspace, *UNTIL_TRAIN, profile=workspace.path, hold="vote +21")
    run.reach_its_time_limit()

    def come_back() -> list[str]:
        """Return the GPUs that its four processes see, once it trains again; those of before may not be gone yet."""
        devices = run.devices
        return devices if len(devices) == 4 and run.said.count("parameters, ") == 2 else []

    assert [len(seen.split(",")) for seen in run.wait("training", come_back)] == [2, 2, 2, 2]
    assert run.finish() == 0, run.printed
    assert "4 x cpu; going on after step" in run.said
    assert len(re.findall(r"SLURM jobid (\d+)", run.printed)) == 1, "it has put its own job back"
    row = run.history[-1]
    assert (row["NNodes"], "gres/gpu=4" in row["AllocTRES"]) == ("2", True)
    for name in ("model", "ema"):
        together = load_file(workspace.path / f"results/of/eng/train/{name}.safetensors")
        # Each process adds up other rows: gradients agree within 2e-7 (benchmarks), and steps let the difference grow.
        assert largest_difference(together, load_file(alone / f"{name}.safetensors")) < 1e-4


def test_a_crash_of_the_login_node(workspace, cluster, start):
    """A second Snakemake is refused; after a crash the job that still runs is cancelled, and a new one goes on."""
    workspace.configure(one_layer({"max_steps": 100}, **RARELY) | TWO)
    first = start(workspace, *UNTIL_TRAIN, hold="vote 21")
    first.wait("training", lambda: first.step >= 20)
    first.signal(signal.SIGSTOP)
    job, step = first.job, first.step
    status = workspace.babelmill("status", "eng").splitlines()[1]
    assert re.search(rf"train +running +[\d,]+/100 .* 1 +{job.number} on n\d$", status)

    second = start(workspace, *UNTIL_TRAIN)
    assert second.finish() == 1
    assert "Directory cannot be locked" in second.printed

    refused = workspace.python("-m", "babelmill.train", first.settings)
    assert refused.returncode == 1
    assert "another training run is writing here" in refused.stderr
    assert f"on {job.node}, job {job.number}" in refused.stderr

    first.kill()
    assert first.job == job, "nobody has told SLURM"
    workspace.snakemake("--unlock")
    third = start(workspace, *UNTIL_TRAIN)
    wait("the cancellation", lambda: not first.job)
    first.signal(signal.SIGCONT)
    wait("the end of the job", lambda: not first.ending)
    left = first.step
    assert third.finish() == 0, third.printed
    assert f"Cancelling SLURM jobs that an earlier run left behind: {job.number}" in third.printed
    assert step <= left == first.went_on, "the cancelled job has saved a checkpoint, and no step is lost"
    lines = [(line["kind"], line["step"]) for line in workspace.metrics("eng")]
    assert len(lines) == len(set(lines)) == 101
