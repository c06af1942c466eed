"""Normalise the numbers of one token in Triton kernels, as `model.gpt_bert.Normalization` does.

A program holds all numbers of its token: [B], of which `inside` are the token's H, and the others 0.
"""

# pyright: reportMissingParameterType=false, reportReturnType=false, reportGeneralTypeIssues=false
# (a type checker does not know what Triton makes of a function)

import functools

import triton
import triton.language as tl


@triton.jit
def normalize(x, inside, H, eps):
    """Return the normalised numbers, and by what they were multiplied."""
    x = tl.where(inside, x - tl.sum(x, 0) / H, 0.0)
    scale = tl.rsqrt(tl.sum(x * x, 0) / H + eps)
    return x * scale, scale


@triton.jit
def gradient_of_input(gradient, y, scale, H):
    """Return the gradient of what was normalised, for that of the result y."""
    return (gradient - tl.sum(gradient, 0) / H - y * (tl.sum(gradient * y, 0) / H)) * scale


@triton.jit
def store_normalized(x, RESULT, SCALE, token, place, inside, H, eps):
    """Normalise the numbers x of a token; write the result at `place`, and by what they were multiplied."""
    y, scale = normalize(x, inside, H, eps)
    tl.store(SCALE + token, scale)
    tl.store(RESULT + place, y.to(RESULT.dtype.element_ty), mask=inside)


@triton.jit
def load_gradient(GRADIENT, RESULT, SCALE, token, place, inside, H):
    """Return the gradient of x in `store_normalized`, for the gradient of its result."""
    gradient = tl.load(GRADIENT + place, mask=inside, other=0.0).to(tl.float32)
    y = tl.load(RESULT + place, mask=inside, other=0.0).to(tl.float32)
    return gradient_of_input(gradient, y, tl.load(SCALE + token), H)


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
