"""Wait for the numbers of a step, which arrive later from the device, and for what the processes decide at its end.

Clocks and signals differ between processes, but all processes must make the same decision: leave the run, save a
checkpoint, or make smaller forward passes. So each process votes at the end of each step. One vote is enough. All
processes read the same result together with the numbers of the step.
"""

import time
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from babelmill.core.files import UserError
from babelmill.runtime.processes import LOST_PROCESS, Processes
from babelmill.runtime.slurm import Stop
from babelmill.training.plan.plan import Step


class Votes(NamedTuple):
    """Holds the votes of a process, or the decisions of all.

    They also carry the energy that the GPUs used, which only the first process of each machine knows.
    """

    leave: bool = False  # end the run after this step
    save: bool = False  # save a checkpoint after this step
    smaller: bool = False  # let all processes make smaller forward passes, since one ran out of memory
    # energy that the GPUs of this machine used, or None if it is not known. In decisions: energy of the GPUs of all
    # machines, or None if one machine does not know its own.
    joules: int | None = None

    def of_all(self, processes: Processes) -> torch.Tensor:
        """Return the decisions as [3 + machines] int32 on the device.

        The first three numbers are 1 if at least one process votes for `leave`, `save` or `smaller`. Each machine's
        energy plus 1 follows, or 0 if it is unknown. On CUDA the host does not wait: the votes are sent from pinned
        memory, and the decisions are read later.
        """
        energy = [0] * -(-processes.size // processes.local_size)
        energy[processes.rank // processes.local_size] = 0 if self.joules is None else self.joules + 1
        values = [self.leave, self.save, self.smaller, *energy]
        votes = torch.tensor(values, dtype=torch.int32, pin_memory=processes.device.type == "cuda")
        return processes.max_(votes.to(processes.device, non_blocking=True))

    @classmethod
    def read(cls, decisions: torch.Tensor) -> "Votes":
        """Return the decisions from the tensor of `of_all`, which must be on the host."""
        leave, save, smaller, *energy = decisions.tolist()
        return cls(leave > 0, save > 0, smaller > 0, sum(energy) - len(energy) if all(energy) else None)


class Outcome(NamedTuple):
    """Holds the numbers of a step, over all processes."""

    sums: np.ndarray  # [groups, 3] float64, see `loss.STATISTICS`
    decided: Votes  # the decisions. One vote for something is enough
    norm: float  # norm of the gradient, before clipping


@dataclass
class Pending:
    """Holds a step whose numbers have not yet arrived from the device."""

    LOST = 300.0  # seconds to wait for a step after SIGTERM, which the launcher sends when another process has died

    step: Step  # the step
    # sums, votes, norm: tensors on the host that get the numbers of `Outcome`
    sums: torch.Tensor
    votes: torch.Tensor
    norm: torch.Tensor
    whole: "Stopwatch"  # the time that the step takes on this process's device. At its end the numbers have arrived
    data: list["Stopwatch"]  # the times that the device of this process spends on making micro-batches

    def read(self, stop: Stop | None = None) -> Outcome:
        """Wait for the numbers; raise a UserError if another process has died, for which NCCL waits."""
        began = time.monotonic()
        while not self.whole.over():
            signalled = None if stop is None else stop.signalled
            if signalled is not None and time.monotonic() - max(began, signalled) > self.LOST:
                raise UserError(LOST_PROCESS)
            time.sleep(0.0005)
        return Outcome(self.sums.numpy(), Votes.read(self.votes), self.norm.item())

    def data_seconds(self) -> float:
        """Return how many seconds making micro-batches took. Call this after `read`."""
        return sum(span.seconds() for span in self.data)


class Stopwatch:
    """Measures the time from its creation to `end()`. On CUDA the device measures it, since the host runs ahead."""

    def __init__(self, device: torch.device):
        self._events = [torch.cuda.Event(enable_timing=True) for _ in range(2)] if device.type == "cuda" else None
        self._began = self._ended = time.perf_counter()
        if self._events:
            self._events[0].record()

    def end(self) -> "Stopwatch":
        self._ended = time.perf_counter()
        if self._events:
            self._events[1].record()
        return self

    def over(self) -> bool:
        """Return whether the device has reached the end."""
        return self._events is None or self._events[1].query()

    def seconds(self) -> float:
        """Return how long it was. Call this after the device has reached the end."""
        if self._events:
            return self._events[0].elapsed_time(self._events[1]) / 1000
        return self._ended - self._began


def to_host(tensor: torch.Tensor) -> torch.Tensor:
    """Start to copy a tensor to the host, and return the copy. It gets its values when the device reaches this point.

    A tensor on the CPU is returned as it is.
    """
    if tensor.device.type == "cpu":
        return tensor
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(tensor, non_blocking=True)
