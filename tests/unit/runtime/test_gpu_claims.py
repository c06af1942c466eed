"""GPUs are shared out between the jobs of a machine."""

import os

import pytest

from babelmill.core.files import UserError
from babelmill.runtime import gpu_claims
from helpers.programs.prepared import Program

pytestmark = pytest.mark.slow

CLAIM = """
import os, sys, time
from babelmill.runtime import gpu_claims
from babelmill.core.files import UserError
try:
    gpu_claims.claim(int(sys.argv[1]))
    print(os.environ.get("CUDA_VISIBLE_DEVICES"), flush=True)
except UserError as error:
    print("error:", error, flush=True)
time.sleep(600)
"""


@pytest.fixture
def job(tmp_path):
    """Start a job that claims GPUs; what it sees, and the process, which keeps them until it ends."""
    running = []

    def start(count, devices="0,1,2", **more):
        environment = os.environ | {"CUDA_VISIBLE_DEVICES": devices, "TMPDIR": str(tmp_path)} | more
        read, write = os.pipe()
        process = Program("-c", CLAIM, count, environment=environment, outputs=[write, 2])
        running.append(process)
        os.close(write)
        with open(read) as output:
            return output.readline().strip(), process

    yield start
    for process in running:
        process.kill()
        process.wait()


def test_a_pytorch_that_cannot_use_the_machines_gpus_does_not_train_on_the_cpu(monkeypatch):
    monkeypatch.setattr(gpu_claims, "has_gpu", lambda: True)
    with pytest.raises(UserError, match=r"2 GPUs are asked for, .* but PyTorch \S+ sees no GPU: it is built for"):
        gpu_claims.claim(2)


def test_two_jobs_never_share_a_gpu(job):
    """One that is killed leaves its own; in a SLURM job, SLURM has chosen already."""
    seen, first = job(1)
    assert seen == "0" and job(2)[0] == "1,2" and "only 0 of 3 on" in job(1)[0]
    assert job(1, SLURM_JOB_ID="7")[0] == "0,1,2"
    first.kill()
    first.wait()
    assert job(1)[0] == "0"
    assert job(0)[0] == "-1", "it sees none"
    assert job(1, devices="-1")[0] == "-1", "all are hidden already: it trains on the CPU"
