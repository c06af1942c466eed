"""Read, multiply and write tiles of matrices in the Triton kernels of attention."""

# pyright: reportMissingParameterType=false, reportArgumentType=false, reportIndexIssue=false, reportCallIssue=false
# pyright: reportAttributeAccessIssue=false, reportOperatorIssue=false, reportGeneralTypeIssues=false
# (a type checker does not know what Triton makes of a function)

import triton
import triton.language as tl

WARPS = 4  # of a program, each for 16 of 64 rows; with 8, every row would be computed by two


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
