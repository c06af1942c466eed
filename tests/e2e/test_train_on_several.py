"""The training stage on several processes and machines: gradients, and what happens when some of them end."""

import json
import os
import shutil
import signal

import psutil
import pytest
from safetensors.torch import load_file

from conftest import ROOT
from helpers.programs import held
from helpers.programs.prepared import Program, run_module
from helpers.training.training_data import (
    EXPECTED,
    MUON,
    NORBERT4,
    UNDISTURBED,
    assert_near,
    largest_difference,
    logged,
    wait_for_step,
)

pytestmark = pytest.mark.slow


def test_gradients_do_not_depend_on_the_number_of_processes(tmp_path):
    options = ["--processes", "3", "--save", tmp_path / "differences.json"]
    run_module("agreement", *options, cwd=ROOT / "benchmarks", check=True)
    differences = json.loads((tmp_path / "differences.json").read_text())
    assert len(differences) == 2 * 32  # processes; objectives, precisions, sizes of the forward passes
    for case, difference in differences.items():  # in bf16 a weight's gradient is rounded in each forward pass
        assert difference < (1e-6 if "fp32" in case else 5e-3), case


def test_three_processes_then_two_then_one(data, finished):
    """The first ones are asked to leave, the others interrupted by Ctrl-C, which all of them get."""
    for asked in ((12, signal.SIGTERM, 3), (30, signal.SIGINT, 2, True)):
        data.interrupt(*asked)
        data.run_settings(checkpoint_every=5, validate_every=20, micro_batch_tokens=96)  # other passes, too
    assert "going on after step" in data.train()
    assert_near(data, finished)


@pytest.mark.parametrize("train", [MUON, NORBERT4], ids=["muon", "norbert4"])
def test_others_on_two_processes_then_one(data, train):
    """With another optimizer, and another model. Of three, one is killed; the next two are asked to leave."""
    data.settings(**UNDISTURBED, **train)
    data.train("calm")
    shutil.rmtree(data.checkpoints)
    process = data.at_step(12, 3)
    max(psutil.Process(process.pid).children(), key=lambda worker: worker.environ()["RANK"]).kill()
    data.go_on()
    assert "Traceback" not in process.communicate()[1] and process.returncode == 1
    data.interrupt(40, processes=2)
    assert "going on after step" in data.train()
    ours, calm = (load_file(data.folder / out / "ema.safetensors") for out in ("model", "calm"))
    assert largest_difference(ours, calm) < 1e-5
    assert logged(data.metrics()) == EXPECTED


def test_two_machines_without_slurm(data, finished, free_port):
    """Two launchers that share a folder, as the guide starts them; one machine dies, and both are started again."""
    options = ["--nnodes=2", "--nproc-per-node=1", "--master-addr=localhost", f"--master-port={free_port}"]

    def machines(environment: dict[str, str]) -> list[Program]:
        torchrun = ["-m", "torch.distributed.run", *options]
        train = ["-m", "--", *data.command("model", 2, "--threads", "1")]
        where = {"environment": os.environ | environment, "session": True, "cwd": data.folder}
        return [Program(*torchrun, f"--node-rank={rank}", *train, **where) for rank in range(2)]

    first, second = machines({held.VARIABLE: "vote 13"})
    wait_for_step(data, 12, first)
    os.killpg(second.pid, signal.SIGKILL)
    for worker in psutil.process_iter(["cwd", "environ"]):  # torchrun's workers have sessions of their own
        if worker.info["cwd"] == str(data.folder) and (worker.info["environ"] or {}).get("RANK") == "1":
            worker.kill()
    data.go_on()
    output = first.communicate()[1]
    assert first.returncode != 0 and "lost contact with another process of this run" in output, output
    second.communicate()
    both = machines({})
    output = [process.communicate()[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], output
    assert "going on after step" in output[0] and "2 x cpu" in output[0]
    assert_near(data, finished)


def test_a_process_that_is_killed_while_it_leaves_is_a_failure(data):
    """Not a clean leave with 75: a job that always dies so must not go back into its queue for ever."""
    data.run_settings(checkpoint_every=1000, validate_every=0)
    process = data.at_step(12, 2)
    (first,) = (w for w in psutil.Process(process.pid).children() if w.environ()["RANK"] == "0")
    first.suspend()
    process.send_signal(signal.SIGTERM)
    first.kill()
    output = process.communicate()[1]
    assert process.returncode == 1, output
