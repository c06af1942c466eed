"""Choose the GPUs that a job uses on a machine without a scheduler.

Snakemake counts GPUs but does not assign them: two jobs with one GPU each would both use the first. So a job claims
free GPUs with lock files, which it holds until it ends, and sees no other GPU. A job that asks for no GPU sees none, so
the demo gives the same result on every machine. In a SLURM job, SLURM has already chosen the GPUs.
"""

import os
import tempfile

import torch

from babelmill.core.files import UserError, lock
from babelmill.core.words import plural
from babelmill.runtime import slurm
from babelmill.runtime.cost import has_gpu

CHOICE = "HIP_VISIBLE_DEVICES" if torch.version.hip else "CUDA_VISIBLE_DEVICES"  # names the GPUs that PyTorch sees
HIDDEN = "-1"  # as a choice, hides all GPUs; AMD's driver ignores an empty choice
_claims = []  # open lock files: a lock ends when its file is closed, at the end of this process


def claim(count: int) -> None:
    """Claim `count` GPUs that no other job has claimed; hide all others from this process and the processes it starts.

    If the machine has no GPU, nothing changes, and the processes train on the CPU.

    Raises:
        UserError: fewer than `count` GPUs are free, or PyTorch cannot use the GPUs of this machine.
    """
    if slurm.job_id() is None or not count:
        _choose(count)
    if count and has_gpu() and not torch.cuda.is_available():  # asked only now: PyTorch reads the choice once
        raise UserError(
            f"{asked_for(count)}, and this machine has a driver of GPUs, but PyTorch {torch.__version__} sees no GPU:"
            f" it is built for others or for CPUs alone, the driver is too old for it, or {CHOICE} hides all GPUs"
        )


def asked_for(count: int) -> str:
    """Return how a message about GPUs begins."""
    return f"{plural(count, 'GPU')} {'is' if count == 1 else 'are'} asked for"


def _choose(count: int) -> None:
    """Claim `count` GPUs and hide the others. PyTorch counts them by asking the driver, which it does not start."""
    available: list[str] = []
    if count and (named := os.environ.get(CHOICE)) != HIDDEN:
        available = named.split(",") if named else [str(index) for index in range(torch.cuda.device_count())]
    taken: list[str] = []
    for device in available:
        path = os.path.join(tempfile.gettempdir(), f"babelmill-gpu-{os.getuid()}-{device}.lock")
        file = open(path, "w")  # noqa: SIM115  it stays open to hold the lock
        if len(taken) < count and lock(file, wait=False):
            _claims.append(file)
            taken.append(device)
    if available and len(taken) < count:
        raise UserError(
            f"{asked_for(count)}, but only {len(taken)} of {len(available)} on this machine can be had: lower"
            " resources.gpus, or limit the GPUs of this run with --resources gpu=N"
        )
    if taken or not count:
        os.environ[CHOICE] = ",".join(taken) or HIDDEN
