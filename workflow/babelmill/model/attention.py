"""Attention with relative positions (DeBERTa's disentangled scores): one function, several implementations.

The score of query i and key j is (q_i.k_j + q_i.K[b] + k_j.Q[b]) / sqrt(3 d), where b is the bucket of the distance
i - j and K, Q are tables of 63 rows. Products with the 63 rows are made first and then spread over the T x T scores,
so that no [T, T, hidden] tensor ever exists: an eighth of the published implementation's arithmetic at T = 512.

This file is shipped inside exported models: it imports nothing but torch and the standard library.
"""

import math
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from .dropout import keep_mask


def _log_bucket(distance: int, bucket_size: int, max_position: int) -> int:
    """Return the bucket of a distance > 0 (DeBERTa; LTG-BERT).

    It is its own up to bucket_size / 2, on a logarithmic scale beyond.
    """
    middle = bucket_size // 2
    if distance <= middle:
        return distance
    return math.ceil(math.log(distance / middle) / math.log((max_position - 1) / middle) * (middle - 1)) + middle


@lru_cache
def _bucket_starts(bucket_size: int, max_position: int) -> list[int]:
    """Return the first distance of each bucket 1, 2, .. A bucket is the number of starts up to the distance."""
    buckets = [_log_bucket(distance, bucket_size, max_position) for distance in range(1, max_position)]
    return [i + 1 for i, bucket in enumerate(buckets) for _ in range(bucket - (buckets[i - 1] if i else 0))]


def position_buckets(
    queries: int, keys: int, bucket_size: int, max_position: int, device: torch.device | str = "cpu"
) -> torch.Tensor:
    """Return the rows of the position tables for the last `queries` of `keys` positions, [queries, keys] int64.

    Rows are 0..2 bucket_size - 2, the middle one for distance 0. With `queries` < `keys` these are the new positions
    of a sequence whose first keys are cached. Distances of `max_position` and more count as `max_position - 1`. Made
    of comparisons on the device: nothing waits for the host, and no rounding of a logarithm differs between devices.
    """
    distance = torch.arange(1 - queries, keys, device=device)
    bucket = torch.zeros_like(distance)
    for start in _bucket_starts(bucket_size, max_position):
        bucket += distance.abs() >= start
    rows = bucket_size - 1 + bucket * distance.sign()
    query, key = torch.arange(queries, device=device), torch.arange(keys, device=device)
    return rows[keys - 1 + query[:, None] - key[None, :]]


class Visible(NamedTuple):
    """Who may attend to whom, in the form that `attention` uses.

    penalty: added to the scores, [B or 1, n or 1, Tq, Tk]: 0 where the query may attend to the key, a large negative
        number where not (finite, since a row of infinities has no softmax).
    alive: [B or 1, n or 1, Tq, 1]: 0 for a query that may attend to nothing, else 1.
    """

    penalty: torch.Tensor
    alive: torch.Tensor


def visible(allowed: torch.Tensor, dtype: torch.dtype) -> Visible:
    """Return the form that `attention` uses of `allowed`.

    `allowed` is bool, True where the query (dimension 2) may see the key (dimension 3).
    """
    penalty = torch.zeros(allowed.shape, dtype=dtype, device=allowed.device)
    penalty.masked_fill_(~allowed, torch.finfo(dtype).min / 2)
    return Visible(penalty, allowed.any(-1, keepdim=True).to(dtype))


def compute_dtype(x: torch.Tensor) -> torch.dtype:
    """Return the type in which matrix products of `x` are made: that of autocast where it is on."""
    device = x.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype


def _flat_indices(buckets: torch.Tensor, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return where the scores [Tq * Tk] find their position parts in flattened [Tq, size] and [Tk, size] products."""
    queries, keys = (torch.arange(length, device=buckets.device) * size for length in buckets.shape)
    return (queries[:, None] + buckets).flatten(), (keys[None, :] + buckets).flatten()


def _spread(products: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Return products [N, T, R] at a flat index [M] as [N, M]. In float32 at least, for the gradient's long sums."""
    products = products.to(torch.promote_types(products.dtype, torch.float32)).flatten(1)
    return products.gather(1, index.expand(len(products), -1))


def _position_bias(
    query: torch.Tensor,
    key: torch.Tensor,
    query_table: torch.Tensor,
    key_table: torch.Tensor,
    buckets: torch.Tensor,
) -> torch.Tensor:
    """Return the position part of the scores before scaling, [B, n, Tq, Tk]: q_i.K[b(i, j)] + k_j.Q[b(i, j)]."""
    rows, columns = _flat_indices(buckets, key_table.size(1))
    content_to_position = (query @ key_table.mT).flatten(0, 1)
    position_to_content = (key @ query_table.mT).flatten(0, 1)
    bias = _spread(content_to_position, rows) + _spread(position_to_content, columns)
    return bias.view(*query.shape[:3], key.size(2))


class _CPUAttention(torch.autograd.Function):
    """Attention with its gradient written out; on CPUs, where PyTorch's `sdpa` trains through a dozen operations.

    Arguments and result as in `attention`. Saved for the backward pass are the weights before and after dropout.
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
        dropout: float,
    ) -> torch.Tensor:
        batch, heads, _, size = query.shape
        scale = 1.0 / math.sqrt(3 * size)
        q, k, v = (x.reshape(batch * heads, -1, size) for x in (query, key, value))
        q_table, k_table = ((x * scale).repeat(batch, 1, 1) for x in (query_table, key_table))
        rows, columns = (index.expand(len(q), -1) for index in _flat_indices(buckets, key_table.size(1)))

        scores = torch.baddbmm(q.new_empty(()), q, k.mT, beta=0, alpha=scale)
        part = torch.gather(torch.bmm(q, k_table.mT).flatten(1), 1, rows)
        scores.flatten(1).add_(part)
        torch.gather(torch.bmm(k, q_table.mT).flatten(1), 1, columns, out=part)
        scores.flatten(1).add_(part)
        scores.unflatten(0, (batch, heads)).add_(penalty)
        weights = torch.softmax(scores, -1)

        dropped = torch.mul(weights, keep_mask(weights.shape, dropout), out=scores) if dropout else weights
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
        mean = (gradient * context).sum(-1, keepdim=True).flatten(0, 1)  # of the weights' gradient under the weights
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
        return *(x.unflatten(0, (batch, heads)) for x in (d_query, d_key, d_value)), *d_tables, None, None, None, None


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    query_table: torch.Tensor,
    key_table: torch.Tensor,
    buckets: torch.Tensor,
    visible: Visible,
    dropout: float = 0.0,
    implementation: str = "auto",
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return weighted values, and the attention weights where the implementation has them.

    Args:
        query: [B, n, Tq, d].
        key, value: [B, n, Tk, d].
        query_table, key_table: [n, R, d], the projected relative positions (Q and K above).
        buckets: [Tq, Tk] int64, from `position_buckets`.
        visible: from the function of this name. A query that may attend to nothing gets zeros.
        dropout: probability of dropping an attention weight.
        implementation: "plain" (the formula; also returns the weights), "sdpa" (PyTorch's fused kernels), "cpu" (the
            fast one for training on a CPU), or "auto": "cpu" or "sdpa".

    Returns:
        values [B, n, Tq, d]; weights [B, n, Tq, Tk] from "plain", else None.
    """
    if implementation == "auto":
        implementation = "cpu" if query.device.type == "cpu" and query.requires_grad else "sdpa"
    if implementation == "cpu":
        tensors = (query, key, value, query_table, key_table, buckets)
        return _CPUAttention.apply(*tensors, *visible, dropout), None
    scale = 1.0 / math.sqrt(3 * query.size(-1))
    bias = _position_bias(query, key, query_table, key_table, buckets) * scale + visible.penalty
    if implementation == "sdpa":
        bias = bias.to(query.dtype)
        return F.scaled_dot_product_attention(query, key, value, bias, dropout, scale=scale) * visible.alive, None
    weights = ((query @ key.mT * scale + bias).softmax(-1) * visible.alive).to(value.dtype)
    return F.dropout(weights, dropout) @ value, weights
