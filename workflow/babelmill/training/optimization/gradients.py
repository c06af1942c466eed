"""Sum and clip the gradients of all processes, and spread a model over them.

Gradients are summed, never averaged. A mean could be undone by multiplying the loss by the number of processes, but
then bf16 backward passes round in another way. With three processes, this changes the gradient by 0.7 %.

Our own models are replicas: each process has a whole copy. All gradients live in one flat buffer, which is summed once
per step (`FlatGradients`).

A transformers model is sharded by PyTorch's FSDP2 (`shard`): each process holds some rows of each parameter, of its
gradient, its average and its optimizer state, cut along the first dimension as by `torch.chunk`. FSDP2 gathers the
parameters of a block before the block computes, and frees them afterwards. It sums gradients after each backward pass:
to wait for the last pass, each process would have to keep a whole gradient. A single process is a group of one. So the
computation and its types do not depend on the number of processes.

Files hold whole tensors, whatever the number of processes (`Sharding`). To write them, PyTorch's DTensor gathers one at
a time; to read them, each process reads only its own rows. (Gathering by NCCL: not run on a GPU yet.) A run with random
weights begins with those of the main process: each process makes the whole model, and keeps its rows. If weights are
read from files, all processes make the model without values. Allocated memory takes no room until it is written to. So
no process ever holds the whole of a large model.
"""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Shard

from babelmill.config import schema
from babelmill.runtime.processes import Processes, give_back_memory

Load = Callable[[str], torch.Tensor]


class Sharding:
    """Says how tensors are cut.

    Args:
        shapes: shapes of the whole tensors, by the name of the weight; empty if each process holds whole tensors.
        processes: this process among the others.
    """

    def __init__(self, shapes: Mapping[str, torch.Size], processes: Processes):
        self.shapes, self._processes = shapes, processes

    @functools.cached_property
    def _mesh(self) -> DeviceMesh:
        return self._processes.mesh()

    def mine(self, rows: int) -> slice:
        """Return which rows of a tensor are this process's. The last processes may hold none."""
        rank, most = self._processes.rank, -(-rows // self._processes.size)
        return slice(min(rows, rank * most), min(rows, (rank + 1) * most))

    def rows(self, name: str, shape: Sequence[int]) -> slice:
        """Return which rows of a tensor in a file this process reads. `shape` is the tensor's whole shape."""
        return self.mine(shape[0]) if name in self.shapes else slice(None)

    def sum_(self, tensor: torch.Tensor) -> torch.Tensor:
        """Sum a tensor over all processes, in place, if each process has only a part of the sum."""
        return self._processes.sum_(tensor) if self.shapes else tensor

    def gather(self, part: torch.Tensor, shape: torch.Size | None) -> torch.Tensor:
        """Return a whole tensor. All processes call this together.

        Args:
            part: this process's rows.
            shape: shape of the whole tensor; None if `part` is the whole tensor.
        """
        part = part.detach()
        if shape is None or self._processes.size == 1:
            return part
        stride = torch.empty(shape, device="meta").stride()
        return DTensor.from_local(part, self._mesh, [Shard(0)], shape=shape, stride=stride).full_tensor()

    def on_main(
        self,
        parts: Mapping[str, tuple[torch.Tensor, torch.Size | None]],
        function: Callable[[dict[str, torch.Tensor], Load], object],
    ) -> None:
        """Run `function` on the main process, while the others help to gather tensors. All call this together.

        If it fails, the main process ends, and the others notice that it is gone.

        Args:
            parts: the arguments of `gather`, by name of the tensor.
            function: takes the tensors without values, on the meta device, and a function that loads a whole tensor by
                its name. It loads each tensor once, in the order of `parts`.
        """
        shapes = {
            name: torch.empty(part.shape if shape is None else shape, dtype=part.dtype, device="meta")
            for name, (part, shape) in parts.items()
        }
        if not self.shapes:
            self._processes.on_main(lambda: function(shapes, lambda name: parts[name][0]))
        elif self._processes.main:
            function(shapes, lambda name: self.gather(*parts[name]))
        else:
            for part in parts.values():
                self.gather(*part)


ALIGNMENT = 16  # elements, 64 bytes


def segments(tensors: Sequence[torch.Tensor], multiple: int) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Return a buffer of zeros, [elements], with a segment for each tensor, and the views of the segments.

    So one kernel works on all of them, and each begins where a GPU reads fastest. The tensors have one type and one
    device. Each view has the shape of its tensor. The number of elements of each segment is a multiple of `multiple`,
    so each view begins at such a multiple. The rest of a segment stays unused.
    """
    sizes = [-(-tensor.numel() // multiple) * multiple for tensor in tensors]
    flat = torch.zeros(sum(sizes), dtype=tensors[0].dtype, device=tensors[0].device)
    pairs = zip(flat.split(sizes), tensors, strict=True)
    return flat, [segment[: tensor.numel()].view(tensor.shape) for segment, tensor in pairs]


@torch.no_grad()
def clip(gradients: Sequence[torch.Tensor], norm: torch.Tensor, limit: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Scale gradients that together have a `norm` down to the norm `limit`, in place; if it is not finite, to 0.

    Returns:
        the norm, and 1 if it was finite, else 0; both are scalars on the device.
    """
    finite = norm.isfinite()
    scale = torch.where(finite, (limit / (norm + 1e-6)).clamp(max=1.0), 0.0)
    if norm.device.type != "cpu" or scale != 1:  # on a CPU, to read the scale costs nothing
        for gradient in gradients:
            gradient.mul_(scale).nan_to_num_(0.0, 0.0, 0.0)
    return norm, finite.to(norm.dtype)


class FlatGradients:
    """Holds all gradients of a model as one flat fp32 buffer. A process without a micro-batch adds zeros to the sum.

    The calls of a step are: `zero()`; `backward()` for each pass; `reduce()`; `clip()`.

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
        """Scale the gradient down to this norm; see `clip`."""
        return clip([self.flat], torch.linalg.vector_norm(self.flat), limit)


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


def local_rows(tensor: torch.Tensor) -> torch.Tensor:
    """Return this process's rows of a tensor that `shard` has cut, in the same memory."""
    return tensor.detach().to_local()  # pyright: ignore[reportAttributeAccessIssue]  # a `DTensor`


class ShardedGradients:
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
        """See `clip`."""
        gradients = [part.grad for _, part in self._pairs if part.grad is not None]
        norms = torch.stack([torch.linalg.vector_norm(gradient) for gradient in gradients])
        return clip(gradients, self._sharding.sum_(norms.square().sum()).sqrt(), limit)
