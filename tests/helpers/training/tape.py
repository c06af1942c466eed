"""Record on a CPU what a function does to tensors, as a CUDA graph does on a GPU."""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

aten = torch.ops.aten
WITH_THE_HOST = {  # operations that read numbers on the host, or take them from there: a GPU would wait for it
    aten._local_scalar_dense.default: "a number is read on the host",
    aten.nonzero.default: "the host reads how many numbers are not 0",
    aten.masked_select.default: "the host reads how many numbers are selected",
    aten.lift_fresh.default: "a number comes from the host",
}


class Tape(TorchDispatchMode):
    """Records operations with their tensors, and repeats them: each result is written to the tensor of the record.

    So a repetition sees what is in the recorded tensors now. Values of the host (of Python and NumPy) are those of the
    record. `CUDAGraph` does not compute while it records; here what a record writes to is restored.
    """

    def record(self, function: Callable[[], torch.Tensor], beside: "Tape | None") -> torch.Tensor:
        """See `CUDAGraph`."""
        self._calls: list[tuple[Any, Any, Any, Any]] = []
        self._before: list[tuple[torch.Tensor, torch.Tensor]] = []
        try:
            with self:
                return function()
        finally:
            with torch.no_grad():
                for tensor, before in reversed(self._before):
                    tensor.copy_(before)
            del self._before

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Record an operation.

        Raises:
            RuntimeError: it needs the host.
        """
        if operation in WITH_THE_HOST:
            raise RuntimeError(f"{WITH_THE_HOST[operation]}\n(and more)")
        for argument, value in zip(operation._schema.arguments, args, strict=False):
            if argument.alias_info is not None and argument.alias_info.is_write:
                self._before += [(tensor, tensor.clone()) for tensor in tree_leaves(value)]
        result = operation(*args, **(kwargs or {}))
        self._calls.append((operation, args, kwargs or {}, result))
        return result

    @torch.no_grad()
    def repeat(self) -> None:
        """See `CUDAGraph`."""
        for operation, args, kwargs, result in self._calls:
            again = operation(*args, **kwargs)
            for old, new in zip(tree_leaves(result), tree_leaves(again), strict=True):
                if isinstance(old, torch.Tensor) and old.data_ptr() != new.data_ptr():
                    old.copy_(new)
