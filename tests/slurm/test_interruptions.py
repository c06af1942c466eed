"""Training that is preempted, reaches its time limit or loses its node goes on without a human, as if undisturbed."""

import copy
import re
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from babelmill.core.files import sha256
from babelmill.runtime import slurm
from conftest import ROOT, SMALL, Workspace
from helpers.programs.prepared import run_module

pytest_plugins = ["slurm_cluster"]
pytestmark = [pytest.mark.xdist_group("fragile"), pytest.mark.usefixtures("cluster")]

STEPS = 300
# SLURM 22 forgets the GPUs of a job whose node dies while the job starts there. So only eng trains on such nodes.
PARTITION = "\"'fragile' if wildcards.model == 'eng' else 'gpu'\""
THREADS = ("--set-threads", "train=2")  # so that sums are cut alike everywhere, and jobs find room beside each other


def long_run() -> dict:
    """Two processes of a model of one layer, and hardly a checkpoint but those that are saved on leaving."""
    values = copy.deepcopy(SMALL)
    values["model"]["num_hidden_layers"] = 1
    values["train"]["max_steps"] = STEPS
    values["run"] = {"log_every": 1, "checkpoint_every": 240, "validate_every": 0}
    return values | {"resources": {"gpus": 2}}


def weights(workspace: Workspace, model: str) -> list[str]:
    return [sha256(workspace.path / f"results/models/{model}/{name}.safetensors") for name in ("model", "ema")]


def assert_undisturbed(cluster, workspace: Workspace, calm: Workspace, model: str) -> None:
    """Bit for bit the weights of the run that nothing disturbed, and every step logged once."""
    assert weights(workspace, model) == weights(calm, model)
    lines = [(line["kind"], line["step"]) for line in cluster.training(workspace, model).metrics]
    assert sorted(lines) == [("train", step) for step in range(1, STEPS + 1)] + [("validation", STEPS)]


@pytest.fixture
def calm(built, tmp_path_factory):
    """The same runs, undisturbed and without SLURM, in a folder beside; the test waits for it when it needs it."""
    path = tmp_path_factory.mktemp("calm") / "work"
    shutil.copytree(built, path, symlinks=True)
    workspace = Workspace(path)
    workspace.configure(long_run())
    arguments = workspace.arguments("results/models/eng/manifest.json", "results/models/deu/manifest.json", *THREADS)
    arguments[arguments.index("gpu=0")], arguments[arguments.index("--cores") + 1] = "gpu=2", "2"
    with ThreadPoolExecutor() as beside:
        done = beside.submit(run_module, "snakemake", *arguments)
        workspace.finish = lambda: done.result().returncode
        yield workspace


def preempted_and_then_without_node(training, cluster):
    """A story told in steps: what the training suffers, one thing after another."""
    while training.step < 20:
        yield
    training.signal(signal.SIGSTOP)  # so that it does not go far before SLURM has decided
    before = training.step
    cluster.urgent(training.job.node)
    while training.job:
        yield
    training.signal(signal.SIGCONT)
    while training.ending:
        yield
    left = training.step
    while training.step < before + 20:
        yield
    training.signal(signal.SIGSTOP)
    went_on = int(re.findall(r"going on after step (\d+)", training.printed)[-1])
    assert before <= left == went_on, "it left with a checkpoint, and lost no step"
    node = training.job.node
    cluster.kill_node(node)
    training.go_on()
    while not (job := training.job) or job.node == node:
        yield
    cluster.up()


@pytest.mark.timeout(1200)  # it waits for time limits, which SLURM counts in minutes
@pytest.mark.parametrize("time_limits", [1, pytest.param(3, marks=pytest.mark.nightly)])
def test_interrupted_in_every_way(workspace, calm, cluster, start, time_limits):
    workspace.configure(long_run())
    text = (ROOT / "profiles/slurm/profile.yaml").read_text()
    text = text.replace("slurm_partition: gpu", f"slurm_partition: {PARTITION}", 1)  # of training
    (workspace.path / "profile.yaml").write_text(text)
    targets = ("results/models/eng/manifest.json", "results/models/deu/manifest.json")
    run = start(workspace, *targets, *THREADS, profile=workspace.path, hold="vote +21")
    eng, deu = cluster.training(workspace, "eng"), cluster.training(workspace, "deu")
    stories = [preempted_and_then_without_node(eng, cluster), deu.stopped_by_its_time_limit(time_limits)]

    def tell(story) -> None:
        for _ in story:
            assert run.process.poll() is None, run.printed
            time.sleep(0.2)

    with ThreadPoolExecutor() as beside:  # a story that waits for SLURM must not hold up the other, which has a limit
        for told in [beside.submit(tell, story) for story in stories]:
            told.result()
    assert run.finish() == 0, run.printed
    ends = [(row["JobIDRaw"], row["State"]) for row in eng.history + deu.history]
    assert len({job for job, _ in ends}) == 2, f"SLURM brings the same jobs back: {ends}\n{eng.printed}\n{deu.printed}"
    assert calm.finish() == 0
    assert_undisturbed(cluster, workspace, calm, "eng")
    assert_undisturbed(cluster, workspace, calm, "deu")
    assert [row["State"] for row in eng.history] == ["PREEMPTED", "NODE_FAIL", "COMPLETED"]
    assert re.search(r"2 x cpu; going on after step", eng.printed)


ARRAY = """#!/bin/sh
set -- eng deu "$@"
model=$(eval echo \\$$SLURM_ARRAY_TASK_ID)
exec {python} -m babelmill.train --settings results/settings/$model/train.json --run results/settings/$model/run.json \
  --tokenizer results/tokenizers/$model --shards results/shards/$model/$model --requeue 1 \
  --checkpoints results/checkpoints/$model --out results/models/$model --log $model.log
"""


@pytest.mark.timeout(600)
def test_jobs_of_an_array_are_told_apart_and_a_suspended_one_keeps_its_folder(workspace, cluster):
    """One job of an array has the number of the array. The one that leaves goes back into the queue, and no other."""
    values = long_run() | {"resources": {"gpus": 0}}
    values["train"]["max_steps"] = 100_000
    workspace.configure(values)
    workspace.would_run()  # writes the settings files
    script = workspace.path / "array.sh"
    script.write_text(ARRAY.format(python=sys.executable))
    environment = f"ALL,PYTHONPATH={ROOT / 'workflow'}"
    options = ["--parsable", "--array", "1-2", "--time", "30", "--open-mode", "append", "--output", "%a.txt"]
    array = cluster.ask("sbatch", *options, "--chdir", workspace.path, "--export", environment, script).strip()
    names = [f"{array}_{task}" for task in (1, 2)]
    trained = [workspace.path / f"results/checkpoints/{model}" for model in ("eng", "deu")]

    def steps(folder) -> int:
        metrics = max(folder.glob("*/attempt.json"), key=lambda path: path.stat().st_mtime).with_name("metrics.jsonl")
        return len(metrics.read_text().splitlines()) if metrics.is_file() else 0

    def field(name: str, key: str) -> str:
        return re.search(rf"\b{key}=(\S+)", cluster.ask("scontrol", "show", "job", name))[1]

    try:
        cluster.wait("both trainings", lambda: all("parameters, " in read(workspace, n) for n in (1, 2)))
        numbers = [field(name, "JobId") for name in names]
        assert array in numbers, "of one of them"
        assert slurm.ask("99999", "%T") == "", "SLURM does not know it"
        last = numbers.index(array)  # the one with the number of the array
        assert [slurm.ask(number, "%T") for number in numbers] == ["RUNNING"] * 2
        assert all(slurm.ask(number, "%L").count(":") == 1 for number in numbers), "one line each"

        cluster.ask("scancel", "--signal", "STOP", names[last])
        cluster.wait("the stopped one", lambda: slurm.ask(array, "%T") == "STOPPED")
        assert slurm.may_have_processes("STOPPED")
        cluster.ask("scancel", "--signal", "CONT", names[last])
        cluster.wait("the one that goes on", lambda: slurm.ask(array, "%T") == "RUNNING")

        cluster.ask("scontrol", "suspend", names[last])
        assert slurm.ask(array, "%T") == "SUSPENDED"
        elsewhere = next(node for node in ("n1", "n2") if node != field(names[last], "NodeList"))
        other = ["srun", "--overlap", "-p", "gpu", "-w", elsewhere, "--chdir", workspace.path, "--export"]
        other += [f"{environment},SLURM_ARRAY_TASK_ID={last + 1}", "sh", script]
        done = subprocess.run([*map(str, other)], capture_output=True, text=True, timeout=120)
        assert "another training run is writing here: process" in done.stderr and f"job {array};" in done.stderr
        cluster.ask("scontrol", "resume", names[last])
        before = steps(trained[last])
        cluster.wait("the resumed one", lambda: steps(trained[last]) > before)

        cluster.ask("scancel", "--signal", "TERM", names[last])
        again = cluster.wait("the requeued one", lambda: read(workspace, last + 1).count("parameters, ") == 2)
        assert again and f"job {names[last]} is put back into the queue" in read(workspace, last + 1)
        assert re.search(r"going on after step [1-9]", read(workspace, last + 1))
        assert [field(name, "Restarts") for name in names] == ["0" if i != last else "1" for i in range(2)]
    finally:
        subprocess.run(["scancel", array], check=False)
        cluster.wait("an empty queue", lambda: not cluster.queue(workspace.path))


def read(workspace: Workspace, task: int) -> str:
    """What a job of the array has said."""
    path = workspace.path / f"{task}.txt"
    return path.read_text() if path.is_file() else ""
