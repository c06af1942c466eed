"""Attention with relative positions (DeBERTa's disentangled scores): one function, several implementations.

The score of query i and key j is (q_i.k_j + q_i.K[b] + k_j.Q[b]) / sqrt(3 d), where b is the bucket of the distance
i - j and K, Q are tables of 63 rows. Products with the 63 rows are made first and then spread over the T x T scores,
so that no [T, T, hidden] tensor ever exists: an eighth of the published implementation's arithmetic at T = 512.

This file is shipped inside exported models: it imports nothing but torch and the standard library.
"""

import math
from functools import lru_cache
from typing import NamedTuple

import torch
from torch.nn import functional as F


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
    penalty = torch.zeros((), dtype=dtype, device=allowed.device).masked_fill(~allowed, torch.finfo(dtype).min / 2)
    return Visible(penalty, allowed.any(-1, keepdim=True).to(dtype))


def compute_dtype(x: torch.Tensor) -> torch.dtype:
    """Return the type in which matrix products of `x` are made: that of autocast where it is on."""
    device = x.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype


def flat_indices(buckets: torch.Tensor, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return where the scores [Tq * Tk] find their position parts in flattened [Tq, size] and [Tk, size] products."""
    queries, keys = (torch.arange(length, device=buckets.device) * size for length in buckets.shape)
    return (queries[:, None] + buckets).flatten(), (keys[None, :] + buckets).flatten()


def _spread(products: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Return products [N, T, R] at a flat index [M] as [N, M]. In float32 at least, for the gradient's long sums."""
    products = products.to(torch.promote_types(products.dtype, torch.float32)).flatten(1)
    return products.gather(1, index.expand(products.size(0), -1))  # len() would fix a dynamic size


def _position_bias(
    query: torch.Tensor,
    key: torch.Tensor,
    query_table: torch.Tensor,
    key_table: torch.Tensor,
    buckets: torch.Tensor,
) -> torch.Tensor:
    """Return the position part of the scores before scaling, [B, n, Tq, Tk]: q_i.K[b(i, j)] + k_j.Q[b(i, j)]."""
    rows, columns = flat_indices(buckets, key_table.size(1))
    content_to_position = (query @ key_table.mT).flatten(0, 1)
    position_to_content = (key @ query_table.mT).flatten(0, 1)
    bias = _spread(content_to_position, rows) + _spread(position_to_content, columns)
    return bias.view(*query.shape[:3], key.size(2))


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    query_table: torch.Tensor,
    key_table: torch.Tensor,
    buckets: torch.Tensor,
    visible: Visible,
    dropout: float = 0.0,
    implementation: str = "sdpa",
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return weighted values, and the attention weights where the implementation has them.

    Args:
        query: [B, n, Tq, d].
        key, value: [B, n, Tk, d].
        query_table, key_table: [n, R, d], the projected relative positions (Q and K above).
        buckets: [Tq, Tk] int64, from `position_buckets`.
        visible: from the function of this name. A query that may attend to nothing gets zeros.
        dropout: probability of dropping an attention weight.
        implementation: "sdpa" (PyTorch's fused kernels) or "plain" (the formula; also returns the weights, and has a
            gradient of its gradient).

    Returns:
        values [B, n, Tq, d]; weights [B, n, Tq, Tk] from "plain", else None.
    """
    scale = 1.0 / math.sqrt(3 * query.size(-1))
    bias = _position_bias(query, key, query_table, key_table, buckets) * scale + visible.penalty
    if implementation == "sdpa":
        bias = bias.to(query.dtype)
        return F.scaled_dot_product_attention(query, key, value, bias, dropout, scale=scale) * visible.alive, None
    weights = ((query @ key.mT * scale + bias).softmax(-1) * visible.alive).to(value.dtype)
    return F.dropout(weights, dropout) @ value, weights
