"""Drop elements in Triton kernels: the hash of `dropout.py`, which gives the same integers here."""

# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false
# (a type checker does not know what Triton makes of a function)

import triton
import triton.language as tl


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
