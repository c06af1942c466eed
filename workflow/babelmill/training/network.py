"""A model in training, behind one interface: what the trainer asks of any architecture.

The trainer plans steps, deals rows, and looks after memory, validation and checkpoints. A network knows how a
micro-batch becomes a loss, how gradients of several processes become one, and what its forward passes may be like.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from typing import Any, Protocol

import torch
from torch import nn

from babelmill.core.files import UserError
from babelmill.runtime.cost import Amount
from babelmill.training.optim import decays_by_name
from babelmill.training.sharding import Sharding


class Gradients(Protocol):
    """The gradients of a step, summed over all micro-batches and processes.

    Use: `zero()`; backward passes, the last one after `last_backward()`; `reduce()`; `clip()`.
    """

    def zero(self) -> None:
        """Forget the gradients."""
        ...

    def last_backward(self) -> None:
        """Call before a step's last backward pass: from now on, other processes may get a part of the gradient."""
        ...

    @property
    def sending(self) -> bool:
        """Whether other processes have got a part of this step's gradient."""
        ...

    def abandon(self) -> None:
        """Give the step up: gradients that still arrive are not sent."""
        ...

    def reduce(self) -> None:
        """Wait for the sums over all processes (on CUDA: let the stream wait)."""
        ...

    def clip(self, limit: float) -> tuple[torch.Tensor, torch.Tensor]:
        """Scale the gradient down to this norm; see `optim.clip`."""
        ...


class Network(ABC):
    """A model in training, on one process.

    Attributes:
        model: whose weights are trained.
        blocks: parts of `model` that are alike: compiled one by one.
        config: what `config.json` beside the trained weights says: enough to make the model again.
        gradients: of `model`.
        in_place: hidden tokens are predicted where they stand, not one position before (`TokenStream`).
        compiles: its blocks are compiled on a GPU.
        whole_micro_batches: what is dropped depends on the micro-batch, so that these are dealt whole and their size is
            part of the result.
        sharded: each process holds a part of the weights. Then all make as many forward passes, and there are no
            replicas to compare.
        frozen: a part of the weights is not trained, and in no checkpoint.
        sharding: how `trained` and `weights` are cut, if `sharded`.
    """

    model: nn.Module
    blocks: Sequence[nn.Module]
    config: dict[str, Any]
    gradients: Gradients
    in_place: bool = False
    compiles: bool = True
    whole_micro_batches: bool = False
    sharded: bool = False
    frozen: bool = False
    sharding: Sharding | None = None

    @abstractmethod
    def begin_step(self, number: int) -> None:
        """Get ready for the forward passes of step `number`, counted from 0."""

    @abstractmethod
    def forward(self, batch: Any, groups: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the loss of a micro-batch of the stream's kind, and sums by group of targets: `loss.py`."""

    @abstractmethod
    def flops(self, length: int, positions: float, targets: Amount) -> Amount:
        """Return the floating-point operations of forward and backward passes, see `cost.flops`."""

    def compile(self) -> None:
        """Compile block by block: the blocks are alike, so it costs one block's time a shape."""
        torch._dynamo.config.recompile_limit = 64
        for block in self.blocks:
            block.compile(dynamic=False)

    @property
    def drops_by_micro_batch(self) -> bool:
        """Return whether what is dropped depends on the micro-batch."""
        return self.whole_micro_batches

    @property
    def parameters(self) -> int:
        """Return the number of parameters."""
        return sum(parameter.numel() for parameter in self.model.parameters())

    def decays(self, name: str, parameter: nn.Parameter) -> bool:
        """Return whether a parameter has weight decay: by default as published, by its name."""
        return decays_by_name(name, parameter)

    def trained(self) -> dict[str, nn.Parameter]:
        """Return the parameters that are trained, by name: the same objects at each call. The others are frozen."""
        return {name: parameter for name, parameter in self.model.named_parameters() if parameter.requires_grad}

    def begun_with(self) -> dict[str, torch.Tensor]:
        """Return what a run takes from the model that it goes on from, by name: at its beginning, or if a part of it is
        frozen, which is in no checkpoint, at each start."""
        return self.weights()

    def names_in(self, saved: Collection[str], where: str) -> dict[str, str]:
        """Return {name in `begun_with`: name in a file}: by default they are the same.

        Args:
            saved: the names in the file.
            where: its path, for the error.

        Raises:
            UserError: the file has not the weights that it should have.
        """
        weights = self.begun_with()
        if odd := sorted(set(saved) ^ weights.keys()):
            raise UserError(f"{where}: {odd[0]} is {'not there' if odd[0] in weights else 'no weight of the model'}")
        return {name: name for name in weights}

    def weights(self) -> dict[str, torch.Tensor]:
        """Return what files hold of the model, by name; a tensor of two names is there once."""
        return self.model.state_dict()
