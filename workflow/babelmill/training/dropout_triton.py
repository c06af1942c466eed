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
def kept(key, element, dropped):
    """Return which elements of a key are kept, as `dropout.keep` does; it drops `dropped` of 2^16 values."""
    number = mix(key ^ mix((element >> 1).to(tl.uint32) + 0x9E3779B9))
    half = tl.where((element & 1) == 1, number >> 16, number & 0xFFFF)
    return (half ^ 0x8000) >= dropped


@triton.jit
def drop(x, KEYS, PLACE, token, n, length, H, limit):
    """Drop elements n of a token's numbers x [H], as `dropout.RowDropout` does, but do not scale the others."""
    key = mix(tl.load(KEYS + token // length).to(tl.uint32, bitcast=True) ^ tl.load(PLACE).to(tl.uint32, bitcast=True))
    return tl.where(kept(key, token % length * H + n, limit), x, 0.0)
