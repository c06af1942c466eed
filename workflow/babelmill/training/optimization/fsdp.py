"""Spread a model's weights, gradients and optimizer state over all processes, with PyTorch's FSDP2.

Each process holds some rows of each parameter (`sharding.py`). FSDP2 gathers the parameters of a block before the block
computes, and frees them afterwards. Gradients are summed; averaging them and scaling the mean back would round bf16 in
another way. They are summed after each backward pass: to wait for the last pass, each process would have to keep a
whole gradient.

A single process is a group of one. So the computation and its types do not depend on the number of processes.

A run with random weights begins with those of the main process: each process makes the whole model, and keeps its rows.
If weights are read from files, all processes make the model without values, and each reads its own rows. Allocated
memory takes no room until it is written to. So no process ever holds the whole of a large model.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from babelmill.config import schema
from babelmill.runtime.processes import Processes, give_back_memory
from babelmill.training.optimization.gradients import Gradients
from babelmill.training.optimization.optim import clip_to
from babelmill.training.optimization.sharding import Sharding


def shard(whole: nn.Module, blocks: Sequence[nn.Module], processes: Processes, train: schema.Train) -> None:
    """Cut the parameters of a module: each process keeps its rows, on its device. `blocks` are gathered one by one.

    Parameters that belong to no block are gathered during the forward pass of `whole`: use them only inside it.

    Args:
        whole: the module. Parameters on the meta device get their values later.
        blocks: parts of the module.
        processes: this process among the others.
        train: the precision in which blocks compute. Gradients are summed in fp32.
    """
    mesh = processes.mesh()
    types = {"reduce_dtype": torch.float32}
    types |= {"param_dtype": torch.bfloat16} if train.precision == "bf16" else {}
    empty = _allocate(whole)
    for held, name in _tensors(whole):
        tensor = held[name]
        if not isinstance(tensor, nn.Parameter):
            held[name] = processes.from_main_(tensor.contiguous())
        elif id(tensor) not in empty:
            processes.from_main_(tensor.data)
    for module in (*blocks, whole):
        # Weights of targets are inputs of `whole`: they must not be cast.
        policy = MixedPrecisionPolicy(**types, cast_forward_inputs=module is not whole)
        fully_shard(module, mesh=mesh, mp_policy=policy)
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)  # gloo has no other sums
    give_back_memory()


def _tensors(whole: nn.Module) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield where each tensor of a module is, as (dictionary, key). Plain attributes are included."""
    for module in whole.modules():
        for held in (module._parameters, module._buffers, vars(module)):
            yield from ((held, name) for name in sorted(held) if isinstance(held[name], torch.Tensor))


def _allocate(whole: nn.Module) -> set[int]:
    """Replace tensors on the meta device by uninitialized ones on the CPU; a tensor in two places stays one tensor.

    Returns:
        the ids of the new tensors.
    """
    made: dict[torch.Tensor, torch.Tensor] = {}
    for held, name in list(_tensors(whole)):
        tensor = held[name]
        if tensor.is_meta:
            if tensor not in made:
                empty = torch.empty_like(tensor, device="cpu")
                made[tensor] = nn.Parameter(empty, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else empty
            held[name] = made[tensor]
    return {id(tensor) for tensor in made.values()}


def parts_of(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return this process's rows of the trained parameters of a sharded model, by name, as separate parameters."""
    named = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    return {name: nn.Parameter(local_rows(parameter)) for name, parameter in named.items()}


def local_rows(tensor: torch.Tensor) -> torch.Tensor:
    """Return this process's rows of a tensor that `shard` has cut, in the same memory."""
    detached = tensor.detach()
    if not isinstance(detached, DTensor):
        raise TypeError(f"{type(detached)}: not cut by FSDP2")
    return detached.to_local()


class ShardedGradients(Gradients):
    """Holds the gradients of a sharded model. FSDP2 sums them during each backward pass, and then keeps no part back.

    Args:
        model: a model that `shard` has cut.
        parts: this process's rows of its trained parameters, which get the gradients.
        sharding: how they are cut.
    """

    def __init__(self, model: nn.Module, parts: Mapping[str, nn.Parameter], sharding: Sharding):
        named = dict(model.named_parameters())
        self._pairs = [(named[name], part) for name, part in parts.items()]
        self._sharding = sharding

    def zero(self) -> None:
        """Forget the gradients."""
        for parameter, part in self._pairs:
            parameter.grad = part.grad = None

    def backward(self, loss: torch.Tensor) -> None:
        """Add the gradients of a loss."""
        loss.backward()

    def reduce(self) -> None:
        """Set the gradients of the parts."""
        for parameter, part in self._pairs:
            part.grad = torch.zeros_like(part) if parameter.grad is None else local_rows(parameter.grad)

    def clip(self, limit: float) -> tuple[torch.Tensor, torch.Tensor]:
        """See `optim.clip`."""
        gradients = [part.grad for _, part in self._pairs if part.grad is not None]
        norms = torch.stack([torch.linalg.vector_norm(gradient) for gradient in gradients])
        return clip_to(gradients, self._sharding.sum_(norms.square().sum()).sqrt(), limit)
