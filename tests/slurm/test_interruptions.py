"""Training that is preempted or loses its node goes on without a human, as if undisturbed.

The test of several nodes (`test_workflow_on_slurm.py`) has the time limit.
"""

import signal

import pytest

from conftest import ROOT, one_layer

pytest_plugins = ["slurm_cluster"]
pytestmark = [pytest.mark.xdist_group("slurm"), pytest.mark.usefixtures("cluster")]

STEPS = 300
THREADS = ("--set-threads", "train=2")  # so that sums are cut alike everywhere


@pytest.mark.timeout(1200)
def test_preempted_and_then_without_its_node(workspace, cluster, start):
    """The weights are those of a run that nothing disturbed, bit for bit, and every step is logged once."""
    few = {"checkpoint_every": 240, "validate_every": 0}  # hardly a checkpoint but those that are saved on leaving
    workspace.configure(one_layer({"max_steps": STEPS}, **few) | {"resources": {"gpus": 2}})
    alone = cluster.train_without(workspace, *THREADS, "--cores", "2", "--resources", "gpu=2")
    text = (ROOT / "profiles/slurm/profile.yaml").read_text()
    text = text.replace("slurm_partition: gpu", "slurm_partition: fragile", 1)  # of training
    (workspace.path / "profile.yaml").write_text(text)
    run = start(workspace, "converted/eng", "--until", "train", *THREADS, profile=workspace.path, hold="vote +21")
    run.wait("training", lambda: run.step >= 20)
    before, node = run.step, run.job.node
    run.signal(signal.SIGSTOP)  # so that it does not go far before SLURM has decided
    cluster.urgent(node)
    run.wait("the preemption", lambda: not run.job)
    run.signal(signal.SIGCONT)
    run.wait("its checkpoint", lambda: not run.ending)
    left = run.step
    run.wait("training again", lambda: run.step >= before + 20)
    run.signal(signal.SIGSTOP)
    assert before <= left == run.went_on, "it left with a checkpoint, and lost no step"
    node = run.job.node
    cluster.kill_node(node)
    run.go_on()
    run.wait("another node", lambda: run.job and run.job.node != node)
    cluster.up()

    assert run.finish() == 0, run.printed
    assert [row["State"] for row in run.history] == ["PREEMPTED", "NODE_FAIL", "COMPLETED"]
    assert len({row["JobIDRaw"] for row in run.history}) == 1, "SLURM brings the same job back"
    assert "2 x cpu; going on after step" in run.said
    result = workspace.path / "results/of/eng/train"
    for name in ("model.safetensors", "ema.safetensors"):
        assert (result / name).read_bytes() == (alone / name).read_bytes()
    lines = [(line["kind"], line["step"]) for line in workspace.metrics("eng")]
    assert sorted(lines) == [("train", step) for step in range(1, STEPS + 1)] + [("validation", STEPS)]
