"""Share tensors among processes: each process has some rows of each tensor, and never holds all rows of all tensors.

FSDP2 cuts a parameter along its first dimension, as `torch.chunk` does; its average and its optimizer state are cut in
the same way. Files hold whole tensors, whatever the number of processes. To write them, PyTorch's DTensor gathers one
at a time; to read them, each process reads only its own rows. (Gathering by NCCL: not run on a GPU yet.)
"""

import functools
from collections.abc import Callable, Mapping, Sequence

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard

from babelmill.runtime.processes import Processes

Load = Callable[[str], torch.Tensor]


def rows_of(rows: int, rank: int, size: int) -> slice:
    """Return which rows of a tensor the process `rank` of `size` processes holds. The last processes may hold none."""
    most = -(-rows // size)
    return slice(min(rows, rank * most), min(rows, (rank + 1) * most))


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
        """Return which rows of a tensor are this process's."""
        return rows_of(rows, self._processes.rank, self._processes.size)

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
        function: Callable[[dict[str, torch.Tensor], Load], None],
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
