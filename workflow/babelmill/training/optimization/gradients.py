"""Sum the gradients of all processes, if each process has a whole copy of the model (otherwise see `fsdp.py`).

Gradients are summed, never averaged. A mean could be undone by multiplying the loss by the number of processes, but
then bf16 backward passes round in another way. With three processes, this changes the gradient by 0.7 %. All gradients
live in one flat buffer, which is summed once per step.
"""

from abc import ABC, abstractmethod

import torch
from torch import nn

from babelmill.runtime.processes import Processes
from babelmill.training.optimization.optim import clip, segments

ALIGNMENT = 16  # elements, 64 bytes


class Gradients(ABC):
    """Holds the gradients of a step, summed over all micro-batches and processes.

    The calls of a step are: `zero()`; `backward()` for each pass; `reduce()`; `clip()`.
    """

    @abstractmethod
    def zero(self) -> None:
        """Forget the gradients."""

    @abstractmethod
    def backward(self, loss: torch.Tensor) -> None:
        """Add the gradients of a loss."""

    @abstractmethod
    def reduce(self) -> None:
        """Sum over all processes (on CUDA: let the stream wait)."""

    @abstractmethod
    def clip(self, limit: float) -> tuple[torch.Tensor, torch.Tensor]:
        """Scale the gradient down to this norm; see `optim.clip`."""


class FlatGradients(Gradients):
    """Holds all gradients of a model as one flat fp32 buffer. A process without a micro-batch adds zeros to the sum.

    The gradient of each parameter begins at a multiple of 64 bytes, so that CUDA kernels can read four numbers at a
    time. What is between two gradients stays 0.

    Autograd would add to the buffer with one kernel per parameter. Instead, it leaves new gradients, which are added
    when the backward pass is done: a few kernels instead of more than a hundred. So a pass that fails adds nothing.
    """

    def __init__(self, model: nn.Module, processes: Processes):
        self._processes, self._parameters = processes, list(model.parameters())
        with torch.no_grad():
            self.flat, self._views = segments(self._parameters, ALIGNMENT)
        self._set(self._views)

    def _set(self, gradients: list[torch.Tensor] | None) -> None:
        for parameter, gradient in zip(self._parameters, gradients or [None] * len(self._parameters), strict=True):
            parameter.grad = gradient

    def zero(self) -> None:
        """Forget the gradients."""
        self.flat.zero_()

    def backward(self, loss: torch.Tensor) -> None:
        """Add the gradients of a loss."""
        self._set(None)
        try:
            loss.backward()
            pairs = [(v, p.grad) for v, p in zip(self._views, self._parameters, strict=True) if p.grad is not None]
            if pairs:
                torch._foreach_add_(*zip(*pairs, strict=True))  # pyright: ignore[reportPrivateImportUsage]
        finally:
            self._set(self._views)

    def reduce(self) -> None:
        """Sum over all processes."""
        self._processes.sum_(self.flat)

    def clip(self, limit: float) -> tuple[torch.Tensor, torch.Tensor]:
        """See `optim.clip`."""
        return clip(self.flat, limit)
