"""The numbers of a step that are still on their way from the device, and times that the device takes."""

import time
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from babelmill.core.files import UserError
from babelmill.runtime.processes import LOST_PROCESS
from babelmill.runtime.stopping import Stop
from babelmill.training.plan import Step
from babelmill.training.votes import Votes


class Outcome(NamedTuple):
    """The numbers of a step, over all processes.

    Attributes:
        sums: [groups, 3] float64, see `loss.STATISTICS`.
        decided: what at least one process votes for.
        norm: of the gradient, before clipping.
    """

    sums: np.ndarray
    decided: Votes
    norm: float


@dataclass
class Pending:
    """A step whose numbers are still on the way from the device.

    Attributes:
        step: what was done.
        sums, votes, norm: tensors on the host, with the numbers of `Outcome`.
        ready: when the numbers are there; None if they are.
        data: beginning and end of each time that making micro-batches took on this process's device.
    """

    LOST = 300.0  # seconds to wait for a step after SIGTERM, which the launcher sends when another process has died

    step: Step
    sums: torch.Tensor
    votes: torch.Tensor
    norm: torch.Tensor
    ready: torch.cuda.Event | None
    data: list["Span"]

    def read(self, stop: Stop | None = None) -> Outcome:
        """Wait for the numbers and return them.

        Raises:
            UserError: they do not come, since another process is gone and NCCL waits for it.
        """
        began = time.monotonic()
        while self.ready is not None and not self.ready.query():
            signalled = None if stop is None else stop.signalled
            if signalled is not None and time.monotonic() - max(began, signalled) > self.LOST:
                raise UserError(LOST_PROCESS)
            time.sleep(0.0005)
        return Outcome(self.sums.numpy(), Votes.read(self.votes), self.norm.item())

    def data_seconds(self) -> float:
        """Return the seconds that making micro-batches took, once the step has been read."""
        return sum(span.seconds() for span in self.data)


class Span:
    """A time from its creation to `end()`: on CUDA the device's, since the host is ahead of it."""

    def __init__(self, device: torch.device):
        self._events = [torch.cuda.Event(enable_timing=True) for _ in range(2)] if device.type == "cuda" else None
        self._began = self._ended = time.perf_counter()
        if self._events:
            self._events[0].record()

    def end(self) -> "Span":
        """Note the end."""
        self._ended = time.perf_counter()
        if self._events:
            self._events[1].record()
        return self

    def seconds(self) -> float:
        """Return how long it was, once the device has come to its end."""
        if self._events:
            return self._events[0].elapsed_time(self._events[1]) / 1000
        return self._ended - self._began


def to_host(tensor: torch.Tensor) -> torch.Tensor:
    """Start to copy a tensor to the host, and return the copy, in which the values appear when the device gets there.

    A tensor of the CPU is returned as it is.
    """
    if tensor.device.type == "cpu":
        return tensor
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(tensor, non_blocking=True)
