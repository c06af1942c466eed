"""Choose the GPUs that a job uses on a machine without a scheduler.

Snakemake counts GPUs but does not assign them: two jobs with one GPU each would both use the first. So a job claims
free GPUs with lock files, which it holds until it ends, and sees no other GPU. A job that asks for no GPU sees none, so
the demo gives the same result on every machine. In a SLURM job, SLURM has already chosen the GPUs.
"""

import contextlib
import multiprocessing
import os
import re
import tempfile
from concurrent.futures import ProcessPoolExecutor

import torch

from babelmill.core.files import UserError, lock
from babelmill.core.words import plural
from babelmill.runtime import slurm

DRIVERS = {"NVIDIA": "/dev/nvidiactl", "AMD": "/dev/kfd"}  # these files exist if a driver is loaded
VERSION = "/proc/driver/nvidia/version"
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
        raise UserError(
            f"{asked_for(count)}, and this machine has {makers[0]}'s driver, but PyTorch {torch.__version__} sees no"
            f" GPU: {why_none_is_seen(makers[0])}"
        )


def why_none_is_seen(maker: str) -> str:
    """Return why PyTorch may see no GPU on a machine that has this maker's driver."""
    name, built_for = ("ROCm", torch.version.hip) if maker == "AMD" else ("CUDA", torch.version.cuda)
    if built_for is None:
        return f"it is a build without {name}, install a build with {name}"
    version = ""
    with contextlib.suppress(OSError, AttributeError), open(VERSION, encoding="utf-8") as file:
        version = f" {re.search(r'[0-9]+[.][0-9.]+', file.readline())[0]}"  # pyright: ignore[reportOptionalSubscript]
    return f"its driver{version} may be too old for {name} {built_for}, or {CHOICE} is empty or {HIDDEN}"


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
