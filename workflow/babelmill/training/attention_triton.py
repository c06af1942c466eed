"""Compute GPT-BERT's attention on GPUs with Triton kernels: scores, positions, mask, softmax and dropout in one pass.

The kernels compute the same as `dropout.KeyedAttention`, which drops weights by row. They read queries, keys and values
where one matrix product has left them, in a tensor [B, T, W], and write their gradients into one such tensor; so
nothing is copied. They never make a [B, n, T, T] tensor; even the mask is only [B, 1, T, T], since all heads share it.
They work on tiles of some queries and some keys:

* The position part of a score is looked up (`tl.gather`) in the products of the tile's queries and keys with the 63
  rows of the tables. A kernel computes those of its own queries or keys; it reads those of the others.
* The gradient of the position part is a sum over equal distances. Each tile of the scores' gradient is skewed, so that
  all elements of a column have the same distance. Then it is multiplied by the one-hot matrix of the distances'
  buckets. So there are no atomic additions, and every run computes the same numbers.
* The softmax is computed tile by tile (Dao et al., 2022, arXiv:2205.14135), and again in the backward pass.
* The hash of `dropout.py` decides which attention weights are kept; it gives the same integers here.
* Each tile also sums the gradients of its queries, keys or values, for the gradient of the bias that was added to them.

The kernels have not run on a GPU yet: tests run them in Triton's interpreter and compile them for sm_80 and sm_90.
"""

# pyright: reportMissingParameterType=false, reportArgumentType=false, reportIndexIssue=false, reportCallIssue=false
# pyright: reportAttributeAccessIssue=false, reportOperatorIssue=false, reportGeneralTypeIssues=false
# (a type checker does not know what Triton makes of a function)

import math
from typing import Any

import torch
import triton
import triton.language as tl

from babelmill.training.dropout_triton import kept
from babelmill.training.tables_triton import gradient as gradient_of_tables
from babelmill.training.tiles_triton import dot, load, store, warps

# Queries (and keys) per tile, forwards and backwards. They, and `tiles_triton.WARPS`, were chosen so that the compiler
# spills no registers for heads of 64 numbers: for sm_90, it would with 4 warps, or with tiles of 64 backwards. (Triton
# 3.6 and 3.7; `benchmarks/gpu.py` tries others.)
FORWARD, BACKWARD = 64, 32


@triton.jit
def _place(number, heads, T, B: tl.constexpr):
    """Return a program's tile, row of the batch and head. (A grid's second dimension would be too short for them.)"""
    tiles = tl.cdiv(T, B)
    return number % tiles, number // tiles // heads, number // tiles % heads


@triton.jit
def _scores(q, k, content, position, lut, mask, b, i, j, T, scale):
    """Return the scores of a tile, [B, B] float32; -inf beyond the last key."""
    inside = (i[:, None] < T) & (j[None, :] < T)
    bucket = tl.load(lut + i[:, None] - j[None, :] + T - 1, mask=inside, other=0)
    bias = tl.gather(content, bucket, 1) + tl.gather(position, bucket, 0)
    mask += b.to(tl.int64) * T * T
    penalty = tl.load(mask + i[:, None] * T + j[None, :], mask=inside, other=0.0).to(tl.float32)
    products = dot(q, tl.trans(k))
    return tl.where(j[None, :] < T, (products + bias) * scale + penalty, float("-inf"))


@triton.jit
def _kept(KEYS, b, h, i, j, T, dropped):
    """Return which weights of a tile are kept, as `dropout.keep` does for the elements [n, T, T] of a row."""
    key = tl.load(KEYS + b).to(tl.uint32, bitcast=True)
    return kept(key, (h * T + i[:, None]) * T + j[None, :], dropped)


@triton.jit
def _table(TABLES, number: tl.constexpr, h, heads, D: tl.constexpr, R: tl.constexpr):
    """Return a head's table of queries (number 0) or of keys (1), [R, D]; TABLES is [2, n, R, D]."""
    return load(TABLES, (number * heads + h) * R * D, tl.arange(0, R), D, R, D)


@triton.jit
def _store_sum(SUMS, x, number: tl.constexpr, b, h, tile, T, heads, B: tl.constexpr, D: tl.constexpr):
    """Write the sum over a tile's rows x [B, D] into SUMS [rows of the batch times tiles, 3, n, D]."""
    tile += b * tl.cdiv(T, B)
    tl.store(SUMS + ((tile * 3 + number) * heads + h) * D + tl.arange(0, D), tl.sum(x, 0))


@triton.jit
def _products(X, hb, i, r, T, R: tl.constexpr):
    """Return products [n, B T, R] of one head of one row at positions i with the rows r of a table, in float32."""
    return tl.load(X + (hb * T + i) * R + r, mask=i < T, other=0.0).to(tl.float32)


@triton.jit(do_not_specialize=["rows"])
def _forward(
    Q, K, V, POSITION, TABLES, LUT, MASK, KEYS, CONTENT, OUT, LSE, rows,
    width, heads, T, scale, dropped, factor, DROPS: tl.constexpr, B: tl.constexpr, D: tl.constexpr, R: tl.constexpr,
):  # fmt: skip
    """Compute the values of B queries of one head of one row, and the logarithm of their softmax's denominator.

    The queries' products with the table of keys are computed here, too, and written for the backward pass.
    """
    tile, b, h = _place(tl.program_id(0), heads, T, B)
    bh, hb, begin = b * heads + h, (h * rows + b).to(tl.int64), (b * T).to(tl.int64) * width + h * D
    i = tile * B + tl.arange(0, B)
    n, r = tl.arange(0, B), tl.arange(0, R)
    q = load(Q, begin, i, width, T, D)
    content = dot(q, tl.trans(_table(TABLES, 1, h, heads, D, R))).to(CONTENT.dtype.element_ty)
    store(CONTENT, content, hb * T * R, i, R, T, R)
    content = content.to(tl.float32)
    high, total, out = tl.full([B], float("-inf"), tl.float32), tl.zeros([B], tl.float32), tl.zeros([B, D], tl.float32)
    for start in range(0, T, B):
        j = start + n
        k, v = load(K, begin, j, width, T, D), load(V, begin, j, width, T, D)
        position = _products(POSITION, hb, j[None, :], r[:, None], T, R)
        s = _scores(q, k, content, position, LUT, MASK, b, i, j, T, scale)
        highest = tl.maximum(high, tl.max(s, 1))
        p, shrink = tl.exp(s - highest[:, None]), tl.exp(high - highest)
        total, high = total * shrink + tl.sum(p, 1), highest
        if DROPS:
            p = tl.where(_kept(KEYS, b, h, i, j, T, dropped), p * factor, 0.0)
        out = out * shrink[:, None] + dot(p.to(v.dtype), v)
    store(OUT, out / total[:, None], (b * T).to(tl.int64) * heads * D + h * D, i, heads * D, T, D)
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
    return dot(skewed.to(dtype), (bucket[:, None] == r[None, :]).to(dtype))


@triton.jit
def _tile_gradient(
    q, k, v, do, content, position, lse, delta, lut, mask, keys, b, h, i, j, T, scale, dropped, factor,
    DROPS: tl.constexpr,
):  # fmt: skip
    """Return the weights of a tile after dropout, and the gradient of its scores before scaling: [B, B] each."""
    s = _scores(q, k, content, position, lut, mask, b, i, j, T, scale)
    p = tl.where(i[:, None] < T, tl.exp(s - lse[:, None]), 0.0)
    dp, dropped_p = dot(do, tl.trans(v)), p
    if DROPS:
        kept = _kept(keys, b, h, i, j, T, dropped)
        dp, dropped_p = tl.where(kept, dp * factor, 0.0), tl.where(kept, p * factor, 0.0)
    return dropped_p, p * (dp - delta[:, None]) * scale


@triton.jit
def _backward_of_queries(
    Q, K, V, POSITION, TABLES, LUT, MASK, KEYS, DO, LSE, DELTA, DQ, DCONTENT, SUMS, b, h, tile, rows,
    width, heads, T, scale, dropped, factor, DROPS: tl.constexpr, B: tl.constexpr, D: tl.constexpr, R: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of B queries, and of their products with the table of keys."""
    bh, hb, begin = b * heads + h, (h * rows + b).to(tl.int64), (b * T).to(tl.int64) * width + h * D
    first = tile * B
    n, r = tl.arange(0, B), tl.arange(0, R)
    i = first + n
    q = load(Q, begin, i, width, T, D)
    do = load(DO, (b * T).to(tl.int64) * heads * D + h * D, i, heads * D, T, D)
    content = dot(q, tl.trans(_table(TABLES, 1, h, heads, D, R))).to(DCONTENT.dtype.element_ty).to(tl.float32)
    lse = tl.load(LSE + bh * T + i, mask=i < T, other=0.0)
    delta = tl.load(DELTA + bh * T + i, mask=i < T, other=0.0)
    dq, dcontent = tl.zeros([B, D], tl.float32), tl.zeros([B, R], tl.float32)
    for start in range(0, T, B):
        j = start + n
        k, v = load(K, begin, j, width, T, D), load(V, begin, j, width, T, D)
        position = _products(POSITION, hb, j[None, :], r[:, None], T, R)
        _, ds = _tile_gradient(
            q, k, v, do, content, position, lse, delta, LUT, MASK, KEYS, b, h, i, j, T, scale, dropped, factor, DROPS
        )
        dq += dot(ds.to(k.dtype), k)
        dcontent += _by_bucket(ds, LUT, first - start, T, True, B, R, k.dtype)
    dq += dot(dcontent.to(q.dtype), _table(TABLES, 1, h, heads, D, R))
    store(DQ, dq, begin, i, width, T, D)
    _store_sum(SUMS, dq, 0, b, h, tile, T, heads, B, D)
    store(DCONTENT, dcontent, hb * T * R, i, R, T, R)


@triton.jit
def _backward_of_keys(
    Q, K, V, CONTENT, TABLES, LUT, MASK, KEYS, DO, LSE, DELTA, DK, DV, DPOSITION, SUMS, b, h, tile, rows,
    width, heads, T, scale, dropped, factor, DROPS: tl.constexpr, B: tl.constexpr, D: tl.constexpr, R: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of B keys and values, and of the keys' products with the table of queries."""
    bh, hb, begin = b * heads + h, (h * rows + b).to(tl.int64), (b * T).to(tl.int64) * width + h * D
    first = tile * B
    n, r = tl.arange(0, B), tl.arange(0, R)
    j = first + n
    k, v = load(K, begin, j, width, T, D), load(V, begin, j, width, T, D)
    position = dot(_table(TABLES, 0, h, heads, D, R), tl.trans(k)).to(DPOSITION.dtype.element_ty).to(tl.float32)
    dk, dv, dposition = tl.zeros([B, D], tl.float32), tl.zeros([B, D], tl.float32), tl.zeros([B, R], tl.float32)
    for start in range(0, T, B):
        i = start + n
        q = load(Q, begin, i, width, T, D)
        do = load(DO, (b * T).to(tl.int64) * heads * D + h * D, i, heads * D, T, D)
        content = _products(CONTENT, hb, i[:, None], r[None, :], T, R)
        lse = tl.load(LSE + bh * T + i, mask=i < T, other=0.0)
        delta = tl.load(DELTA + bh * T + i, mask=i < T, other=0.0)
        p, ds = _tile_gradient(
            q, k, v, do, content, position, lse, delta, LUT, MASK, KEYS, b, h, i, j, T, scale, dropped, factor, DROPS
        )
        dv += dot(tl.trans(p).to(do.dtype), do)
        turned = tl.trans(ds)
        dk += dot(turned.to(q.dtype), q)
        dposition += _by_bucket(turned, LUT, start - first, T, False, B, R, q.dtype)
    dk += dot(dposition.to(k.dtype), _table(TABLES, 0, h, heads, D, R))
    store(DK, dk, begin, j, width, T, D)
    store(DV, dv, begin, j, width, T, D)
    _store_sum(SUMS, dk, 1, b, h, tile, T, heads, B, D)
    _store_sum(SUMS, dv, 2, b, h, tile, T, heads, B, D)
    store(DPOSITION, dposition, hb * T * R, j, R, T, R)


@triton.jit(do_not_specialize=["rows"])
def _backward(
    Q, K, V, CONTENT, POSITION, TABLES, LUT, MASK, KEYS, DO, LSE, DELTA, DQ, DK, DV, DCONTENT, DPOSITION, SUMS, rows,
    width, heads, T, scale, dropped, factor, DROPS: tl.constexpr, B: tl.constexpr, D: tl.constexpr, R: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of B queries, or of B keys and values.

    Both kinds of programs read the same tensors. They are started in turns, so that these are in the cache.
    """
    tile, b, h = _place(tl.program_id(0) // 2, heads, T, B)
    if tl.program_id(0) % 2 == 0:
        _backward_of_queries(
            Q, K, V, POSITION, TABLES, LUT, MASK, KEYS, DO, LSE, DELTA, DQ, DCONTENT, SUMS, b, h, tile, rows,
            width, heads, T, scale, dropped, factor, DROPS, B, D, R,
        )  # fmt: skip
    else:
        _backward_of_keys(
            Q, K, V, CONTENT, TABLES, LUT, MASK, KEYS, DO, LSE, DELTA, DK, DV, DPOSITION, SUMS, b, h, tile, rows,
            width, heads, T, scale, dropped, factor, DROPS, B, D, R,
        )  # fmt: skip


def _launch(
    kernel: Any,
    programs: int,
    tile: int,
    joint: torch.Tensor,
    tables: torch.Tensor,
    dropout: float,
    **tensors: torch.Tensor,
) -> None:
    """Run a kernel for all heads of all rows. It drops the same share of weights as `dropout.keep`.

    Args:
        kernel: one of those above.
        programs: its programs per tile.
        tile: `FORWARD` or `BACKWARD`.
        joint, tables, dropout: see `forward`.
        tensors: the kernel's other tensors.
    """
    (rows, length, width), (_, heads, buckets, size) = joint.shape, tables.shape
    numbers = {"rows": rows, "width": width, "heads": heads, "T": length, "scale": 1 / math.sqrt(3 * size)}
    numbers |= {"dropped": round(dropout * 2**16), "factor": 1 / (1 - dropout)}
    constants = {"DROPS": dropout > 0, "B": tile, "D": size, "R": buckets, "num_warps": warps()}
    grid = programs * triton.cdiv(length, tile) * rows * heads
    kernel[(grid,)](**_parts("", joint, tables), TABLES=tables, **tensors, **numbers, **constants)


def _parts(before: str, joint: torch.Tensor, tables: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return queries, keys and values (or their gradients), [B, T, H] each, which are parts of `joint` [B, T, W]."""
    assert joint.is_contiguous() and tables.is_contiguous()
    parts = joint.split(tables.size(1) * tables.size(3), -1)[:3]
    return {before + name: part for name, part in zip("QKV", parts, strict=True)}


def _by_head(states: torch.Tensor, heads: int) -> torch.Tensor:
    """Return states [B, T, H] as [n, B T, d]: one long matrix for each head."""
    return states.flatten(0, 1).unflatten(-1, (heads, -1)).transpose(0, 1)


def forward(
    joint: torch.Tensor,
    tables: torch.Tensor,
    lut: torch.Tensor,
    mask: torch.Tensor,
    keys: torch.Tensor,
    dropout: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return values, and what the backward pass needs.

    Args:
        joint: [B, T, W], whose first 3 H columns are queries, keys and values.
        tables: [2, n, R, d], those of queries and of keys; R and d are powers of two from 16 on.
        lut: [2T - 1] int32, the row of the tables for each distance -(T - 1) .. T - 1.
        mask: [B, 1, T, T], added to the scores.
        keys: [B] int32, the rows' dropout keys for this place in the model.
        dropout: probability of dropping a weight.

    Returns:
        values [B, T, H]; queries times the table of keys, and keys times the table of queries, [n, B T, R]; the
        logarithm of each softmax's denominator, [B, n, T] float32.
    """
    (rows, length, _), heads = joint.shape, tables.size(1)
    keys_of_heads = _by_head(_parts("", joint, tables)["K"], heads)
    position = torch.bmm(keys_of_heads, tables[0].mT)
    content, values = torch.empty_like(position), joint.new_empty(rows, length, heads * tables.size(3))
    lse = joint.new_empty(rows, heads, length, dtype=torch.float32)
    tensors = {"POSITION": position, "CONTENT": content, "OUT": values, "LSE": lse}
    _launch(_forward, 1, FORWARD, joint, tables, dropout, LUT=lut, MASK=mask, KEYS=keys, **tensors)
    return values, content, position, lse


def backward(
    into: torch.Tensor,
    gradient: torch.Tensor,
    content: torch.Tensor,
    position: torch.Tensor,
    lse: torch.Tensor,
    delta: torch.Tensor,
    joint: torch.Tensor,
    tables: torch.Tensor,
    lut: torch.Tensor,
    mask: torch.Tensor,
    keys: torch.Tensor,
    dropout: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Write the gradients of queries, keys and values. Return that of the tables, and sums.

    Args:
        into: [B, T, W], for the gradients.
        gradient: [B, T, H], of the values.
        content, position, lse: see `forward`.
        delta: [B, n, T] float32, for each head the sum of the values times their gradients.
        others: see `forward`.

    Returns:
        the gradient of `tables`; the sum over all positions of what is written into `into`, [3 H] float32.
    """
    tiles, parts = triton.cdiv(joint.size(1), BACKWARD), _parts("", joint, tables)
    dcontent, dposition = torch.empty_like(content), torch.empty_like(position)
    sums = lse.new_empty(len(joint) * tiles, 3 * gradient.size(-1))
    tensors = {"CONTENT": content, "POSITION": position, "LUT": lut, "MASK": mask, "KEYS": keys}
    tensors |= {"DO": gradient, "LSE": lse, "DELTA": delta, **_parts("D", into, tables)}
    tensors |= {"DCONTENT": dcontent, "DPOSITION": dposition, "SUMS": sums}
    _launch(_backward, 2, BACKWARD, joint, tables, dropout, **tensors)
    return gradient_of_tables(parts["Q"], parts["K"], dcontent, dposition, tables), sums.sum(0)
