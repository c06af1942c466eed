"""Hide rare tokens more often than frequent ones (`train.rarity`; Kosmopoulou et al., 2025, arXiv:2509.05056).

As published, a token's weight is its rank by frequency, divided by the number of tokens, to a small power. Of a row,
tokens are hidden in proportion to their weights, as far as the number of hidden tokens allows. There are two
differences: this number is exact, as always (`masking.py`), and ranks are not scaled within each row again, which
would give the most frequent token of a row the weight 0.
"""

import numpy as np

from babelmill.tokens.shard_file import ShardFile

AT_ONCE = 2**24  # tokens
UNIT, MOST = 2**10, 2**18  # the lowest and the highest cost


def token_counts(shards: list[ShardFile], size: int) -> np.ndarray:
    """Return how often each of `size` tokens occurs in some shards, [size] int64."""
    counts = np.zeros(size, dtype=np.int64)
    for shard in shards:
        for first in range(0, len(shard.tokens), AT_ONCE):
            counts += np.bincount(shard.tokens[first : first + AT_ONCE], minlength=size)
    return counts


def costs_of(counts: np.ndarray, power: float) -> np.ndarray:
    """Return the cost of each token for `masking.choose`: 1 over its weight, [size] int64.

    Weights are (rank / size) ** power; the most frequent token has rank 1. Of equally frequent tokens, the one with the
    lower id has the lower rank.
    """
    rank = np.empty(len(counts), dtype=np.int64)
    rank[np.argsort(-counts, kind="stable")] = np.arange(1, len(counts) + 1)
    return np.minimum(MOST, np.rint(UNIT * (rank / len(counts)) ** -power)).astype(np.int64)
