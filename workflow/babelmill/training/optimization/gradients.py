"""Sum the gradients of all processes, if each process has a whole copy of the model (otherwise see `fsdp.py`).

Gradients are summed, never averaged. A mean could be undone by multiplying the loss by the number of processes, but
then bf16 backward passes round in another way. With three processes, this changes the gradient by 0.7 %. All gradients
live in one flat buffer. It is cut into buckets; the sum of a bucket starts during the backward pass, as soon as its
gradients are ready.
"""

import itertools
import re
from abc import ABC, abstractmethod
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from babelmill.runtime.processes import Processes, lost_process
from babelmill.training.optimization.optim import clip, segments

ALIGNMENT = 16  # elements, 64 bytes
BUCKET_ELEMENTS = 8 * 2**20  # 32 MiB of fp32: large enough for bandwidth, small enough to overlap


def in_order_of_arrival(model: nn.Module) -> list[nn.Parameter]:
    """Return the parameters of one of our models in the order in which a backward pass finishes their gradients.

    These are the parameters of the classifier, of the layers from the last to the first, and those that all layers
    share. Of a NorBERT4, this is the order of `named_parameters`, reversed. A GPT-BERT has all blocks of attention in
    one list, and all feed-forward blocks in another.
    """

    def key(name: str) -> tuple[int, int, bool]:
        if layer := re.match(r"transformer\.(attention|mlp)_layers\.(\d+)\.", name):
            return 1, -int(layer[2]), layer[1] == "attention"
        return (0 if name.startswith("classifier.") else 2), 0, False

    named = [(name, parameter) for name, parameter in reversed(list(model.named_parameters()))]
    return [parameter for _, parameter in sorted(named, key=lambda pair: key(pair[0]))]


class Gradients(ABC):
    """Holds the gradients of a step, summed over all micro-batches and processes.

    The calls of a step are: `zero()`; `backward()` for each pass; `reduce()`; `clip()`.

    Attributes:
        sending: whether a part of this step's gradient has been sent to other processes.
    """

    sending: bool = False

    @abstractmethod
    def zero(self) -> None:
        """Forget the gradients."""

    @abstractmethod
    def backward(self, loss: torch.Tensor, last: bool) -> None:
        """Add the gradients of a loss. In the step's `last` pass, parts of the sum may go to other processes."""

    def abandon(self) -> None:  # noqa: B027
        """Give the step up: send no more gradients."""

    @abstractmethod
    def reduce(self) -> None:
        """Wait for the sums over all processes (on CUDA: let the stream wait)."""

    @abstractmethod
    def clip(self, limit: float) -> tuple[torch.Tensor, torch.Tensor]:
        """Scale the gradient down to this norm; see `optim.clip`."""


class FlatGradients(Gradients):
    """Holds all gradients of a model as one flat fp32 buffer, summed in buckets while the backward pass still runs.

    A process without a micro-batch sends zeros. The gradient of each parameter begins at a
    multiple of 64 bytes, so that CUDA kernels can read four numbers at a time. What is between two gradients stays 0.

    Autograd would add to the buffer with one kernel per parameter. Instead, it leaves new gradients, and those of a
    bucket are added at once as soon as it has all of them: a few kernels instead of more than a hundred. For this, the
    memory holds a second copy of the bucket that is not complete yet.

    Args:
        model: the model.
        processes: this process among the others.
    """

    def __init__(self, model: nn.Module, processes: Processes):
        self._processes = processes
        parameters = in_order_of_arrival(model)
        with torch.no_grad():
            self.flat, views = segments(parameters, ALIGNMENT)
        self._buckets: list[torch.Tensor] = []
        self._members: list[list[tuple[nn.Parameter, torch.Tensor]]] = [[]]  # of each bucket, with their views
        begin = 0
        for parameter, view in zip(parameters, views, strict=True):
            parameter.grad = view
            bucket = len(self._buckets)
            self._members[bucket].append((parameter, view))
            parameter.register_post_accumulate_grad_hook(lambda _, bucket=bucket: self._arrived(bucket))
            end = view.storage_offset() + -(-view.numel() // ALIGNMENT) * ALIGNMENT
            if end - begin >= BUCKET_ELEMENTS or parameter is parameters[-1]:
                self._buckets.append(self.flat[begin:end])
                self._members.append([])
                begin = end
        self._members.pop()
        self._missing = [0] * len(self._buckets)  # how many gradients a backward pass still owes to each bucket
        self._sends = False  # whether full buckets are sent
        self._handles: list[Any] = []  # of sums that are not finished yet

    def zero(self) -> None:
        """Forget the gradients."""
        self.flat.zero_()

    def backward(self, loss: torch.Tensor, last: bool) -> None:
        """Add the gradients of a loss. If this is the step's last backward pass, full buckets are sent meanwhile."""
        self._sends = last and self._processes.size > 1
        self._missing = list(map(len, self._members))
        for parameter, _ in itertools.chain(*self._members):
            parameter.grad = None
        try:
            loss.backward()
            for bucket in range(len(self._buckets)):
                self._add(bucket)  # if some of its parameters got no gradient
        finally:
            self._missing = [0] * len(self._buckets)
            for parameter, view in itertools.chain(*self._members):
                parameter.grad = view

    @property
    def sending(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Return whether a part of this step's gradient has been sent to other processes."""
        return bool(self._handles)

    def abandon(self) -> None:
        """Give the step up: send no more gradients."""
        self._sends, self._handles = False, []

    def _arrived(self, bucket: int) -> None:
        if self._missing[bucket] == 0:  # a backward pass that is not ours, which adds to the buffer itself
            return
        self._missing[bucket] -= 1
        if self._missing[bucket] == 0:
            self._add(bucket)
        while self._sends and len(self._handles) < len(self._buckets) and self._missing[len(self._handles)] == 0:
            self._send()

    def _add(self, bucket: int) -> None:
        """Add the new gradients of a bucket to the buffer, and forget them."""
        found = [(view, new) for parameter, view in self._members[bucket] if (new := parameter.grad) is not None]
        if found:
            views, new = zip(*found, strict=True)
            torch._foreach_add_(views, new)  # pyright: ignore[reportPrivateImportUsage]
        for parameter, _ in self._members[bucket]:
            parameter.grad = None

    def _send(self) -> None:
        """Send the next bucket. Every process sends the buckets in the same order."""
        self._handles.append(dist.all_reduce(self._buckets[len(self._handles)], async_op=True))

    def reduce(self) -> None:
        """Send the remaining buckets and wait for all sums (on CUDA: let the stream wait)."""
        if self._processes.size > 1:
            with lost_process():
                while len(self._handles) < len(self._buckets):
                    self._send()
                for handle in self._handles:
                    handle.wait()
        self.abandon()

    def clip(self, limit: float) -> tuple[torch.Tensor, torch.Tensor]:
        """See `optim.clip`."""
        return clip(self.flat, limit)
