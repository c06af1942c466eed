"""Define what our Triton kernels share: how PyTorch calls them, tiles of matrices, dropout and normalisation.

`operator` makes a function an operator of PyTorch, whose insides `torch.compile` does not look at.
`torch.library.custom_op` does this, too. But each call of such an operator takes the host some 40 us, since several
Python functions around ours handle autograd and mutations. A step calls more than a hundred of our operators. They
never need a gradient of their own (a `torch.autograd.Function` calls them), so ours take a direct way.
"""

# pyright: reportMissingParameterType=false, reportArgumentType=false, reportIndexIssue=false, reportCallIssue=false
# pyright: reportAttributeAccessIssue=false, reportOperatorIssue=false, reportGeneralTypeIssues=false
# pyright: reportReturnType=false
# (a type checker does not know what Triton makes of a function)

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch.library import infer_schema

NAMESPACE = "babelmill"
WARPS = 4  # of a program, each for 16 of 64 rows; with 8, every row would be computed by two


def operator(
    name: str, results: Callable[..., Any], mutates: Sequence[str] = ()
) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator that makes a function on tensors the operator `torch.ops.babelmill.<name>`.

    Args:
        name: its name.
        results: takes the same arguments, and returns empty tensors shaped as the results, for tracing.
        mutates: names of arguments that the function writes to. Its results are always new tensors.
    """

    def define(function: Callable[..., Any]) -> Any:
        torch.library.define(f"{NAMESPACE}::{name}", infer_schema(function, mutates_args=mutates))
        torch.library.impl(f"{NAMESPACE}::{name}", ("cpu", "cuda"), function)
        torch.library.register_fake(f"{NAMESPACE}::{name}", results)
        return getattr(getattr(torch.ops, NAMESPACE), name).default

    return define


@triton.jit
def dot(a, b):
    """Return the matrix product. In float32, nothing is rounded to tf32, which most AMD GPUs do not support."""
    return tl.dot(a, b, input_precision="ieee")


@triton.jit
def below(i, limit):
    """Return whether i < `limit`; if this is None, there is no limit, and the compiler leaves out what is masked."""
    if limit is None:  # noqa: SIM108
        result = i == i
    else:
        result = i < limit
    return result


@triton.jit
def load(X, begin, i, stride, limit, D: tl.constexpr):
    """Return rows i of a matrix that begins at element `begin` of X, [B, D]; zeros if i is not in 0 .. `limit` - 1."""
    d = tl.arange(0, D)
    mask = below(i[:, None].to(tl.uint32), limit)
    return tl.load(X + begin + i[:, None] * stride + d[None, :], mask=mask, other=0.0)


@triton.jit
def store(X, x, begin, i, stride, limit, D: tl.constexpr):
    """Write what `load` reads."""
    place = X + begin + i[:, None] * stride + tl.arange(0, D)[None, :]
    tl.store(place, x.to(X.dtype.element_ty), mask=below(i[:, None], limit))


@triton.jit
def mix(x):
    """Do what `dropout.mix` does, in uint32."""
    x ^= x >> 16
    x *= 0x21F0AAAD
    x ^= x >> 15
    x *= 0x735A2D97
    return x ^ (x >> 15)


@triton.jit
def kept(key, row, column, columns, dropped, EVEN: tl.constexpr):
    """Return which elements of a matrix are kept, as `dropout.keep` does for its elements, one row after the other.

    Two elements share a hash. Only if rows have EVEN lengths can the compiler see which two, and compute it once.

    Args:
        key: of the matrix, uint32.
        row, column, columns: the elements, and the length of a row.
        dropped: how many of 2^16 values drop their element.
    """
    if EVEN:
        pair, odd = row * (columns // 2) + (column >> 1), column & 1
    else:
        pair, odd = (row * columns + column) >> 1, (row * columns + column) & 1
    number = mix(key ^ mix(pair.to(tl.uint32) + 0x9E3779B9))
    half = tl.where(odd == 1, number, number << 16)  # the upper bits of a number are the half that decides
    return half.to(tl.int32, bitcast=True) >= (dropped - 0x8000) << 16


@triton.jit
def drop(x, KEYS, PLACE, token, n, length, H, limit, EVEN: tl.constexpr):
    """Drop elements n of a token's numbers x [H], as `dropout.RowDropout` does, but do not scale the others."""
    key = mix(tl.load(KEYS + token // length).to(tl.uint32, bitcast=True) ^ tl.load(PLACE).to(tl.uint32, bitcast=True))
    return tl.where(kept(key, token % length, n, H, limit, EVEN), x, 0.0)


@triton.jit
def normalize(x, inside, H, eps):
    """Return a token's numbers, normalised as by `model.gpt_bert.Normalization`, and by what they were multiplied.

    A program holds all numbers of its token: x [B], of which `inside` are the token's H, and the others 0.
    """
    x = tl.where(inside, x - tl.sum(x, 0) / H, 0.0)
    scale = tl.rsqrt(tl.sum(x * x, 0) / H + eps)
    return x * scale, scale


@triton.jit
def gradient_of_input(gradient, y, scale, H):
    """Return the gradient of what was normalised, for that of the result y."""
    return (gradient - tl.sum(gradient, 0) / H - y * (tl.sum(gradient * y, 0) / H)) * scale


@functools.cache
def sizes(width: int, numbers: int = 32) -> dict[str, int]:
    """Return B and the warps of a program for H = `width`, as keyword arguments of a kernel's launch.

    A program with fewer threads needs fewer instructions for sums over all of them.

    Args:
        width: H.
        numbers: how many numbers a thread holds, if there are enough.
    """
    block = triton.next_power_of_2(width)
    return {"B": block, "num_warps": min(16, max(1, block // (32 * numbers)))}
