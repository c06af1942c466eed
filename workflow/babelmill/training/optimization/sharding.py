"""Share tensors among processes: each process has some rows of each tensor, and never holds all rows of all tensors.

FSDP2 cuts a parameter along its first dimension, as `torch.chunk` does; its average and its optimizer state are cut in
the same way. Files hold whole tensors, whatever the number of processes. To write them, they are gathered on the main
process one at a time; to read them, each process reads only its own rows.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import torch
import torch.distributed as dist

from babelmill.runtime.processes import Processes, lost_process

T = TypeVar("T")
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

    def mine(self, rows: int) -> slice:
        """Return which rows of a tensor are this process's."""
        return rows_of(rows, self._processes.rank, self._processes.size)

    def rows(self, name: str, shape: Sequence[int]) -> slice:
        """Return which rows of a tensor in a file this process reads. `shape` is the tensor's whole shape."""
        return self.mine(shape[0]) if name in self.shapes else slice(None)

    def sum_(self, tensor: torch.Tensor) -> torch.Tensor:
        """Sum a tensor over all processes, in place, if each process has only a part of the sum."""
        return self._processes.sum_(tensor) if self.shapes else tensor

    @property
    def parts(self) -> int:
        """Return into how many parts tensors are cut."""
        return self._processes.size if self.shapes else 1

    def whole_matrices(self, rows: torch.Tensor, height: int, first: int) -> torch.Tensor:
        """Return some whole matrices of one shape on each process: matrix i on process (first + i) modulo their number.

        All processes call this together.

        Args:
            rows: [matrices, rows, columns], this process's rows of all matrices.
            height: the number of rows of a whole matrix.
            first: the process that gets the first matrix.
        """
        size, (count, _, width) = self._processes.size, rows.shape
        mine = len(self._owned(self._processes.rank, count, first))
        heights = [len(range(height)[rows_of(height, rank, size)]) for rank in range(size)]
        parts = self._exchange(
            [rows[self._owned(rank, count, first)] for rank in range(size)], [(mine, h, width) for h in heights]
        )
        return torch.cat(parts, 1)

    def rows_of_matrices(self, whole: torch.Tensor, count: int, first: int) -> torch.Tensor:
        """Return this process's rows of all `count` matrices, [matrices, rows, columns]; undo `whole_matrices`."""
        size, (_, height, width) = self._processes.size, whole.shape
        owned = [self._owned(rank, count, first) for rank in range(size)]
        own_height = len(range(height)[self.mine(height)])
        sent = [whole[:, rows_of(height, rank, size)] for rank in range(size)]
        rows = whole.new_empty(count, own_height, width)
        for numbers, part in zip(
            owned, self._exchange(sent, [(len(n), own_height, width) for n in owned]), strict=True
        ):
            rows[numbers] = part
        return rows

    def _owned(self, rank: int, count: int, first: int) -> list[int]:
        """Return the numbers of the matrices that a process gets; see `whole_matrices`."""
        return list(range((rank - first) % self._processes.size, count, self._processes.size))

    def _exchange(self, sent: Sequence[torch.Tensor], shapes: Sequence[tuple[int, ...]]) -> list[torch.Tensor]:
        """Send a tensor to each process, and return those that the processes sent, which have these shapes."""
        sizes = [math.prod(shape) for shape in shapes]
        received = sent[0].new_empty(sum(sizes))
        flat = torch.cat([tensor.flatten() for tensor in sent])
        with lost_process():
            dist.all_to_all_single(received, flat, sizes, [tensor.numel() for tensor in sent])
        return [part.view(shape) for part, shape in zip(received.split(sizes), shapes, strict=True)]

    def gather(self, part: torch.Tensor, shape: torch.Size | None) -> torch.Tensor:
        """Return the whole tensor on the main process, on the CPU. All processes call this together.

        On the other processes, the result has no meaning. The rows go through the host, since a whole tensor may not
        fit into the device's memory.

        Args:
            part: this process's rows.
            shape: shape of the whole tensor; None if `part` is the whole tensor.
        """
        processes, part = self._processes, part.detach()
        if shape is None or processes.size == 1:
            return part
        part = part.cpu().contiguous()
        with lost_process():
            if not processes.main:
                if part.numel():
                    dist.send(part, 0)
                return part
            whole = torch.empty(shape, dtype=part.dtype)
            for rank in range(processes.size):
                rows = whole[rows_of(shape[0], rank, processes.size)]
                if rank == 0:
                    rows.copy_(part)
                elif rows.numel():
                    dist.recv(rows, rank)
        return whole

    def on_main(
        self,
        parts: Mapping[str, tuple[torch.Tensor, torch.Size | None]],
        function: Callable[[dict[str, torch.Tensor], Load], T],
    ) -> T:
        """Run `function` on the main process; the other processes send it their rows. All call this together.

        Args:
            parts: the arguments of `gather`, by name of the tensor.
            function: takes the tensors without values, on the meta device, and a function that loads a whole tensor by
                its name. `function` loads each tensor once, in the order of `parts`. If it fails before the end, the
                main process still receives the rows that the other processes send.
        """
        waiting = list(parts)

        def load(name: str) -> torch.Tensor:
            if waiting.pop(0) != name:
                raise ValueError(f"{name} is not the next tensor to load")
            return self.gather(*parts[name])

        def work() -> T:
            try:
                return function(shapes, load)
            finally:
                while waiting:
                    load(waiting[0])

        shapes = {
            name: torch.empty(part.shape if shape is None else shape, dtype=part.dtype, device="meta")
            for name, (part, shape) in parts.items()
        }
        while waiting and not self._processes.main:
            load(waiting[0])
        return self._processes.on_main(work)
