"""Choose the GPUs that a job uses on a machine without a scheduler.

Snakemake counts GPUs but does not assign them: two jobs with one GPU each would both use the first. So a job claims
free GPUs with lock files, which it holds until it ends, and sees no other GPU. A job that asks for no GPU sees none, so
the demo gives the same result on every machine. In a SLURM job, SLURM has already chosen the GPUs.
"""

import multiprocessing
import os
import tempfile
from concurrent.futures import ProcessPoolExecutor

import torch

from babelmill.core.files import UserError, lock
from babelmill.core.words import plural
from babelmill.runtime import slurm

DRIVERS = {"NVIDIA": "/dev/nvidiactl", "AMD": "/dev/kfd"}  # these files exist if a driver is loaded
CHOICE = "HIP_VISIBLE_DEVICES" if torch.version.hip else "CUDA_VISIBLE_DEVICES"  # names the GPUs that PyTorch sees
HIDDEN = "-1"  # as a choice, hides all GPUs; AMD's driver ignores an empty choice
_claims = []  # open lock files: a lock ends when its file is closed, at the end of this process


def visible() -> list[str]:
    """Return the GPUs that this process may choose from, as the environment names them.

    Counting GPUs may start the driver in a process, which then ignores a later choice. So another process counts them.
    """
    if named := os.environ.get(CHOICE):
        return [] if named == HIDDEN else named.split(",")
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:  # fails if the driver ends the process
        return [str(index) for index in range(pool.submit(torch.cuda.device_count).result())]


def claim(count: int) -> None:
    """Claim `count` GPUs that no other job has claimed; hide all others from this process and the processes it starts.

    If the machine has no GPU, nothing changes, and the processes train on the CPU.

    Raises:
        UserError: fewer than `count` GPUs are free, or PyTorch cannot use the GPUs of this machine.
    """
    if slurm.job_id() is None or not count:
        _choose(count)
    # Ask PyTorch only now, since it reads the environment variables only once.
    makers = [maker for maker, path in DRIVERS.items() if os.path.exists(path)]
    if count and makers and not torch.cuda.is_available():
        kinds = {"CUDA": torch.version.cuda, "ROCm": torch.version.hip}
        built_for = next((f"{name} {version}" for name, version in kinds.items() if version), "CPUs alone")
        raise UserError(
            f"{asked_for(count)}, and this machine has {makers[0]}'s driver, but PyTorch {torch.__version__} sees no"
            f" GPU: it is built for {built_for}, and the driver may be too old for it, or {CHOICE} hides all GPUs"
        )


def asked_for(count: int) -> str:
    """Return how a message about GPUs begins."""
    return f"{plural(count, 'GPU')} {'is' if count == 1 else 'are'} asked for"


def _choose(count: int) -> None:
    """Claim `count` GPUs and hide the others."""
    available = visible() if count else []
    taken: list[str] = []
    for device in available:
        if len(taken) == count:
            break
        path = os.path.join(tempfile.gettempdir(), f"babelmill-gpu-{os.getuid()}-{device}.lock")
        file = open(path, "w")  # noqa: SIM115  it stays open to hold the lock
        if not lock(file, wait=False):
            file.close()
            continue
        _claims.append(file)
        taken.append(device)
    if available and len(taken) < count:
        raise UserError(
            f"{asked_for(count)}, but of {len(available)} on this machine only {len(taken)}"
            f" {'is' if len(taken) == 1 else 'are'} free: lower"
            " resources.gpus, or limit the GPUs of this run with --resources gpu=N"
        )
    if taken or not count:
        os.environ[CHOICE] = ",".join(taken) or HIDDEN
