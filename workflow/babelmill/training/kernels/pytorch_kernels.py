"""Compute attention in training by ordinary operations of PyTorch, with dropout keyed by row.

The shipped model (`babelmill.model`) has operations whose gradients of any order exist. In training, first gradients
are enough, so the trainer replaces them by the functions of this file, which compute the same numbers:

* On a CPU, a gradient written by hand.
* On a GPU, no atomic additions. The shipped model copies the products of queries and keys with the position tables to
  their places among the scores. The gradient of such a copy adds many numbers at one address. A GPU does so with atomic
  additions, which are slow and come in another order in each run. Here a product with a one-hot table copies the
  numbers instead. Its gradient is a matrix product, too, so every run computes the same numbers.
"""

import math
from typing import Any

import torch
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from babelmill.model.attention import Visible, compute_dtype, flat_indices
from babelmill.training.kernels.dropout import KeyedAttention

COLUMNS = 64  # columns of the one-hot table: matrix units need a multiple of 8, and a table has 63 rows as published


class _CPUAttention(torch.autograd.Function):
    """Computes attention and its gradient. (On a CPU, the gradient of PyTorch's `sdpa` takes a dozen operations.)

    The weights before and after dropout are saved for the backward pass.
    """

    @staticmethod
    def forward(
        ctx: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        query_table: torch.Tensor,
        key_table: torch.Tensor,
        buckets: torch.Tensor,
        penalty: torch.Tensor,
        alive: torch.Tensor,
        kept: torch.Tensor | None,
        dropout: float,
    ) -> torch.Tensor:
        batch, heads, _, size = query.shape
        scale = 1.0 / math.sqrt(3 * size)
        q, k, v = (x.reshape(batch * heads, -1, size) for x in (query, key, value))
        q_table, k_table = ((x * scale).repeat(batch, 1, 1) for x in (query_table, key_table))
        rows, columns = (index.expand(len(q), -1) for index in flat_indices(buckets, key_table.size(1)))

        scores = torch.baddbmm(q.new_empty(()), q, k.mT, beta=0, alpha=scale)
        part = torch.gather(torch.bmm(q, k_table.mT).flatten(1), 1, rows)
        scores.flatten(1).add_(part)
        torch.gather(torch.bmm(k, q_table.mT).flatten(1), 1, columns, out=part)
        scores.flatten(1).add_(part)
        scores.unflatten(0, (batch, heads)).add_(penalty)
        weights = torch.softmax(scores, -1)

        dropped = weights if kept is None else torch.mul(weights, kept.view(weights.shape), out=scores)
        factor = alive / (1 - dropout)
        context = torch.bmm(dropped, v).unflatten(0, (batch, heads)) * factor
        ctx.save_for_backward(q, k, v, q_table, k_table, rows, columns, weights, dropped, factor, context)
        ctx.scale = scale
        return context

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        q, k, v, q_table, k_table, rows, columns, weights, dropped, factor, context = ctx.saved_tensors
        batch, heads = gradient.shape[:2]
        mean = (gradient * context).sum(-1, keepdim=True).flatten(0, 1)  # the gradient's mean, weighted by the weights
        gradient = (gradient * factor).reshape(q.shape)
        d_value = torch.bmm(dropped.mT, gradient)
        d_scores = torch.bmm(gradient, v.mT).mul_(dropped).addcmul_(weights, mean, value=-1)

        wide = d_scores.to(torch.promote_types(d_scores.dtype, torch.float32)).flatten(1)  # long sums follow
        c2p = wide.new_zeros(len(q), q.size(1) * k_table.size(1)).scatter_add_(1, rows, wide)
        p2c = wide.new_zeros(len(q), k.size(1) * k_table.size(1)).scatter_add_(1, columns, wide)
        c2p, p2c = (x.view(len(q), -1, k_table.size(1)).to(q.dtype) for x in (c2p, p2c))
        d_query = torch.bmm(c2p, k_table).baddbmm_(d_scores, k, alpha=ctx.scale)
        d_key = torch.bmm(p2c, q_table).baddbmm_(d_scores.mT, q, alpha=ctx.scale)
        d_tables = (torch.bmm(p2c.mT, k), torch.bmm(c2p.mT, q))
        d_tables = (x.unflatten(0, (batch, heads)).sum(0) * ctx.scale for x in d_tables)
        return (
            *(x.unflatten(0, (batch, heads)) for x in (d_query, d_key, d_value)),
            *d_tables,
            *[None] * 5,
        )


class CPUAttention(KeyedAttention):
    """Computes attention with dropout by row, with `_CPUAttention` if a gradient is needed."""

    def compute(self, tensors: tuple[torch.Tensor, ...], visible: Visible, dropout: float) -> torch.Tensor:
        """Do what `KeyedAttention.compute` does."""
        query, key, *_ = tensors
        if not query.requires_grad:
            return super().compute(tensors, visible, dropout)
        kept = self.kept(torch.Size([*query.shape[:3], key.size(2)]), dropout) if dropout else None
        return _CPUAttention.apply(*tensors, *visible, kept, dropout)


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
