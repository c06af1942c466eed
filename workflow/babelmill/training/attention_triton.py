"""Compute GPT-BERT's attention on GPUs with Triton kernels: scores, positions, mask, softmax and dropout in one pass.

The kernels compute the same as `dropout.KeyedAttention`, which drops weights by row. They never make a [B, n, T, T]
tensor; even the mask is only [B, 1, T, T], since all heads share it. They work on tiles of some queries and some keys:

* The position part of a score is looked up (`tl.gather`) in the products of the tile's queries and keys with the 63
  rows of the tables. Ordinary matrix products compute these products beforehand.
* The gradient of the position part is a sum over equal distances. Each tile of the scores' gradient is skewed, so that
  all elements of a column have the same distance. Then it is multiplied by the one-hot matrix of the distances'
  buckets. So there are no atomic additions, and every run computes the same numbers.
* The softmax is computed tile by tile (Dao et al., 2022, arXiv:2205.14135), and again in the backward pass.
* The hash of `dropout.py` decides which attention weights are kept; it gives the same integers here.

The kernels have not run on a GPU yet: tests run them in Triton's interpreter and compile them for sm_80 and sm_90.
"""

# pyright: reportMissingParameterType=false, reportArgumentType=false, reportIndexIssue=false, reportCallIssue=false
# pyright: reportAttributeAccessIssue=false, reportOperatorIssue=false
# (a type checker does not know what Triton makes of a function)

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch.nn import functional as F

from babelmill.model.attention import Visible
from babelmill.training.dropout import KeyedAttention, draw
from babelmill.training.dropout_triton import kept

# Queries (and keys) per tile, and warps per program. They were chosen by the registers that the compiler spills for
# sm_90: with tiles of 64 the backward pass would spill 600 bytes per thread; with these it spills 144, and the forward
# pass none.
FORWARD, BACKWARD = (64, 8), (32, 4)


@triton.jit
def _dot(a, b):
    """Return the matrix product. In float32, nothing is rounded to tf32, which most AMD GPUs do not support."""
    return tl.dot(a, b, input_precision="ieee")


@triton.jit
def _scores(q, k, content, position, lut, mask, b, i, j, T, scale):
    """Return the scores of a tile, [B, B] float32; -inf beyond the last key."""
    inside = (i[:, None] < T) & (j[None, :] < T)
    bucket = tl.load(lut + i[:, None] - j[None, :] + T - 1, mask=inside, other=0)
    bias = tl.gather(content, bucket, 1) + tl.gather(position, bucket, 0)
    penalty = tl.load(mask + (b * T + i[:, None]) * T + j[None, :], mask=inside, other=0.0).to(tl.float32)
    products = _dot(q, tl.trans(k))
    return tl.where(j[None, :] < T, (products + bias) * scale + penalty, float("-inf"))


@triton.jit
def _kept(key, h, i, j, T, dropped):
    """Return which weights of a tile are kept, as `dropout.keep` does for the elements [n, T, T] of a row."""
    return kept(key, (h * T + i[:, None]) * T + j[None, :], dropped)


@triton.jit
def _states(X, b, h, i, sb, sh, st, T, D: tl.constexpr):
    """Return positions i of one head of one row of a [B, n, T, D] tensor with these strides; zeros beyond the last."""
    d = tl.arange(0, D)
    return tl.load(X + b * sb + h * sh + i[:, None] * st + d[None, :], mask=i[:, None] < T, other=0.0)


@triton.jit
def _store(X, x, b, h, i, sb, sh, st, T, D: tl.constexpr):
    """Write what `_states` reads."""
    d = tl.arange(0, D)
    place = X + b * sb + h * sh + i[:, None] * st + d[None, :]
    tl.store(place, x.to(X.dtype.element_ty), mask=i[:, None] < T)


@triton.jit
def _products(X, hb, i, r, T, R: tl.constexpr):
    """Return products [n, B, T, R] of one head of one row at positions i with the rows r of a table, in float32."""
    return tl.load(X + (hb * T + i) * R + r, mask=i < T, other=0.0).to(tl.float32)


@triton.jit
def _forward(
    Q, K, V, CONTENT, POSITION, LUT, MASK, KEYS, OUT, LSE, sqb, sqh, sqt, skb, skh, skt, svb, svh, svt, sob, soh, sot,
    heads, T, scale, dropped, factor, DROPS: tl.constexpr, B: tl.constexpr, D: tl.constexpr, R: tl.constexpr,
):  # fmt: skip
    """Compute the values of B queries of one head of one row, and the logarithm of their softmax's denominator."""
    bh = tl.program_id(1)
    b, h = bh // heads, bh % heads
    hb = h * (tl.num_programs(1) // heads) + b
    i = tl.program_id(0) * B + tl.arange(0, B)
    n, r = tl.arange(0, B), tl.arange(0, R)
    q = _states(Q, b, h, i, sqb, sqh, sqt, T, D)
    content = _products(CONTENT, hb, i[:, None], r[None, :], T, R)
    key = tl.load(KEYS + b).to(tl.uint32, bitcast=True)
    high, total, out = tl.full([B], float("-inf"), tl.float32), tl.zeros([B], tl.float32), tl.zeros([B, D], tl.float32)
    for start in range(0, T, B):
        j = start + n
        k = _states(K, b, h, j, skb, skh, skt, T, D)
        v = _states(V, b, h, j, svb, svh, svt, T, D)
        position = _products(POSITION, hb, j[None, :], r[:, None], T, R)
        s = _scores(q, k, content, position, LUT, MASK, b, i, j, T, scale)
        highest = tl.maximum(high, tl.max(s, 1))
        p, shrink = tl.exp(s - highest[:, None]), tl.exp(high - highest)
        total, high = total * shrink + tl.sum(p, 1), highest
        if DROPS:
            p = tl.where(_kept(key, h, i, j, T, dropped), p * factor, 0.0)
        out = out * shrink[:, None] + _dot(p.to(v.dtype), v)
    out = out / total[:, None]
    _store(OUT, out, b, h, i, sob, soh, sot, T, D)
    tl.store(LSE + bh * T + i, high + tl.log(total), mask=i < T)


@triton.jit
def _by_bucket(
    gradient, lut, first, T, OF_QUERIES: tl.constexpr, B: tl.constexpr, R: tl.constexpr, dtype: tl.constexpr
):
    """Return, for each row of a tile, the sum of its elements in each bucket, [B, R].

    Column c of row a has the distance first + a - c if rows are queries, and first + c - a if rows are keys.
    """
    a, u, r = tl.arange(0, B), tl.arange(0, 2 * B), tl.arange(0, R)
    column = a[:, None] - u[None, :] + (B - 1) if OF_QUERIES else a[:, None] + u[None, :] - (B - 1)
    inside = (column >= 0) & (column < B)
    skewed = tl.where(inside, tl.gather(gradient, tl.where(inside, column, 0), 1), 0.0)
    distance = first + u - (B - 1)
    bucket = tl.load(lut + distance + T - 1, mask=(distance > -T) & (distance < T), other=-1)
    return _dot(skewed.to(dtype), (bucket[:, None] == r[None, :]).to(dtype))


@triton.jit
def _tile_gradient(
    q, k, v, do, content, position, lse, delta, lut, mask, key, b, h, i, j, T, scale, dropped, factor,
    DROPS: tl.constexpr,
):  # fmt: skip
    """Return the weights of a tile after dropout, and the gradient of its scores before scaling: [B, B] each."""
    s = _scores(q, k, content, position, lut, mask, b, i, j, T, scale)
    p = tl.where(i[:, None] < T, tl.exp(s - lse[:, None]), 0.0)
    dp, dropped_p = _dot(do, tl.trans(v)), p
    if DROPS:
        kept = _kept(key, h, i, j, T, dropped)
        dp, dropped_p = tl.where(kept, dp * factor, 0.0), tl.where(kept, p * factor, 0.0)
    return dropped_p, p * (dp - delta[:, None]) * scale


@triton.jit
def _backward_of_queries(
    Q, K, V, CONTENT, POSITION, TABLE, LUT, MASK, KEYS, DO, LSE, OUT, DELTA, DQ, DCONTENT,
    sqb, sqh, sqt, skb, skh, skt, svb, svh, svt, sob, soh, sot, sgb, sgh, sgt,
    heads, T, scale, dropped, factor, DROPS: tl.constexpr, B: tl.constexpr, D: tl.constexpr, R: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of B queries, and of their products with the table of keys; and DELTA for these queries."""
    bh = tl.program_id(1)
    b, h = bh // heads, bh % heads
    hb = h * (tl.num_programs(1) // heads) + b
    begin = tl.program_id(0) * B
    n, r = tl.arange(0, B), tl.arange(0, R)
    i = begin + n
    q = _states(Q, b, h, i, sqb, sqh, sqt, T, D)
    do = _states(DO, b, h, i, sob, soh, sot, T, D)
    content = _products(CONTENT, hb, i[:, None], r[None, :], T, R)
    lse = tl.load(LSE + bh * T + i, mask=i < T, other=0.0)
    delta = tl.sum(do.to(tl.float32) * _states(OUT, b, h, i, sgb, sgh, sgt, T, D).to(tl.float32), 1)
    tl.store(DELTA + bh * T + i, delta, mask=i < T)
    key = tl.load(KEYS + b).to(tl.uint32, bitcast=True)
    dq, dcontent = tl.zeros([B, D], tl.float32), tl.zeros([B, R], tl.float32)
    for start in range(0, T, B):
        j = start + n
        k = _states(K, b, h, j, skb, skh, skt, T, D)
        v = _states(V, b, h, j, svb, svh, svt, T, D)
        position = _products(POSITION, hb, j[None, :], r[:, None], T, R)
        _, ds = _tile_gradient(
            q, k, v, do, content, position, lse, delta, LUT, MASK, key, b, h, i, j, T, scale, dropped, factor, DROPS
        )
        dq += _dot(ds.to(k.dtype), k)
        dcontent += _by_bucket(ds, LUT, begin - start, T, True, B, R, k.dtype)
    dq += _dot(dcontent.to(q.dtype), _states(TABLE, 0, h, r, 0, R * D, D, R, D))
    _store(DQ, dq, b, h, i, sgb, sgh, sgt, T, D)
    _store(DCONTENT, dcontent, 0, hb, i, 0, T * R, R, T, R)


@triton.jit
def _backward_of_keys(
    Q, K, V, CONTENT, POSITION, TABLE, LUT, MASK, KEYS, DO, LSE, DELTA, DK, DV, DPOSITION,
    sqb, sqh, sqt, skb, skh, skt, svb, svh, svt, sob, soh, sot, sgb, sgh, sgt,
    heads, T, scale, dropped, factor, DROPS: tl.constexpr, B: tl.constexpr, D: tl.constexpr, R: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of B keys and values, and of the keys' products with the table of queries."""
    bh = tl.program_id(1)
    b, h = bh // heads, bh % heads
    hb = h * (tl.num_programs(1) // heads) + b
    begin = tl.program_id(0) * B
    n, r = tl.arange(0, B), tl.arange(0, R)
    j = begin + n
    k = _states(K, b, h, j, skb, skh, skt, T, D)
    v = _states(V, b, h, j, svb, svh, svt, T, D)
    position = _products(POSITION, hb, j[None, :], r[:, None], T, R)
    key = tl.load(KEYS + b).to(tl.uint32, bitcast=True)
    dk, dv, dposition = tl.zeros([B, D], tl.float32), tl.zeros([B, D], tl.float32), tl.zeros([B, R], tl.float32)
    for start in range(0, T, B):
        i = start + n
        q = _states(Q, b, h, i, sqb, sqh, sqt, T, D)
        do = _states(DO, b, h, i, sob, soh, sot, T, D)
        content = _products(CONTENT, hb, i[:, None], r[None, :], T, R)
        lse = tl.load(LSE + bh * T + i, mask=i < T, other=0.0)
        delta = tl.load(DELTA + bh * T + i, mask=i < T, other=0.0)
        p, ds = _tile_gradient(
            q, k, v, do, content, position, lse, delta, LUT, MASK, key, b, h, i, j, T, scale, dropped, factor, DROPS
        )
        dv += _dot(tl.trans(p).to(do.dtype), do)
        turned = tl.trans(ds)
        dk += _dot(turned.to(q.dtype), q)
        dposition += _by_bucket(turned, LUT, start - begin, T, False, B, R, q.dtype)
    dk += _dot(dposition.to(k.dtype), _states(TABLE, 0, h, r, 0, R * D, D, R, D))
    _store(DK, dk, b, h, j, sgb, sgh, sgt, T, D)
    _store(DV, dv, b, h, j, sgb, sgh, sgt, T, D)
    _store(DPOSITION, dposition, 0, hb, j, 0, T * R, R, T, R)


def _strides(x: torch.Tensor) -> tuple[int, int, int]:
    """Return the strides of the first three dimensions of a [B, n, T, d] tensor; the last stride must be 1."""
    first, second, third, last = x.stride()
    assert last == 1, "the numbers of a head must be next to each other in memory"
    return first, second, third


def _like(x: torch.Tensor) -> torch.Tensor:
    """Return an empty tensor of x's shape [B, n, T, d], stored as [B, T, n, d], which linear layers need."""
    return x.new_empty(x.size(0), x.size(2), x.size(1), x.size(3)).transpose(1, 2)


def _with_table(states: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    """Return the products of states [B, n, T, d] with a table [n, R, d], [n, B, T, R].

    They are one long product per head. (The gradient of the table, a sum over all rows and positions, is one, too.)
    """
    rows, _, length, _ = states.shape
    return torch.bmm(states.transpose(0, 1).flatten(1, 2), table.mT).unflatten(1, (rows, length))


def _launch(
    kernel: Any, tile: tuple[int, int], q: torch.Tensor, tensors: tuple[Any, ...], strides: list[int], dropout: float
) -> None:
    """Run a kernel for all heads of all rows. It drops the same share of weights as `dropout.keep`."""
    block, warps = tile
    rows, heads, length, width = q.shape
    grid = triton.cdiv(length, block), rows * heads
    numbers = heads, length, 1 / math.sqrt(3 * width), round(dropout * 2**16), 1 / (1 - dropout)
    constants = {"DROPS": dropout > 0, "B": block, "D": width, "R": tensors[3].size(3), "num_warps": warps}
    kernel[grid](*tensors, *strides, *numbers, **constants)


@torch.library.custom_op("babelmill::attention", mutates_args=())
def _attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    content: torch.Tensor,
    position: torch.Tensor,
    key_table: torch.Tensor,
    query_table: torch.Tensor,
    lut: torch.Tensor,
    mask: torch.Tensor,
    keys: torch.Tensor,
    dropout: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return values [B, n, T, d], and the logarithm of each softmax's denominator [B, n, T] float32.

    Args:
        q, k, v: [B, n, T, d].
        content, position: [n, B, T, R], q times the table of keys, and k times the table of queries.
        key_table, query_table: [n, R, d]. The backward pass needs them: the gradients of q and k include what they get
            through `content` and `position`.
        lut: [2T - 1] int32, the row of the tables for each distance -(T - 1) .. T - 1.
        mask: [B, 1, T, T], added to the scores.
        keys: [B] int32, the rows' dropout keys for this place in the model.
        dropout: probability of dropping a weight.
    """
    out, lse = _like(q), q.new_empty(q.shape[:3], dtype=torch.float32)
    strides = [*_strides(q), *_strides(k), *_strides(v), *_strides(out)]
    tensors = (q, k, v, content, position, lut, mask, keys, out, lse)
    _launch(_forward, FORWARD, q, tensors, strides, dropout)
    return out, lse


@_attention.register_fake
def _(q, k, v, content, position, key_table, query_table, lut, mask, keys, dropout):
    return _like(q), q.new_empty(q.shape[:3], dtype=torch.float32)


@torch.library.custom_op("babelmill::attention_backward", mutates_args=())
def _attention_backward(
    do: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    content: torch.Tensor,
    position: torch.Tensor,
    key_table: torch.Tensor,
    query_table: torch.Tensor,
    lut: torch.Tensor,
    mask: torch.Tensor,
    keys: torch.Tensor,
    dropout: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the gradients of q, k, v, content and position.

    Args:
        do: gradient of the values.
        out, lse: the results of `_attention`.
        others: see `_attention`.
    """
    dq, dk, dv = _like(q), _like(k), _like(v)
    dcontent, dposition = torch.empty_like(content), torch.empty_like(position)
    delta = torch.empty_like(lse)  # the sums over d of the values times their gradients
    out = out.transpose(1, 2).contiguous().transpose(1, 2)  # stored as dq is, also if a compiler stored it otherwise
    strides = [*_strides(q), *_strides(k), *_strides(v), *_strides(do), *_strides(dq)]
    given, more = (q, k, v, content, position), (lut, mask, keys, do, lse)
    _launch(_backward_of_queries, BACKWARD, q, (*given, key_table, *more, out, delta, dq, dcontent), strides, dropout)
    _launch(_backward_of_keys, BACKWARD, q, (*given, query_table, *more, delta, dk, dv, dposition), strides, dropout)
    return dq, dk, dv, dcontent, dposition


@_attention_backward.register_fake
def _(do, out, lse, q, k, v, content, position, key_table, query_table, lut, mask, keys, dropout):
    return _like(q), _like(k), _like(v), torch.empty_like(content), torch.empty_like(position)


def _keep_for_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, torch.Tensor]) -> None:
    *tensors, ctx.dropout = inputs
    ctx.save_for_backward(*tensors, *output)


def _gradients(ctx: Any, do: torch.Tensor, _lse: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    *given, out, lse = ctx.saved_tensors
    do = do if do.stride(3) == 1 else do.contiguous()
    return *_attention_backward(do, out, lse, *given, ctx.dropout), None, None, None, None, None, None


_attention.register_autograd(_gradients, setup_context=_keep_for_backward)


class TritonAttention(KeyedAttention):
    """Computes attention with the kernels of this file. For `place` and `keys`, see `KeyedAttention`."""

    def compute(self, tensors: tuple[torch.Tensor, ...], visible: Visible, dropout: float) -> torch.Tensor:
        """Do what `KeyedAttention.compute` does."""
        query, key, value, query_table, key_table, buckets = tensors
        rows = max(16, triton.next_power_of_2(key_table.size(1)))
        tables = [F.pad(table, (0, 0, 0, rows - table.size(1))) for table in (key_table, query_table)]
        content, position = _with_table(query.detach(), tables[0]), _with_table(key.detach(), tables[1])
        lut = torch.cat([buckets[0].flip(0), buckets[1:, 0]]).to(torch.int32)
        keys, mask = draw(self._keys.rows, self._place), visible.penalty.contiguous()
        fixed = [table.detach().contiguous() for table in tables]
        values, _ = _attention(query, key, value, content, position, *fixed, lut, mask, keys, dropout)
        return values * visible.alive
