"""Describe this process among the processes that train together, and provide their common operations.

`torchrun` and our launcher (`launch.py`) give each process its number in environment variables (RANK, WORLD_SIZE,
LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT). Interactive jobs and notebooks may leave such variables in the
environment, so they count only beside a mark of torchrun. A process without it trains alone.
"""

import contextlib
import ctypes
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from babelmill.core.files import UserError
from babelmill.core.words import first_line, plural

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # malloc.h of glibc
ALLOCATOR_VARIABLES = {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"}
TIMEOUT = timedelta(minutes=30)  # long, since the main process may be writing a checkpoint to a slow disk
PR_SET_PDEATHSIG = 1  # linux/prctl.h

T = TypeVar("T")


@dataclass(frozen=True)
class Processes:
    """This process among the processes that train together.

    Attributes:
        rank: the number of this process among all, counted from 0.
        size: the number of processes on all machines.
        local_size: the number of processes on this machine.
        device: the GPU of this process, or the CPU.
    """

    rank: int
    size: int
    local_size: int
    device: torch.device

    @property
    def main(self) -> bool:
        """Return whether this is the main process, the only one that writes files."""
        return self.rank == 0

    @classmethod
    def start(cls, threads: int) -> "Processes":
        """Join the processes that a launcher started, or train alone.

        `threads` is the number of threads of all processes on this machine together. It is always set, since it decides
        how sums on the CPU are divided, and so their last bits.
        """
        rank, size, local_rank, local_size = 0, 1, 0, 1
        if dist.is_torchelastic_launched():
            names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
            rank, size, local_rank, local_size = (int(os.environ[name]) for name in names)
            # If the launcher dies, the system kills this process, which otherwise would hold the run's lock. Elsewhere
            # it ends when another process is gone.
            if sys.platform == "linux":
                ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        torch.set_num_threads(max(1, threads // local_size))
        keep_freed_memory()
        device = torch.device("cpu")
        prepare_gpus()
        if torch.cuda.is_available():
            if torch.cuda.device_count() <= local_rank:
                raise UserError(
                    f"{local_size} processes, but {plural(torch.cuda.device_count(), 'GPU')} on this machine; start one"
                    " process per GPU"
                )
            device = torch.device("cuda", local_rank)
            torch.cuda.set_device(device)
        if size > 1:
            dist.init_process_group(**group_of(device), timeout=TIMEOUT)
        return cls(rank, size, local_size, device)

    def mesh(self) -> DeviceMesh:
        """Return all processes as a mesh for FSDP2; a single process becomes a group of one."""
        if not dist.is_initialized():
            store = dist.HashStore()  # pyright: ignore[reportPrivateImportUsage]
            dist.init_process_group(**group_of(self.device), store=store, rank=0, world_size=1)
        return init_device_mesh(self.device.type, (self.size,))

    def stop(self) -> None:
        """Wait for all processes, then leave their group."""
        if self.size > 1:
            dist.barrier()
        if dist.is_initialized():
            dist.destroy_process_group()

    def on_main(self, function: Callable[[], T]) -> T:
        """Run `function` on the main process and return its result on all processes; a UserError ends all of them."""
        result, error = None, None
        if self.main:
            try:
                result = function()
            except UserError as raised:
                error = raised
        if self.size > 1:
            message: list[tuple[T | None, bool]] = [(result, error is not None)]
            dist.broadcast_object_list(message, device=torch.device("cpu"))
            result, failed = message[0]
            if failed and not self.main:
                raise SystemExit(1)  # the main process logs the error
        if error is not None:
            raise error
        return result  # pyright: ignore[reportReturnType]  # None only where `function` returned it

    def sum_(self, tensor: torch.Tensor) -> torch.Tensor:
        """Sum a tensor over all processes, in place."""
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def any(self, condition: bool) -> bool:
        """Return whether a condition is true on any process; all processes must call this together.

        The hosts ask each other, so a GPU that still computes is not waited for.
        """
        return bool(self.sum_(torch.tensor([int(condition)])))

    def from_main_(self, tensor: torch.Tensor) -> torch.Tensor:
        """Copy a tensor's values from the main process to all processes, in place."""
        if self.size > 1:
            dist.broadcast(tensor, 0)
        return tensor

    def describe(self, rank: int) -> str:
        """Return a description of the process that has this rank."""
        return f"process {rank} (number {rank % self.local_size} on machine {rank // self.local_size})"


def group_of(device: torch.device) -> dict[str, Any]:
    """Return the options for how processes communicate.

    On GPUs they connect at once, so problems with the network show before anything else.
    """
    if device.type == "cpu":
        return {"backend": "gloo"}
    return {"backend": "cpu:gloo,cuda:nccl", "device_id": device}


@contextlib.contextmanager
def in_words() -> Iterator[None]:
    """Turn two errors of a training into one line: memory ran out, or another process is gone.

    Too little memory gets here only if smaller forward passes do not help, or would change the result.
    """
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise UserError(
            "training does not fit into memory; set train.activation_checkpointing: true, choose a smaller model, or"
            " (for a transformers or label model) lower train.micro_batch_tokens, use more GPUs, train.ema_decay: 0 or"
            f" adapters (train.lora_rank): {first_line(error)}"
        ) from error
    except RuntimeError as error:
        if isinstance(error, dist.DistError) or "gloo" in str(error):
            raise UserError(
                "lost contact with another process of this run, see the message of that process; run the workflow"
                f" again, which continues from the last checkpoint ({first_line(error)})"
            ) from error
        raise


def prepare_gpus() -> None:
    """Let PyTorch's allocator on NVIDIA GPUs enlarge its segments, so that memory that is free in pieces is used again.

    PyTorch reads the variable at the first allocation on a GPU. If the user has set it, it stays so. Some versions
    say that this name is deprecated, but PyTorch 2.9 ignores the new one, PYTORCH_ALLOC_CONF. AMD's GPUs keep their
    default: before ROCm 7, PyTorch would warn that it cannot do this.

    Also ignore two warnings: the thread of backward passes begins without a CUDA context; fp32 is not TF32.
    """
    if torch.version.cuda is not None and not os.environ.keys() & ALLOCATOR_VARIABLES:
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    for words in ("Attempting to run cuBLAS, but there was no current CUDA context", "TensorFloat32 tensor cores for"):
        warnings.filterwarnings("ignore", words)


def keep_freed_memory() -> None:
    """Make glibc keep freed memory: otherwise each large tensor of each step needs new memory, cleared page by page."""
    if hasattr(libc := ctypes.CDLL(None), "mallopt"):
        libc.mallopt(M_MMAP_MAX, 0)
        libc.mallopt(M_TRIM_THRESHOLD, -1)


def give_back_memory() -> None:
    """Make glibc return freed memory to the system, after something large was freed that is not needed again."""
    if hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)
