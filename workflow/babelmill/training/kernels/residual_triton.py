"""Add the outputs of sub-blocks to the residual stream on GPUs, for models without layer mixing.

Between two sub-blocks of such a model stand dropout, the residual sum and a normalisation. So they do between the last
sub-block and the classifier. Here one kernel per sub-block does all three. It adds to the residual stream in place, in
float32, and returns the normalised sum. The backward pass does the same with the gradient of the stream. So it must run
from the last sub-block to the first one; no other kind of backward pass is supported.

The kernels ran on an H200 (PyTorch 2.11, Triton 3.6): without them, a step of the preset `base` without layer mixing
takes 7 % longer (`benchmarks/README.md`, "On a GPU, measured"). Tests run them in Triton's interpreter and build them
for GPUs of NVIDIA and AMD.
"""

# pyright: reportMissingParameterType=false, reportArgumentType=false, reportIndexIssue=false, reportCallIssue=false
# pyright: reportAttributeAccessIssue=false, reportOperatorIssue=false, reportGeneralTypeIssues=false
# (a type checker does not know what Triton makes of a function)

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import nn

from babelmill.training.kernels.dropout import RowDropout
from babelmill.training.kernels.shared_triton import drop, load_gradient, operator, results_of, sizes, store_normalized


@triton.jit(do_not_specialize=["length", "limit"])
def _add_forward(
    CHANGE, STREAM, RESULT, SCALE, KEYS, PLACE, H, length, limit, factor, eps,
    BEGINS: tl.constexpr, DROPS: tl.constexpr, EVEN: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """Compute the input of the next sub-block for one token: drop, add, normalise."""
    token, n = tl.program_id(0), tl.arange(0, B)
    inside, place = n < H, token.to(tl.int64) * H + n
    x = tl.load(CHANGE + place, mask=inside, other=0.0).to(tl.float32)
    if DROPS:
        x = drop(x, KEYS, PLACE, token, n, length, H, limit, EVEN) * factor
    if not BEGINS:
        x += tl.load(STREAM + place, mask=inside, other=0.0)
    tl.store(STREAM + place, x, mask=inside)
    store_normalized(x, RESULT, SCALE, token, place, inside, H, eps)


@triton.jit(do_not_specialize=["length", "limit"])
def _add_backward(
    GRADIENT, NORMALIZED, SCALE, STREAM, RESULT, KEYS, PLACE, H, length, limit, factor,
    BEGINS: tl.constexpr, DROPS: tl.constexpr, EVEN: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """Compute the gradient of a change for one token: the gradient of the normalisation; add, drop."""
    token, n = tl.program_id(0), tl.arange(0, B)
    inside, place = n < H, token.to(tl.int64) * H + n
    x = load_gradient(GRADIENT, NORMALIZED, SCALE, token, place, inside, H)
    if not BEGINS:
        x += tl.load(STREAM + place, mask=inside, other=0.0)
    tl.store(STREAM + place, x, mask=inside)
    if DROPS:
        x = drop(x, KEYS, PLACE, token, n, length, H, limit, EVEN) * factor
    tl.store(RESULT + place, x.to(RESULT.dtype.element_ty), mask=inside)


def _launch(kernel: Any, shape: torch.Size, begins: bool, dropout: "Dropout", **more: Any) -> None:
    """Run a kernel for each token of hidden states of this shape, [B, T, H]."""
    (rows, length, width), (keys, place, p) = shape, dropout
    unused = more["STREAM"]  # instead of keys that are None
    tensors = {"KEYS": unused if keys is None else keys, "PLACE": unused if place is None else place}
    numbers = {"H": width, "length": length, "limit": round(p * 2**16), "factor": 1 / (1 - p)}
    switches = {"BEGINS": begins, "DROPS": p > 0, "EVEN": width % 2 == 0}
    kernel[(rows * length,)](**more, **tensors, **numbers, **switches, **sizes(width))


Dropout = tuple[torch.Tensor | None, torch.Tensor | None, float]  # the rows' keys, the counter, the probability


@operator("add_forward", mutates=("stream",))
def _forward(
    change: torch.Tensor,
    stream: torch.Tensor,
    begins: bool,
    keys: torch.Tensor | None,
    place: torch.Tensor | None,
    p: float,
    eps: float,
    kind: torch.dtype,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Drop elements of a change and add it to the stream. Return the sum, normalised.

    Args:
        change: [B, T, H], of any type.
        stream: [B, T, H] float32.
        begins: whether the stream is empty; then its numbers are not read.
        keys, place, p: see `RowDropout`; with p = 0 nothing is dropped.
        eps: see `Normalization`.
        kind: type of the result.

    Returns:
        The normalised sum, [B, T, H], and by what it was multiplied to normalise it, [B, T] float32.
    """
    result, scale = torch.empty_like(change, dtype=kind), stream.new_empty(change.shape[:2])
    tensors = {"CHANGE": change, "STREAM": stream, "RESULT": result, "SCALE": scale}
    _launch(_add_forward, change.shape, begins, (keys, place, p), **tensors, eps=eps)
    return result, scale


@results_of("add_forward")
def _(change, stream, begins, keys, place, p, eps, kind):
    return torch.empty_like(change, dtype=kind), stream.new_empty(change.shape[:2])


@operator("add_backward", mutates=("stream",))
def _backward(
    gradient: torch.Tensor,
    normalized: torch.Tensor,
    scale: torch.Tensor,
    stream: torch.Tensor,
    begins: bool,
    keys: torch.Tensor | None,
    place: torch.Tensor | None,
    p: float,
    kind: torch.dtype,
) -> torch.Tensor:
    """Add to the gradient of the stream. Return the gradient of a change.

    Args:
        gradient: [B, T, H], of what `_forward` returned.
        normalized, scale: what it returned.
        stream: [B, T, H] float32, the gradient of the stream behind this sum.
        begins, keys, place, p: as in `_forward`.
        kind: type of the result, which has the shape of `gradient`.
    """
    result = torch.empty_like(gradient, dtype=kind)
    tensors = {"GRADIENT": gradient, "NORMALIZED": normalized, "SCALE": scale, "STREAM": stream, "RESULT": result}
    _launch(_add_backward, gradient.shape, begins, (keys, place, p), **tensors)
    return result


@results_of("add_backward")
def _(gradient, normalized, scale, stream, begins, keys, place, p, kind):
    return torch.empty_like(gradient, dtype=kind)


class _ResidualPass:
    """Holds the state of a forward pass, and of its backward pass.

    Attributes:
        dropouts: of each change.
        eps: see `Normalization`.
        kind: type of normalised results.
        stream: the residual stream, [B, T, H] float32.
        done: how many changes are part of it.
        gradient: the gradient of the stream, or None before the backward pass.
    """

    def __init__(self, dropouts: list[Dropout], eps: float, kind: torch.dtype, hidden: torch.Tensor):
        self.dropouts, self.eps, self.kind = dropouts, eps, kind
        self.stream, self.done = torch.empty_like(hidden, dtype=torch.float32), 0
        self.gradient: torch.Tensor | None = None


class _Added(torch.autograd.Function):
    """Computes the input of the next sub-block."""

    @staticmethod
    def forward(ctx: Any, change: torch.Tensor, state: _ResidualPass) -> torch.Tensor:
        number, state.done = state.done, state.done + 1
        dropout = state.dropouts[number]
        result, scale = _forward(change.contiguous(), state.stream, number == 0, *dropout, state.eps, state.kind)
        ctx.save_for_backward(result, scale)
        ctx.state, ctx.number, ctx.kind = state, number, change.dtype
        return result

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, gradient: torch.Tensor
    ) -> tuple[torch.Tensor, None]:
        state, begins = ctx.state, ctx.number + 1 == ctx.state.done
        stream = state.gradient = torch.empty_like(state.stream) if begins else state.gradient
        dropout = state.dropouts[ctx.number]
        return _backward(gradient.contiguous(), *ctx.saved_tensors, stream, begins, *dropout, ctx.kind), None


class FusedResidual(nn.Module):
    """Adds changes to the residual stream, after dropout, and normalises all results.

    Args:
        dropouts: each drops elements of the embedding or of the change by a sub-block.
        eps: see `Normalization`.
    """

    kind = torch.bfloat16  # type of normalised results

    def __init__(self, dropouts: list[RowDropout], eps: float):
        super().__init__()
        self._dropouts, self._eps = dropouts, eps

    def start(self, hidden: torch.Tensor) -> tuple[torch.Tensor, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]]:
        """Return the normalised embedding, and a function that turns a change into the next result; all [B, T, H]."""
        dropouts = [dropout.of_rows(self.training) for dropout in self._dropouts]
        state = _ResidualPass(dropouts, self._eps, self.kind, hidden)
        return _Added.apply(hidden, state), lambda _, change: _Added.apply(change, state)
