"""Compute attention with relative positions (DeBERTa's disentangled scores): one function, several implementations.

The score of query i and key j is (q_i.k_j + q_i.K[b] + k_j.Q[b]) / sqrt(3 d), where b is the bucket of the distance
i - j, and K and Q are tables of 63 rows. The code first multiplies queries and keys with the 63 rows, and then copies
the products to their places among the T x T scores. So there is never a [T, T, hidden] tensor. At T = 512 this takes
an eighth of the arithmetic of the published implementation.

This file is shipped inside exported models: it imports nothing but torch and the standard library.
"""

import math
from functools import lru_cache
from typing import NamedTuple

import torch
from torch.nn import functional as F


def _log_bucket(distance: int, bucket_size: int, max_position: int) -> int:
    """Return the bucket of a distance > 0 (DeBERTa; LTG-BERT).

    Each distance up to bucket_size / 2 has a bucket of its own. Larger distances share buckets on a logarithmic scale.
    """
    middle = bucket_size // 2
    if distance <= middle:
        return distance
    return math.ceil(math.log(distance / middle) / math.log((max_position - 1) / middle) * (middle - 1)) + middle


@lru_cache
def _bucket_starts(bucket_size: int, max_position: int) -> list[int]:
    """Return the first distance of each bucket 1, 2, ... The bucket of a distance is the number of starts up to it."""
    buckets = [_log_bucket(distance, bucket_size, max_position) for distance in range(1, max_position)]
    return [i + 1 for i, bucket in enumerate(buckets) for _ in range(bucket - (buckets[i - 1] if i else 0))]


def position_buckets(
    queries: int, keys: int, bucket_size: int, max_position: int, device: torch.device | str = "cpu"
) -> torch.Tensor:
    """Return which row of the position tables each query and key need, [queries, keys] int64.

    The queries are the last `queries` of the `keys` positions: if there are fewer queries than keys, the first keys of
    the sequence are cached. Rows are 0..2 bucket_size - 2, and the middle row is for distance 0. Distances of
    `max_position` and more count as `max_position - 1`. The function only compares integers on the device. So nothing
    waits for the host, and all devices give the same buckets (a logarithm may be rounded differently).
    """
    distance = torch.arange(1 - queries, keys, device=device)
    bucket = torch.zeros_like(distance)
    for start in _bucket_starts(bucket_size, max_position):
        bucket += distance.abs() >= start
    rows = bucket_size - 1 + bucket * distance.sign()
    query, key = torch.arange(queries, device=device), torch.arange(keys, device=device)
    return rows[keys - 1 + query[:, None] - key[None, :]]


class Visible(NamedTuple):
    """Says who may attend to whom, in the form that `attention` uses.

    penalty: added to the scores, [B or 1, n or 1, Tq, Tk]: 0 where the query may attend to the key, a large negative
        number where not (finite, since a row of infinities has no softmax).
    alive: [B or 1, n or 1, Tq, 1]: 0 for a query that may attend to nothing, else 1.
    """

    penalty: torch.Tensor
    alive: torch.Tensor


def visible(allowed: torch.Tensor, dtype: torch.dtype) -> Visible:
    """Convert `allowed` to the form that `attention` uses.

    `allowed` is bool: True where the query (dimension 2) may attend to the key (dimension 3).
    """
    penalty = torch.zeros((), dtype=dtype, device=allowed.device).masked_fill(~allowed, torch.finfo(dtype).min / 2)
    return Visible(penalty, allowed.any(-1, keepdim=True).to(dtype))


def compute_dtype(x: torch.Tensor) -> torch.dtype:
    """Return the type in which matrix products of `x` are computed: the type of autocast if it is on."""
    device = x.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype


def flat_indices(buckets: torch.Tensor, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return two flat indices [Tq * Tk]: where each score finds its part in products [Tq, size] and [Tk, size]."""
    queries, keys = (torch.arange(length, device=buckets.device) * size for length in buckets.shape)
    return (queries[:, None] + buckets).flatten(), (keys[None, :] + buckets).flatten()


def _spread(products: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Return the products [B, n, T, R] at a flat index [M], as [B n, M].

    The result is float32 or wider, since the gradient sums many numbers.
    """
    products = products.flatten(0, 1).to(torch.promote_types(products.dtype, torch.float32)).flatten(1)
    return products.gather(1, index.expand(products.size(0), -1))  # len() would fix a dynamic size


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
    """Return the weighted values, and the attention weights if the implementation gives them.

    Args:
        query: [B, n, Tq, d].
        key, value: [B, n, Tk, d].
        query_table, key_table: [n, R, d], the projected relative positions (Q and K above).
        buckets: [Tq, Tk] int64, from `position_buckets`.
        visible: from the function of this name. A query that may attend to nothing gets zeros.
        dropout: probability of dropping an attention weight.
        implementation: "sdpa" (PyTorch's fused kernels) or "plain" (the formula itself, which also returns the weights
            and supports second derivatives).

    Returns:
        The values [B, n, Tq, d], and the weights [B, n, Tq, Tk] ("plain") or None ("sdpa").
    """
    scale = 1.0 / math.sqrt(3 * query.size(-1))
    rows, columns = flat_indices(buckets, key_table.size(1))
    bias = _spread(query @ key_table.mT, rows) + _spread(key @ query_table.mT, columns)
    bias = bias.view(*query.shape[:3], key.size(2)) * scale + visible.penalty
    if implementation == "sdpa":
        bias = bias.to(query.dtype)
        return F.scaled_dot_product_attention(query, key, value, bias, dropout, scale=scale) * visible.alive, None
    weights = ((query @ key.mT * scale + bias).softmax(-1) * visible.alive).to(value.dtype)
    return F.dropout(weights, dropout) @ value, weights
