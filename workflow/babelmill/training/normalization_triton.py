"""Normalise the numbers of one token in Triton kernels, as `model.gpt_bert.Normalization` does.

A program holds all numbers of its token: [B], of which `inside` are the token's H, and the others 0.
"""

# pyright: reportMissingParameterType=false, reportReturnType=false
# (a type checker does not know what Triton makes of a function)

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


def sizes(width: int) -> dict[str, int]:
    """Return B and the warps of a program for H = `width`, as keyword arguments of a kernel's launch."""
    block = triton.next_power_of_2(width)
    return {"B": block, "num_warps": min(8, max(1, block // 256))}
