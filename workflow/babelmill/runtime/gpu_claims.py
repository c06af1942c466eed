"""Which GPUs of a machine a job takes, where no scheduler gives it any.

Snakemake counts GPUs but does not say which: two jobs of one GPU each would both take the first. So a job claims free
ones by lock files that last as long as it does, and sees no others. No GPU asked for means none seen, which is how the
demo is the same on every machine. In a SLURM job, SLURM has chosen already.
"""

import fcntl
import os
import tempfile

import torch

from babelmill.core.files import UserError
from babelmill.core.words import plural

DRIVER = "/dev/nvidiactl"  # exists where NVIDIA's driver is loaded
_claims = []  # open lock files: a lock ends with its file, that is with this process


def visible() -> list[str]:
    """The GPUs that this process may choose from, as CUDA_VISIBLE_DEVICES names them."""
    if named := os.environ.get("CUDA_VISIBLE_DEVICES"):
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
    # Only now: PyTorch looks at CUDA_VISIBLE_DEVICES once.
    if count and os.path.exists(DRIVER) and not torch.cuda.is_available():
        raise UserError(
            f"{asked_for(count)}, and this machine has NVIDIA's driver, but PyTorch {torch.__version__} sees no"
            " GPU: it may be a CPU build, the driver too old for it, or CUDA_VISIBLE_DEVICES empty"
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
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(taken)
