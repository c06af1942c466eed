"""Attention with relative positions (DeBERTa's disentangled scores): one function, `attention()`, several implementations.

The score of query i and key j is (q_i.k_j + q_i.K[b] + k_j.Q[b]) / sqrt(3 d), where b is the bucket of the distance
i - j and K, Q are tables of 63 rows. Products with the 63 rows are made first and then spread over the T x T scores,
so that no [T, T, hidden] tensor ever exists: an eighth of the published implementation's arithmetic at T = 512.

This file is shipped inside exported models: it imports nothing but torch and the standard library.
"""

import math
from functools import lru_cache

import torch
from torch.nn import functional as F


def _log_bucket(distance: int, bucket_size: int, max_position: int) -> int:
    """Bucket of a distance > 0: its own up to bucket_size / 2, on a logarithmic scale beyond (DeBERTa; LTG-BERT)."""
    middle = bucket_size // 2
    if distance <= middle:
        return distance
    return math.ceil(math.log(distance / middle) / math.log((max_position - 1) / middle) * (middle - 1)) + middle


@lru_cache
def _bucket_starts(bucket_size: int, max_position: int) -> list[int]:
    """The first distance of each bucket 1, 2, .., so that a bucket is the number of starts up to the distance."""
    buckets = [_log_bucket(distance, bucket_size, max_position) for distance in range(1, max_position)]
    return [i + 1 for i, bucket in enumerate(buckets) for _ in range(bucket - (buckets[i - 1] if i else 0))]


def position_buckets(
    queries: int, keys: int, bucket_size: int, max_position: int, device: torch.device | str = "cpu"
) -> torch.Tensor:
    """Rows of the position tables for the last `queries` of `keys` positions, [queries, keys] int64 in 0..2 bucket_size - 2.

    With `queries` < `keys` these are the new positions of a sequence whose first keys are cached. Distances of
    `max_position` and more count as `max_position - 1`. Made of comparisons on the device: nothing waits for the host,
    and no rounding of a logarithm differs between devices.
    """
    distance = torch.arange(1 - queries, keys, device=device)
    bucket = torch.zeros_like(distance)
    for start in _bucket_starts(bucket_size, max_position):
        bucket += distance.abs() >= start
    rows = bucket_size - 1 + bucket * distance.sign()
    query, key = torch.arange(queries, device=device), torch.arange(keys, device=device)
    return rows[keys - 1 + query[:, None] - key[None, :]]


def _spread(table: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """table [B, n, T, R] and index [T, S] to [B, n, T, S]: element (t, s) is table[t, index[t, s]]."""
    batch, heads, length, rows = table.shape
    flat = index + torch.arange(length, device=index.device)[:, None] * rows
    return table.flatten(2).index_select(2, flat.flatten()).view(batch, heads, length, index.size(1))


def position_bias(query, key, query_table, key_table, buckets, scale: float) -> torch.Tensor:
    """The position part of the scores, [B, n, Tq, Tk]: (q_i.K[b(i, j)] + k_j.Q[b(i, j)]) * scale."""
    content_to_position = (query * scale) @ key_table.transpose(-1, -2)  # [B, n, Tq, R]
    position_to_content = (key * scale) @ query_table.transpose(-1, -2)  # [B, n, Tk, R]
    return _spread(content_to_position, buckets) + _spread(position_to_content, buckets.T).transpose(-1, -2)


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    query_table: torch.Tensor,
    key_table: torch.Tensor,
    buckets: torch.Tensor,
    allowed: torch.Tensor,
    dropout: float = 0.0,
    implementation: str = "sdpa",
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Weighted values, and the attention weights where the implementation has them.

    Args:
        query: [B, n, Tq, d].
        key, value: [B, n, Tk, d].
        query_table, key_table: [n, R, d], the projected relative positions (Q and K above).
        buckets: [Tq, Tk] int64, from `position_buckets`.
        allowed: bool, broadcastable to [B, n, Tq, Tk]; True where the query may attend to the key. A query that may
            attend to nothing gets zeros.
        dropout: probability of dropping an attention weight.
        implementation: "sdpa" (PyTorch's fused kernels) or "plain" (the formula; also returns the weights).

    Returns:
        values [B, n, Tq, d]; weights [B, n, Tq, Tk] from "plain", else None.
    """
    scale = 1.0 / math.sqrt(3 * query.size(-1))
    bias = position_bias(query, key, query_table, key_table, buckets, scale)
    if implementation == "sdpa":
        bias = bias.masked_fill(~allowed, -math.inf)
        return F.scaled_dot_product_attention(query, key, value, bias, dropout, scale=scale), None
    scores = query @ key.transpose(-1, -2) * scale + bias
    weights = scores.masked_fill(~allowed, -math.inf).softmax(-1).masked_fill(~allowed, 0.0)
    return F.dropout(weights, dropout) @ value, weights
