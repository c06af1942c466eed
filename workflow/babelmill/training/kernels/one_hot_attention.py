"""Compute GPT-BERT's attention on GPUs with ordinary operations, where our kernels cannot be used.

The shipped model copies the products of queries and keys with the position tables to their places among the scores. The
gradient of such a copy adds many numbers at one address. A GPU does so with atomic additions, which are slow and come
in another order in each run. Here a product with a one-hot table copies the numbers instead. Its gradient is a matrix
product, too, so every run computes the same numbers.

This has not run on a GPU yet.
"""

import math

import torch
from torch.nn import functional as F

from babelmill.model.attention import Visible, compute_dtype
from babelmill.training.kernels.dropout import KeyedAttention

COLUMNS = 64  # columns of the one-hot table: matrix units need a multiple of 8, and a table has 63 rows as published


def _spread(products: torch.Tensor, one_hot: torch.Tensor) -> torch.Tensor:
    """Return element r(i, j) of products [B, n, T, R] for each i and j, [B, n, T, S].

    `one_hot` [T, R, S]: 1 at [i, r(i, j), j], otherwise 0.
    """
    spread = torch.bmm(products.flatten(0, 1).transpose(0, 1), one_hot)
    return spread.transpose(0, 1).unflatten(0, products.shape[:2])


class OneHotAttention(KeyedAttention):
    """Computes attention with the functions of this file. For `place` and `keys`, see `KeyedAttention`."""

    def compute(self, tensors: tuple[torch.Tensor, ...], visible: Visible, dropout: float) -> torch.Tensor:
        """Do what `KeyedAttention.compute` does."""
        query, key, value, query_table, key_table, buckets = tensors
        size = -(-key_table.size(1) // COLUMNS) * COLUMNS
        tables = [F.pad(table, (0, 0, 0, size - table.size(1))) for table in (key_table, query_table)]
        places = torch.arange(size, device=buckets.device)[:, None]
        of_query, of_key = (
            (b[:, None, :] == places).to(compute_dtype(query)) for b in (buckets, buckets.T)
        )  # at [i, r, j] and at [j, r, i]
        parts = query @ key.mT, _spread(query @ tables[0].mT, of_query), _spread(key @ tables[1].mT, of_key).mT
        wide = torch.promote_types(parts[0].dtype, torch.float32)
        scores = sum(part.to(wide) for part in parts) / math.sqrt(3 * query.size(-1)) + visible.penalty
        weights = (scores.softmax(-1) * visible.alive).to(value.dtype)
        if dropout:
            weights = weights * self.kept(weights.shape, dropout).mul_(1 / (1 - dropout)).to(weights.dtype)
        return weights @ value
