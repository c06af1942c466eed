"""Models whose weights, gradients and optimizer state are spread over all processes, by PyTorch's FSDP2.

Each process holds some rows of each parameter (`sharding.py`); FSDP2 gathers those of a block before it computes, and
frees them afterwards. Gradients are summed, never averaged and scaled back, which would round bf16 in another way.
They are summed after each backward pass: waiting for the last one would keep a whole gradient on each process.

A process alone is a group of one. So what is computed, and in which type, does not depend on their number.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from babelmill.runtime.processes import Processes
from babelmill.training.optim import clip_to
from babelmill.training.sharding import Sharding


def shard(whole: nn.Module, blocks: Sequence[nn.Module], processes: Processes, precision: str) -> None:
    """Cut the parameters of a module, each process keeping its rows on its device; `blocks` are gathered one by one.

    What computes with a parameter of no block must run inside the forward pass of `whole`, where that is gathered.
    """
    mesh = processes.mesh()
    types = {"param_dtype": torch.bfloat16, "reduce_dtype": torch.float32} if precision == "bf16" else {}
    for module in (*blocks, whole):
        # Weights of targets are inputs of `whole`: they stay as they are.
        policy = MixedPrecisionPolicy(**types, cast_forward_inputs=module is not whole)
        fully_shard(module, mesh=mesh, mp_policy=policy)
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)  # gloo has no other sums


def parts_of(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return this process's rows of the trained parameters of a sharded model, by name, as parameters of their own."""
    named = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    return {name: nn.Parameter(local_rows(parameter)) for name, parameter in named.items()}


def local_rows(tensor: torch.Tensor) -> torch.Tensor:
    """Return this process's rows of a tensor that `shard` has cut, in the same memory."""
    detached = tensor.detach()
    if not isinstance(detached, DTensor):
        raise TypeError(f"{type(detached)}: not cut by FSDP2")
    return detached.to_local()


class ShardedGradients:
    """The gradients of a sharded model; see `network.Gradients`. FSDP2 sums them during each backward pass.

    Args:
        model: that `shard` has cut.
        parts: its trained parameters' rows, which get the gradients.
        sharding: how they are cut.
    """

    sending = False

    def __init__(self, model: nn.Module, parts: Mapping[str, nn.Parameter], sharding: Sharding):
        named = dict(model.named_parameters())
        self._pairs = [(named[name], part) for name, part in parts.items()]
        self._sharding = sharding

    def zero(self) -> None:
        """Forget the gradients."""
        for parameter, part in self._pairs:
            parameter.grad = part.grad = None

    def last_backward(self) -> None:
        """Do nothing."""

    def abandon(self) -> None:
        """Do nothing: FSDP2 has no part of a gradient left once a backward pass has ended."""

    def reduce(self) -> None:
        """Give the parts their gradients."""
        for parameter, part in self._pairs:
            part.grad = torch.zeros_like(part) if parameter.grad is None else local_rows(parameter.grad)

    def clip(self, limit: float) -> tuple[torch.Tensor, torch.Tensor]:
        """See `optim.clip`."""
        gradients = [part.grad for _, part in self._pairs if part.grad is not None]
        norms = torch.stack([torch.linalg.vector_norm(gradient) for gradient in gradients])
        return clip_to(gradients, self._sharding.sum_(norms.square().sum()).sqrt(), limit)
