"""Compute what stands between the products of a feed-forward block on GPUs: GEGLU and a normalisation, in one kernel.

A token has too many numbers there for what `torch.compile` makes of this: a kernel that goes over them twice, and in
between writes float32 numbers to memory and reads them again. (It holds up to 1,024 numbers.) Here a program holds all
numbers of a token, in parts: 2,560 numbers are five parts of 512, since a part must be a power of two.

The kernels ran on an H200 (PyTorch 2.11, Triton 3.6): without them, a step of the preset `base` takes 12 % longer
(`benchmarks/README.md`, "On a GPU, measured"). Tests run them in Triton's interpreter and build them for GPUs of
NVIDIA and AMD.
"""

# pyright: reportMissingParameterType=false, reportArgumentType=false, reportIndexIssue=false, reportCallIssue=false
# pyright: reportAttributeAccessIssue=false, reportOperatorIssue=false
# (a type checker does not know what Triton makes of a function)
# ruff: noqa: RUF005 (Triton does not unpack tuples)

import functools
import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import nn

from babelmill.model.gpt_bert import GPTBert
from babelmill.training.kernels.shared_triton import below, operator

NUMBERS = 40, 20  # of a thread, forwards and backwards, so that they fit into its registers
MOST_PARTS = 8  # of a token


@triton.jit
def _gelu(x):
    """Return the approximate gelu(x) = x s(2 u), where u = c (x + a x^3), and its derivative (arXiv:1606.08415).

    s is the logistic function. c is the root of 2 / pi, a is 0.044715. (As a tanh, it would need more instructions.)
    """
    square = x * x
    exponent = x * (-2.302208198 - 0.1029432396 * square)  # -2 c log2(e), and a times this
    root = tl.rsqrt(1.0 + tl.exp2(exponent))
    share = root * root  # a division would need five instructions
    value = x * share
    return value, share + value * (1.0 - share) * (1.595769122 + 0.2140644488 * square)  # 2 c, and 6 a c


@triton.jit
def _geglu_forward(JOINT, RESULT, H, eps, PARTS: tl.constexpr, B: tl.constexpr, WHOLE: tl.constexpr):
    """Compute one token: the first half of its numbers times the gelu of the second half, normalised."""
    token, limit = tl.program_id(0).to(tl.int64), None if WHOLE else H
    place, values, sums, squares = JOINT + token * 2 * H, (), tl.zeros([B], tl.float32), tl.zeros([B], tl.float32)
    for part in tl.static_range(PARTS):
        n = part * B + tl.arange(0, B)
        x = tl.load(place + n, mask=below(n, limit), other=0.0).to(tl.float32)
        x *= _gelu(tl.load(place + H + n, mask=below(n, limit), other=0.0).to(tl.float32))[0]
        values, sums = values + (x,), sums + x
    mean = tl.sum(sums, 0) / H
    for part in tl.static_range(PARTS):
        x = tl.where(below(part * B + tl.arange(0, B), limit), values[part] - mean, 0.0)
        squares += x * x
    scale = tl.rsqrt(tl.sum(squares, 0) / H + eps)
    for part in tl.static_range(PARTS):
        n, x = part * B + tl.arange(0, B), (values[part] - mean) * scale
        tl.store(RESULT + token * H + n, x.to(RESULT.dtype.element_ty), mask=below(n, limit))


@triton.jit
def _geglu_backward(GRADIENT, JOINT, INTO, H, eps, PARTS: tl.constexpr, B: tl.constexpr, WHOLE: tl.constexpr):
    """Compute the gradient of one token's numbers, with the formula of `gradient_of_input` in shared_triton.py."""
    token, limit, zeros = tl.program_id(0).to(tl.int64), None if WHOLE else H, tl.zeros([B], tl.float32)
    place, gradients, values, gelus, slopes = JOINT + token * 2 * H, (), (), (), ()
    sums, of_gradients, squares, products = zeros, zeros, zeros, zeros
    for part in tl.static_range(PARTS):
        n = part * B + tl.arange(0, B)
        gradient = tl.load(GRADIENT + token * H + n, mask=below(n, limit), other=0.0).to(tl.float32)
        x = tl.load(place + n, mask=below(n, limit), other=0.0).to(tl.float32)
        gelu, slope = _gelu(tl.load(place + H + n, mask=below(n, limit), other=0.0).to(tl.float32))
        gradients, values = gradients + (gradient,), values + (x * gelu,)
        gelus, slopes = gelus + (gelu,), slopes + (x * slope,)
        sums, of_gradients = sums + x * gelu, of_gradients + gradient
    mean, mean_gradient = tl.sum(sums, 0) / H, tl.sum(of_gradients, 0) / H
    for part in tl.static_range(PARTS):
        x = tl.where(below(part * B + tl.arange(0, B), limit), values[part] - mean, 0.0)
        squares, products = squares + x * x, products + x * gradients[part]
    scale = tl.rsqrt(tl.sum(squares, 0) / H + eps)
    share = tl.sum(products, 0) / H * scale * scale
    for part in tl.static_range(PARTS):
        n = part * B + tl.arange(0, B)
        gradient = (gradients[part] - mean_gradient - (values[part] - mean) * share) * scale
        of_x, of_gate = gradient * gelus[part], gradient * slopes[part]
        tl.store(INTO + token * 2 * H + n, of_x.to(INTO.dtype.element_ty), mask=below(n, limit))
        tl.store(INTO + token * 2 * H + H + n, of_gate.to(INTO.dtype.element_ty), mask=below(n, limit))


@functools.cache
def sizes(width: int, numbers: int) -> dict[str, int]:
    """Return the parts of a program for H = `width`, and its warps, as keyword arguments of a kernel's launch.

    Args:
        width: H.
        numbers: how many numbers a thread may hold.
    """
    block = width & -width  # the largest power of two that divides H
    if width // block > MOST_PARTS:
        block = 2 ** (width - 1).bit_length()
    warps = 2 ** max(0, math.ceil(math.log2(width / (32 * numbers))))
    return {"PARTS": -(-width // block), "B": block, "WHOLE": width % block == 0, "num_warps": min(16, warps)}


def _empty(joint: torch.Tensor, _eps: float) -> torch.Tensor:
    """Return an empty tensor for the result of `_forward`."""
    rows, length, width = joint.shape
    return joint.new_empty(rows, length, width // 2)


@operator("geglu", _empty)
def _forward(joint: torch.Tensor, eps: float) -> torch.Tensor:
    """Return x * gelu(gate), normalised, [B, T, H].

    Args:
        joint: [B, T, 2 H], x and gate.
        eps: see `Normalization`.
    """
    result = _empty(joint, eps)
    rows, length, width = result.shape
    _geglu_forward[(rows * length,)](joint, result, width, eps, **sizes(width, NUMBERS[0]))
    return result


@operator("geglu_backward", lambda _gradient, joint, _eps: torch.empty_like(joint))
def _backward(gradient: torch.Tensor, joint: torch.Tensor, eps: float) -> torch.Tensor:
    """Return the gradient of `joint` for that of the result of `_forward`."""
    into = torch.empty_like(joint)
    rows, length, width = gradient.shape
    _geglu_backward[(rows * length,)](gradient, joint, into, width, eps, **sizes(width, NUMBERS[1]))
    return into


class _Function(torch.autograd.Function):
    """Computes `_forward`."""

    @staticmethod
    def forward(ctx: Any, joint: torch.Tensor, eps: float) -> torch.Tensor:
        ctx.save_for_backward(joint)
        ctx.eps = eps
        return _forward(joint, eps)

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, gradient: torch.Tensor
    ) -> tuple[torch.Tensor, None]:
        return _backward(gradient.contiguous(), *ctx.saved_tensors, ctx.eps), None


class NormalizedGEGLU(nn.Module):
    """Computes `GEGLU` and then `Normalization`, [B, T, 2 H] to [B, T, H]. `eps`: see `Normalization`."""

    def __init__(self, eps: float):
        super().__init__()
        self._eps = eps

    def forward(self, joint: torch.Tensor) -> torch.Tensor:
        return _Function.apply(joint.contiguous(), self._eps)


def install(model: GPTBert) -> None:
    """Let a model's feed-forward blocks use `NormalizedGEGLU`. Its weights and their names do not change."""
    for block in model.transformer.mlp_layers:
        block.mlp[2], block.mlp[3] = NormalizedGEGLU(model.config.layer_norm_eps), nn.Identity()
