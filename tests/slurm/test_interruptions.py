"""Training that is preempted or loses its node goes on without a human, as if undisturbed. Jobs of arrays are told apart.

The test of several nodes (`test_workflow_on_slurm.py`) has the time limit.
"""

import copy
import re
import shutil
import signal
import subprocess
import sys

import pytest

from babelmill.runtime import slurm
from conftest import ROOT, SMALL, Workspace

pytest_plugins = ["slurm_cluster"]
pytestmark = [pytest.mark.xdist_group("fragile"), pytest.mark.usefixtures("cluster")]

STEPS = 300
THREADS = ("--set-threads", "train=2")  # so that sums are cut alike everywhere


def long_run() -> dict:
    """Return settings of a model of one layer, with hardly a checkpoint but those that are saved on leaving."""
    values = copy.deepcopy(SMALL)
    values["model"]["num_hidden_layers"] = 1
    values["train"]["max_steps"] = STEPS
    values["run"] = {"log_every": 1, "checkpoint_every": 240, "validate_every": 0}
    return values


@pytest.mark.timeout(1200)
def test_preempted_and_then_without_its_node(workspace, cluster, start):
    """The weights are those of a run that nothing disturbed, bit for bit, and every step is logged once."""
    workspace.configure(long_run() | {"resources": {"gpus": 2}})
    alone = cluster.train_without(workspace, *THREADS, "--cores", "2", "--resources", "gpu=2")
    text = (ROOT / "profiles/slurm/profile.yaml").read_text()
    text = text.replace("slurm_partition: gpu", "slurm_partition: fragile", 1)  # of training
    (workspace.path / "profile.yaml").write_text(text)
    until_train = ("converted/eng", "--until", "train")
    run = start(workspace, *until_train, *THREADS, profile=workspace.path, hold="vote +21")
    training = run.training("eng")

    training.wait("training", lambda: training.step >= 20)
    before, node = training.step, training.job.node
    training.signal(signal.SIGSTOP)  # so that it does not go far before SLURM has decided
    cluster.urgent(node)
    training.wait("the preemption", lambda: not training.job)
    training.signal(signal.SIGCONT)
    training.wait("its checkpoint", lambda: not training.ending)
    left = training.step
    training.wait("training again", lambda: training.step >= before + 20)
    training.signal(signal.SIGSTOP)
    assert before <= left == training.went_on, "it left with a checkpoint, and lost no step"
    node = training.job.node
    cluster.kill_node(node)
    training.go_on()
    training.wait("another node", lambda: training.job and training.job.node != node)
    cluster.up()

    assert run.finish() == 0, run.printed
    assert [row["State"] for row in training.history] == ["PREEMPTED", "NODE_FAIL", "COMPLETED"]
    assert len({row["JobIDRaw"] for row in training.history}) == 1, "SLURM brings the same job back"
    assert "2 x cpu; going on after step" in training.printed
    result = workspace.path / "results/of/eng/train"
    for name in ("model.safetensors", "ema.safetensors"):
        assert (result / name).read_bytes() == (alone / name).read_bytes()
    lines = [(line["kind"], line["step"]) for line in workspace.metrics("eng")]
    assert sorted(lines) == [("train", step) for step in range(1, STEPS + 1)] + [("validation", STEPS)]


ARRAY = """#!/bin/sh
set -- {settings} "$@"
exec {python} -m babelmill.train $(eval echo \\$$SLURM_ARRAY_TASK_ID) --requeue 1
"""


@pytest.mark.timeout(600)
def test_jobs_of_an_array_are_told_apart_and_a_suspended_one_keeps_its_folder(workspace, cluster):
    """One job of an array has the number of the array. The one that leaves goes back into the queue, and no other."""
    values = long_run()
    values["train"]["max_steps"] = 100_000
    workspace.configure(values)
    shutil.rmtree(workspace.path / "results/settings")
    workspace.would_run()  # writes the settings files
    settings = [path.relative_to(workspace.path) for path in workspace.path.glob("results/settings/train/*.json")]
    assert len(settings) == 2
    script = workspace.path / "array.sh"
    script.write_text(ARRAY.format(python=sys.executable, settings=" ".join(map(str, settings))))
    environment = f"ALL,PYTHONPATH={ROOT / 'workflow'}"
    options = ["--parsable", "--array", "1-2", "--time", "30", "--open-mode", "append", "--output", "%a.txt"]
    array = cluster.ask("sbatch", *options, "--chdir", workspace.path, "--export", environment, script).strip()
    names = [f"{array}_{task}" for task in (1, 2)]

    def steps(number: int) -> int:
        metrics = workspace.path / "results/checkpoints" / settings[number].stem / "metrics.jsonl"
        return len(metrics.read_text().splitlines())

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
        before = steps(last)
        cluster.wait("the resumed one", lambda: steps(last) > before)

        cluster.ask("scancel", "--signal", "TERM", names[last])
        cluster.wait("the requeued one", lambda: read(workspace, last + 1).count("parameters, ") == 2)
        assert f"job {names[last]} is put back into the queue" in read(workspace, last + 1)
        assert re.search(r"going on after step [1-9]", read(workspace, last + 1))
        assert [field(name, "Restarts") for name in names] == ["0" if i != last else "1" for i in range(2)]
    finally:
        subprocess.run(["scancel", array], check=False)
        cluster.wait("an empty queue", lambda: not cluster.queue(workspace.path))


def read(workspace: Workspace, task: int) -> str:
    """Return what a job of the array has said."""
    path = workspace.path / f"{task}.txt"
    return path.read_text() if path.is_file() else ""
