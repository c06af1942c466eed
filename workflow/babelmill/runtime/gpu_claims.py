"""Which GPUs of a machine a job takes, where no scheduler gives it any.

Snakemake counts GPUs but does not say which: two jobs of one GPU each would both take the first. So a job claims free
ones by lock files that last as long as it does, and sees no others. No GPU asked for means none seen, which is how the
demo is the same on every machine. In a SLURM job, SLURM has chosen already.
"""

import contextlib
import fcntl
import os
import re
import tempfile

import torch

from babelmill.core.files import UserError
from babelmill.core.words import plural

DRIVERS = {"NVIDIA": "/dev/nvidiactl", "AMD": "/dev/kfd"}  # these files exist where a driver is loaded
VERSION = "/proc/driver/nvidia/version"
CHOICE = "HIP_VISIBLE_DEVICES" if torch.version.hip else "CUDA_VISIBLE_DEVICES"  # names the GPUs that PyTorch sees
_claims = []  # open lock files: a lock ends with its file, that is with this process


def visible() -> list[str]:
    """The GPUs that this process may choose from, as the environment names them."""
    if named := os.environ.get(CHOICE):
        return named.split(",")
    return [str(index) for index in range(torch.cuda.device_count())]


def claim(count: int) -> None:
    """Leave `count` GPUs visible to this process and to those it starts; none of them is claimed by another job.

    Without any GPU on the machine, all is left as it is: processes on the CPU stand in.

    Raises:
        UserError: fewer than `count` are free, or PyTorch cannot use those of this machine.
    """
    if "SLURM_JOB_ID" not in os.environ or not count:
        _choose(count)
    # Only now: PyTorch looks at the environment once.
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
        return f"it is a build without {name}, install one with it"
    version = ""
    with contextlib.suppress(OSError, AttributeError), open(VERSION, encoding="utf-8") as file:
        version = f" {re.search(r'[0-9]+[.][0-9.]+', file.readline())[0]}"  # pyright: ignore[reportOptionalSubscript]
    return f"its driver{version} may be too old for {name} {built_for}, or {CHOICE} is empty"


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
        lock = open(path, "w")  # noqa: SIM115  it stays open
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            continue
        _claims.append(lock)
        taken.append(device)
    if available and len(taken) < count:
        raise UserError(
            f"{asked_for(count)}, but of {len(available)} on this machine only {len(taken)}"
            f" {'is' if len(taken) == 1 else 'are'} free: lower"
            " resources.gpus, or cap what Snakemake gives with --resources gpu=N"
        )
    if taken or not count:
        os.environ[CHOICE] = ",".join(taken)
