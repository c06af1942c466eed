"""Define the interface that every model has in training, whatever its architecture.

The trainer plans steps, deals rows, and looks after memory, validation and checkpoints. A network knows how to compute
the loss of a micro-batch, how to sum gradients over processes, and which forward passes are possible.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from typing import Any, TypeVar

import torch
from torch import nn

from babelmill.config.models import Size
from babelmill.core.files import UserError
from babelmill.runtime import cost
from babelmill.runtime.cost import Amount
from babelmill.training.batches import Stream, Weights
from babelmill.training.kernels.compilation import LEAST_ROWS, Graphs
from babelmill.training.optimization.gradients import FlatGradients, ShardedGradients, Sharding
from babelmill.training.optimization.optim import decays_by_name
from babelmill.training.plan.rows import Rows

Result = TypeVar("Result")


class Network(ABC):
    """Computes the loss of a model in training, on one process."""

    model: nn.Module  # the model whose weights are trained
    size: Size  # its size, which decides what a pass costs
    config: dict[str, Any]  # contents of `config.json` beside the trained weights: enough to make the model again
    gradients: FlatGradients | ShardedGradients  # the gradients of `model`
    # whether hidden tokens are predicted where they stand, not one position before (`TokenStream`)
    in_place: bool = False
    compiled: Graphs | None = None  # the graphs of blocks, loss and micro-batches; None: nothing is compiled
    # whether a pass of training may be recorded, see `cuda_graphs.py`. Then it always starts the same kernels, whatever
    # the rows and the step, and whatever it reads stays where it is.
    recordable: bool = False
    frozen: bool = False  # whether a part of the weights is not trained; checkpoints do not hold this part
    # how `trained` and `weights` are cut over the processes. It has no shapes if each process holds all.
    sharding: Sharding

    def begin_step(self, number: int) -> None:  # noqa: B027  most networks need nothing
        """Get ready for the forward passes of step `number`, counted from 0."""

    def attempt(self, compute: Callable[[], Result]) -> Result:
        """Return what a pass of this network computes; see `Graphs.attempt`."""
        return compute() if self.compiled is None else self.compiled.attempt(compute)

    def micro_batch(self, stream: Stream, rows: Rows, length: int, weights: Weights, use: int = 0) -> Any:
        """Build a micro-batch from a stream (see `Stream`), with as many rows as compiled functions need."""
        alone = self.compiled is not None and len(rows) < LEAST_ROWS
        return stream.micro_batch(rows, length, weights, use, LEAST_ROWS if alone else 1)

    @abstractmethod
    def forward(self, batch: Any, groups: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the loss of a micro-batch (as the stream makes it), and sums by group of targets; see `loss.py`."""

    def flops(self, length: int, positions: float, targets: Amount) -> Amount:
        """Return the number of floating-point operations of forward and backward passes, see `cost.flops`."""
        return cost.flops(self.size, length, positions, targets)

    @property
    def sharded(self) -> bool:
        """Return whether each process holds only a part of the weights.

        Then the processes get whole micro-batches, all the same number: dropout is PyTorch's, so the size of a
        micro-batch is part of the result. Otherwise they are replicas, which get single rows.
        """
        return bool(self.sharding.shapes)

    @property
    def parameters(self) -> int:
        """Return the number of parameters."""
        return sum(parameter.numel() for parameter in self.model.parameters())

    def decays(self, name: str, parameter: nn.Parameter) -> bool:
        """Return whether a parameter has weight decay. By default its name decides, as published."""
        return decays_by_name(name, parameter)

    def matrices(self) -> set[str]:
        """Return the names of the matrices of the model's layers, which Muon updates.

        Layers are the modules in lists (`nn.ModuleList`), but for the list in a GPT-BERT's head, whose members are
        single linear layers, norms and the like. Embeddings are no matrices.
        """
        found: set[int] = set()
        for each in self.model.modules():
            if isinstance(each, nn.ModuleList) and not any(isinstance(member, nn.Linear) for member in each):
                for module in each.modules():
                    held = () if isinstance(module, nn.Embedding) else module.parameters(recurse=False)
                    found |= {id(parameter) for parameter in held if parameter.ndim > 1}
        return {name for name, parameter in self.model.named_parameters() if id(parameter) in found}

    def trained(self) -> dict[str, nn.Parameter]:
        """Return the trained parameters by name, the same objects at each call. The other parameters are frozen."""
        return {name: parameter for name, parameter in self.model.named_parameters() if parameter.requires_grad}

    def begun_with(self) -> dict[str, torch.Tensor]:
        """Return the tensors that a run reads from its source model, by name.

        A run reads them when it begins. If a part of them is frozen, it reads them at each start, since checkpoints do
        not hold the frozen part.
        """
        return self.weights()

    def names_in(self, saved: Collection[str], where: str) -> dict[str, str]:
        """Return {name in `begun_with`: name in a file}; by default both names are the same.

        A UserError, which names the file (`where`), says that it does not have the weights that it should have.
        """
        weights = self.begun_with()
        if odd := sorted(set(saved) ^ weights.keys()):
            raise UserError(f"{where}: {odd[0]} is {'missing' if odd[0] in weights else 'not a weight of the model'}")
        return {name: name for name in weights}

    def weights(self) -> dict[str, torch.Tensor]:
        """Return the tensors of the model that files hold, by name; a tensor with two names appears once."""
        return self.model.state_dict()
