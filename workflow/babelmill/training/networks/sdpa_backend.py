"""Warn if PyTorch has no fused kernel for the attention of a model of transformers, and computes the formula.

`scaled_dot_product_attention` chooses a kernel by the device, the precision, the width of heads, the mask and dropout.
If no fused kernel fits, it computes the formula, which takes several times as long, and memory for all T^2 weights.
PyTorch does not report this. A model that computes the formula itself is not noticed here.
"""

import contextlib
import logging
from typing import Any

import torch
from torch.nn import functional as F
from torch.nn.attention import SDPBackend
from torch.overrides import TorchFunctionMode

from babelmill.runtime.processes import Processes

log = logging.getLogger(__name__)

DEVICES = ("cuda",)  # on a CPU, PyTorch computes the formula whenever attention has dropout


class _Choices(TorchFunctionMode):
    """Looks at each call of attention. Logs a warning at the first one for which PyTorch chooses the formula."""

    def __init__(self):
        super().__init__()
        self._warned = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        if func is F.scaled_dot_product_attention and not self._warned:
            self._look_at(*args, **given)
        return func(*args, **given)

    def _look_at(self, query: torch.Tensor, *args: Any, **given: Any) -> None:
        if torch._fused_sdp_choice(query, *args, **given) == SDPBackend.MATH.value:  # pyright: ignore
            width, precision = query.size(-1), str(query.dtype).removeprefix("torch.")
            log.warning(
                "PyTorch has no fused attention for this model here (heads of width %d, %s): it computes the formula,"
                " which is slower and takes more memory",
                width,
                precision,
            )
            self._warned = True


def watched(processes: Processes) -> contextlib.AbstractContextManager[Any]:
    """Return a context for the first forward pass of a model. Only the main process warns."""
    return _Choices() if processes.main and processes.device.type in DEVICES else contextlib.nullcontext()
