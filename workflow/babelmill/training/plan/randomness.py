"""Draw random numbers without state: a number is a hash of (seed, stream, numbers that say what it is used for).

Nothing has to be saved, skipped or sent between processes: every process masks row 123 in the same way. The mixing
function computes 32-bit numbers in 64-bit integers. Its multipliers are below 2^31, so no product overflows a signed
64-bit integer. So Python, NumPy, PyTorch on any device, and `torch.compile` all give the same integers. (Inductor
computes some 64-bit products in 32 bits, which would change a 64-bit hash.)
"""

from typing import Any

import numpy as np

Integers = Any  # an int, a NumPy int64 array or a torch int64 tensor; results have the type of the arguments

MASK = 0xFFFFFFFF
GOLDEN = 0x9E3779B9

# Each use has its own stream: in two streams, the same row number draws unrelated numbers.
ORDER, ROUNDING, SPAN, PRIORITY, ACTION, REPLACEMENT, DROPOUT, INITIALIZATION, VALIDATION, SHARED_DROPOUT = range(1, 11)
RATES, CONTEXT, TYPOS, DOCUMENTS = 11, 12, 13, 14


def mix(x: Integers) -> Integers:
    """Apply a bijection of 32-bit integers that looks random (constants: C. Wellons, hash-prospector).

    Only the low 32 bits of `x` count.
    """
    x = x & MASK
    x = ((x ^ (x >> 16)) * 0x21F0AAAD) & MASK
    x = ((x ^ (x >> 15)) * 0x735A2D97) & MASK
    return x ^ (x >> 15)


def key(*parts: Integers) -> Integers:
    """Combine integers (arrays broadcast) of up to 63 bits into one 32-bit key."""
    folded = GOLDEN
    for part in parts:
        folded = mix(folded ^ (part & MASK))
        folded = mix(folded + GOLDEN + (part >> 32))
    return folded


def draw(keys: Integers, counter: Integers) -> Integers:
    """Return the `counter`-th 32-bit number of each key; arguments broadcast."""
    return mix(keys ^ mix(counter + GOLDEN))


def uniform(keys: Integers) -> Any:
    """Turn keys into numbers in [0, 1)."""
    return keys / 2.0**32


def permutation(size: int, seed: int) -> np.ndarray:
    """Return a random permutation of 0 .. size - 1, [size] int64.

    NumPy promises that the numbers of `RandomState` never change. `seed` is a key of 32 bits.
    """
    return np.random.RandomState(seed).permutation(size)


def below(numbers: Integers, limit: int) -> Integers:
    """Turn 32-bit numbers into integers in 0..limit - 1 (limit at most 2^31)."""
    return (numbers * limit) >> 32
