"""Compute GPT-BERT's attention on GPUs with Triton kernels: scores, positions, mask, softmax and dropout in one pass.

The kernels compute the same as `dropout.KeyedAttention`, which drops weights by row. They read queries, keys and values
where one matrix product has left them, in a tensor [B, T, W], and write their gradients into one such tensor; so
nothing is copied. They work on tiles of some queries and some keys, and leave out tiles in which no query sees a key:

* The position part of a score is looked up (`tl.gather`) in the products of the tile's queries and keys with the 63
  rows of the tables. To look up costs more than to add and multiply, so it is done for two numbers at once.
* The softmax is computed tile by tile (Dao et al., 2022, arXiv:2205.14135), and again in the backward pass.
* The hash of `dropout.py` decides which attention weights are kept; it gives the same integers here.
* Backwards, one kernel computes the gradient of each score once, and writes it twice: with rows of queries, and with
  rows of keys. A second kernel reads both. This is quicker than to compute the scores again for queries and for keys,
  as other codes do: our scores take four times the instructions of plain ones. It takes memory for one layer at a time:
  4 n T bytes per token.
* The gradient of the position part is a sum over equal distances. The second kernel reads the gradients of scores
  along their diagonals, so that all elements of a column have the same distance, and multiplies them by the one-hot
  matrix of the distances' buckets. So there are no atomic additions, and every run computes the same numbers.
* Rows whose length is a multiple of a tile have kernels of their own, without checks for the end of a row.
* Each tile also sums the gradients of its queries, keys or values, for the gradient of the bias that was added to them.

The kernels ran on an H200 (PyTorch 2.11, Triton 3.6): without them and those of `attention_block_triton.py`, a step
of the preset `base` takes 22 % longer (`benchmarks/README.md`, "On a GPU, measured"). Tests run them in Triton's
interpreter and build them for sm_80 and sm_90.
"""

# pyright: reportMissingParameterType=false, reportArgumentType=false, reportIndexIssue=false, reportCallIssue=false
# pyright: reportAttributeAccessIssue=false, reportOperatorIssue=false, reportGeneralTypeIssues=false
# (a type checker does not know what Triton makes of a function)

import math
from typing import Any

import torch
import triton
import triton.language as tl

from babelmill.training.kernels.dropout import TILE, tiles
from babelmill.training.kernels.shared_triton import WARPS, below, dot, kept, load, store

# A program computes TILE queries (or keys), and handles so many keys (or queries) at once. This was chosen by what the
# compiler makes of it for sm_90 (`benchmarks/gpu/instructions.py`). On an H200, an attention block took 3.38 ms,
# with 64 others 3.78, with 8 warps 3.32, and with 128 others and 8 warps 4.03 (`benchmarks/gpu.py`).
OTHERS = 32
OF_TABLES, POSITIONS = 64, 2048  # positions per tile, and per program, of the kernel for the gradients of tables


@triton.jit
def _place(number, heads, T, B: tl.constexpr):
    """Return a program's tile, row of the batch and head. (A grid's second dimension would be too short for them.)"""
    tiles = tl.cdiv(T, B)
    return number % tiles, number // tiles // heads, number // tiles % heads


@triton.jit
def _span(SPANS, b, of_keys: tl.constexpr, tile, T, B: tl.constexpr):
    """Return from where to where a tile of queries or keys sees or is seen, in tiles; see `dropout.spans_of_mask`."""
    span = SPANS + ((b * 2 + of_keys) * tl.cdiv(T, B) + tile) * 2
    return tl.load(span) // B * B, tl.cdiv(tl.load(span + 1), B) * B


@triton.jit
def _pairs(products):
    """Put pairs of bf16 numbers [B, R] into uint32 [B, R / 2]: to look up a pair costs as much as one number."""
    if products.dtype == tl.bfloat16:
        low, high = tl.split(tl.reshape(products, (products.shape[0], products.shape[1] // 2, 2)))
        low, high = low.to(tl.uint16, bitcast=True), high.to(tl.uint16, bitcast=True)
        products = low.to(tl.uint32) | (high.to(tl.uint32) << 16)
    return products


@triton.jit
def _products(X, hb, i, T, limit, R: tl.constexpr):
    """Return products [n, B T, R] of one head of one row at positions i with the rows of a table, as `_pairs` does.

    The result is [B, R or R / 2] for i [B, 1], and its transpose for i [1, B].
    """
    in_pairs: tl.constexpr = X.dtype.element_ty == tl.bfloat16
    count: tl.constexpr = R // 2 if in_pairs else R
    if in_pairs:
        X = X.to(tl.pointer_type(tl.uint32))
    r = tl.expand_dims(tl.arange(0, count), 1 if i.shape[0] == 1 else 0)
    return tl.load(X + (hb * T + i) * count + r, mask=below(i, limit), other=0)


@triton.jit
def _look_up(products, bucket, AXIS: tl.constexpr):
    """Return the products [B, R] of each row with its buckets [B, C], or the transpose (AXIS 0), in float32."""
    if products.dtype == tl.uint32:
        shift = (bucket & 1) * 16  # to the upper half, where float32 has the bits of bf16
        pair = tl.gather(products, bucket >> 1, AXIS)
        found = ((pair << (16 - shift)) & 0xFFFF0000).to(tl.float32, bitcast=True)
    else:
        found = tl.gather(products, bucket, AXIS)
    return found


@triton.jit
def _scores(q, k, content, position, lut, mask, b, i, j, T, limit, scale):
    """Return the scores of a tile, [queries, keys] float32; -inf beyond the last key."""
    inside = below(i[:, None], limit) & below(j[None, :], limit)
    bucket = tl.load(lut + i[:, None] - j[None, :] + T - 1, mask=inside, other=0)
    bias = _look_up(content, bucket, 1) + _look_up(position, bucket, 0)
    mask += b.to(tl.int64) * T * T
    penalty = tl.load(mask + i[:, None] * T + j[None, :], mask=inside, other=0.0).to(tl.float32)
    products = dot(q, tl.trans(k))
    return tl.where(below(j[None, :], limit), (products + bias) * scale + penalty, float("-inf"))


@triton.jit
def _kept(KEYS, b, h, i, j, T, dropped, EVEN: tl.constexpr):
    """Return which weights of a tile are kept, as `dropout.keep` does for the elements [n, T, T] of a row."""
    key = tl.load(KEYS + b).to(tl.uint32, bitcast=True)
    return kept(key, h * T + i[:, None], j[None, :], T, dropped, EVEN)


@triton.jit
def _exp(x):
    """Return e^x. (`tl.exp` needs two more instructions for results near 0, which do not matter here.)"""
    return tl.exp2(x * 1.4426950408889634)


@triton.jit
def _table(TABLES, number: tl.constexpr, h, heads, D: tl.constexpr, R: tl.constexpr):
    """Return a head's table of queries (number 0) or of keys (1), [R, D]; TABLES is [2, n, R, D]."""
    return load(TABLES, (number * heads + h) * R * D, tl.arange(0, R), D, R, D)


@triton.jit
def _store_sum(SUMS, x, number: tl.constexpr, b, h, tile, T, heads, B: tl.constexpr, D: tl.constexpr):
    """Write the sum over a tile's rows x [B, D] into SUMS [rows of the batch times tiles, 3, n, D]."""
    tile += b * tl.cdiv(T, B)
    tl.store(SUMS + ((tile * 3 + number) * heads + h) * D + tl.arange(0, D), tl.sum(x, 0))


@triton.jit(do_not_specialize=["rows"])
def _forward(
    JOINT, POSITION, TABLES, LUT, MASK, SPANS, KEYS, CONTENT, OUT, LSE, rows,
    width, heads, T, scale, dropped, factor, DROPS: tl.constexpr, EVEN: tl.constexpr,
    WHOLE: tl.constexpr, B: tl.constexpr, C: tl.constexpr, D: tl.constexpr, R: tl.constexpr,
):  # fmt: skip
    """Compute the values of B queries of one head of one row, and the logarithm of their softmax's denominator.

    The queries' products with the table of keys are computed here, too, and written for the backward pass.
    """
    tile, b, h = _place(tl.program_id(0), heads, T, B)
    bh, hb, begin = b * heads + h, (h * rows + b).to(tl.int64), (b * T).to(tl.int64) * width + h * D
    i, size, limit = tile * B + tl.arange(0, B), heads * D, None if WHOLE else T
    q = load(JOINT, begin, i, width, limit, D)
    content = dot(q, tl.trans(_table(TABLES, 1, h, heads, D, R))).to(CONTENT.dtype.element_ty)
    store(CONTENT, content, hb * T * R, i, R, limit, R)
    content = _pairs(content)
    high, total, out = tl.full([B], float("-inf"), tl.float32), tl.zeros([B], tl.float32), tl.zeros([B, D], tl.float32)
    first, end = _span(SPANS, b, 0, tile, T, B)
    for start in range(first, end, C):
        j = start + tl.arange(0, C)
        k, v = load(JOINT, begin + size, j, width, limit, D), load(JOINT, begin + 2 * size, j, width, limit, D)
        position = _products(POSITION, hb, j[None, :], T, limit, R)
        s = _scores(q, k, content, position, LUT, MASK, b, i, j, T, limit, scale)
        highest = tl.maximum(high, tl.max(s, 1))
        p, shrink = _exp(s - highest[:, None]), _exp(high - highest)
        total, high = total * shrink + tl.sum(p, 1), highest
        if DROPS:
            p = tl.where(_kept(KEYS, b, h, i, j, T, dropped, EVEN), p * factor, 0.0)
        out = out * shrink[:, None] + dot(p.to(v.dtype), v)
    total, high = tl.where(total > 0.0, total, 1.0), tl.where(total > 0.0, high, 0.0)  # in tiles of padding alone, 0
    store(OUT, out / total[:, None], (b * T).to(tl.int64) * size + h * D, i, size, limit, D)
    tl.store(LSE + bh * T + i, high + tl.log(total), mask=below(i, limit))


@triton.jit(do_not_specialize=["rows"])
def _gradient_of_scores(
    JOINT, CONTENT, POSITION, LUT, MASK, SPANS, KEYS, DO, LSE, DELTA, BY_QUERY, BY_KEY, INTO, SUMS, rows,
    width, heads, T, scale, dropped, factor, DROPS: tl.constexpr, EVEN: tl.constexpr,
    WHOLE: tl.constexpr, B: tl.constexpr, C: tl.constexpr, D: tl.constexpr, R: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of the scores of all queries with B keys of one head of one row, and of the B values.

    Those of the scores are written twice: with a row for each query, and with a row for each key.
    """
    tile, b, h = _place(tl.program_id(0), heads, T, B)
    bh, hb, begin = b * heads + h, (h * rows + b).to(tl.int64), (b * T).to(tl.int64) * width + h * D
    j, all_scores, size, limit = tile * B + tl.arange(0, B), bh.to(tl.int64) * T * T, heads * D, None if WHOLE else T
    k, v = load(JOINT, begin + size, j, width, limit, D), load(JOINT, begin + 2 * size, j, width, limit, D)
    position, dv = _products(POSITION, hb, j[None, :], T, limit, R), tl.zeros([B, D], tl.float32)
    first, end = _span(SPANS, b, 1, tile, T, B)
    for start in range(first, end, C):
        i = start + tl.arange(0, C)
        q = load(JOINT, begin, i, width, limit, D)
        do = load(DO, (b * T).to(tl.int64) * size + h * D, i, size, limit, D)
        content = _products(CONTENT, hb, i[:, None], T, limit, R)
        s = _scores(q, k, content, position, LUT, MASK, b, i, j, T, limit, scale)
        p = _exp(s - tl.load(LSE + bh * T + i, mask=below(i, limit), other=float("inf"))[:, None])
        dp, dropped_p = dot(do, tl.trans(v)), p
        if DROPS:
            kept = _kept(KEYS, b, h, i, j, T, dropped, EVEN)
            dp, dropped_p = tl.where(kept, dp * factor, 0.0), tl.where(kept, p * factor, 0.0)
        dv += dot(tl.trans(dropped_p.to(do.dtype)), do)
        ds = p * (dp - tl.load(DELTA + bh * T + i, mask=below(i, limit), other=0.0)[:, None]) * scale
        inside, ds = below(i[:, None], limit) & below(j[None, :], limit), ds.to(BY_QUERY.dtype.element_ty)
        tl.store(BY_QUERY + all_scores + i[:, None] * T + j[None, :], ds, mask=inside)
        tl.store(BY_KEY + all_scores + j[:, None] * T + i[None, :], tl.trans(ds), mask=tl.trans(inside))
    store(INTO, dv, begin + 2 * size, j, width, limit, D)
    _store_sum(SUMS, dv, 2, b, h, tile, T, heads, B, D)


@triton.jit
def _gradient_of_states(
    JOINT, GRADIENT, TABLES, ONE_HOT, SPANS, INTO, PRODUCTS, SUMS, b, h, tile, rows, width, heads, T,
    OF_KEYS: tl.constexpr, WHOLE: tl.constexpr, B: tl.constexpr, D: tl.constexpr, R: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of B queries (or keys), and of their products with the table of keys (or of queries).

    Args:
        GRADIENT: of the scores, with a row for each query (or key).
        INTO, PRODUCTS: what is computed.
    """
    hb, begin = (h * rows + b).to(tl.int64), (b * T).to(tl.int64) * width + h * D
    here, others = begin + OF_KEYS * heads * D, begin + (1 - OF_KEYS) * heads * D
    first, end = _span(SPANS, b, OF_KEYS, tile, T, B)
    end, n, limit = tl.minimum(end, T), tl.arange(0, B), None if WHOLE else T
    a, seen = tile * B + n, None if WHOLE else end
    row, exists = GRADIENT + (b * heads + h).to(tl.int64) * T * T + a * T, below(a, limit)
    result, products = tl.zeros([B, D], tl.float32), tl.zeros([B, R], tl.float32)
    for start in range(first, end, B):
        c = start + n
        gradient = tl.load(row[:, None] + c[None, :], mask=exists[:, None] & below(c[None, :], seen), other=0.0)
        result += dot(gradient, load(JOINT, others, c, width, limit, D))
    count = tl.where(exists, end - first, 0)[:, None]  # negative if nothing is seen, but then there is no loop
    for start in range(first - tile * B - B + 1, end - tile * B, B):
        c = (a + start - first)[:, None] + n[None, :]  # in a column of this tile, all scores have the same distance
        gradient = tl.load((row + a + start)[:, None] + n[None, :], mask=c.to(tl.uint32) < count, other=0.0)
        distance = start + n if OF_KEYS else -start - n
        products += dot(gradient, load(ONE_HOT, 0, distance + T - 1, R, 2 * T - 1, R))
    result += dot(products.to(TABLES.dtype.element_ty), _table(TABLES, 1 - OF_KEYS, h, heads, D, R))
    store(INTO, result, here, a, width, limit, D)
    _store_sum(SUMS, result, OF_KEYS, b, h, tile, T, heads, B, D)
    store(PRODUCTS, products, hb * T * R, a, R, limit, R)


@triton.jit(do_not_specialize=["rows"])
def _gradients_of_states(
    JOINT, TABLES, ONE_HOT, SPANS, BY_QUERY, BY_KEY, INTO, DCONTENT, DPOSITION, SUMS, rows, width, heads, T,
    WHOLE: tl.constexpr, B: tl.constexpr, D: tl.constexpr, R: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of B queries, or of B keys, from those of the scores."""
    tile, b, h = _place(tl.program_id(0) // 2, heads, T, B)
    if tl.program_id(0) % 2 == 0:
        _gradient_of_states(
            JOINT, BY_QUERY, TABLES, ONE_HOT, SPANS, INTO, DCONTENT, SUMS, b, h, tile, rows, width, heads, T,
            0, WHOLE, B, D, R,
        )  # fmt: skip
    else:
        _gradient_of_states(
            JOINT, BY_KEY, TABLES, ONE_HOT, SPANS, INTO, DPOSITION, SUMS, b, h, tile, rows, width, heads, T,
            1, WHOLE, B, D, R,
        )  # fmt: skip


@triton.jit(do_not_specialize=["positions"])
def _backward_of_tables(
    JOINT, DCONTENT, DPOSITION, PARTS, width, heads, positions,
    COUNT: tl.constexpr, B: tl.constexpr, D: tl.constexpr, R: tl.constexpr,
):  # fmt: skip
    """Compute the part of COUNT positions in the gradients of one head's tables: PARTS [parts, 2, n, R, D] float32.

    The gradient of a head's table is one matrix product over all positions of a forward pass: [R, B T] x [B T, d].
    Computed as such, it would keep few of a GPU's processors busy. So each program computes a part of the sum.
    """
    part, h = tl.program_id(0) // heads, tl.program_id(0) % heads
    r, products = tl.arange(0, R), h * positions.to(tl.int64) * R
    of_queries, of_keys = tl.zeros([R, D], tl.float32), tl.zeros([R, D], tl.float32)
    for start in range(0, COUNT, B):
        i = part.to(tl.int64) * COUNT + start + tl.arange(0, B)
        q, k = load(JOINT, h * D, i, width, positions, D), load(JOINT, (heads + h) * D, i, width, positions, D)
        of_queries += dot(tl.trans(load(DPOSITION, products, i, R, positions, R)), k)
        of_keys += dot(tl.trans(load(DCONTENT, products, i, R, positions, R)), q)
    place = part * 2 * heads + h
    store(PARTS, of_queries, place * R * D, r, D, R, D)
    store(PARTS, of_keys, (place + heads) * R * D, r, D, R, D)


def launch(kernel: Any, programs: int, tensors: dict[str, torch.Tensor], dropout: float) -> None:
    """Run a kernel for all heads of all rows.

    Args:
        kernel: one of those above.
        programs: its programs per tile.
        tensors: by name, among them JOINT and TABLES. The kernel takes those that it has arguments for.
        dropout: probability of dropping a weight. The kernel drops the same share of weights as `dropout.keep`.
    """
    joint, tables = tensors["JOINT"], tensors["TABLES"]
    assert joint.is_contiguous() and tables.is_contiguous()
    (rows, length, width), (_, heads, buckets, size) = joint.shape, tables.shape
    given = tensors | {"rows": rows, "width": width, "heads": heads, "T": length, "scale": 1 / math.sqrt(3 * size)}
    given |= {"dropped": round(dropout * 2**16), "factor": 1 / (1 - dropout)}
    given |= {"DROPS": dropout > 0, "EVEN": length % 2 == 0, "WHOLE": length % TILE == 0}
    given |= {"B": TILE, "C": OTHERS, "D": size, "R": buckets}
    grid = programs * tiles(length) * rows * heads
    kernel[(grid,)](**{name: given[name] for name in kernel.arg_names}, num_warps=WARPS)


def gradient_of_tables(
    joint: torch.Tensor, dcontent: torch.Tensor, dposition: torch.Tensor, tables: torch.Tensor
) -> torch.Tensor:
    """Return the gradient of the tables, [2, n, R, d].

    Args:
        joint: [B, T, W], whose first 2 H columns are queries and keys.
        dcontent, dposition: [n, B T, R], the gradients of queries times the table of keys, and keys times that of
            queries.
        tables: [2, n, R, d], those of queries and of keys.
    """
    (_, positions, _), (_, heads, buckets, size) = dcontent.shape, tables.shape
    count = -(-positions // POSITIONS)
    parts = torch.empty(count, *tables.shape, dtype=torch.float32, device=tables.device)
    sizes = {"COUNT": POSITIONS, "B": OF_TABLES, "D": size, "R": buckets, "num_warps": WARPS}
    _backward_of_tables[(count * heads,)](joint, dcontent, dposition, parts, joint.size(-1), heads, positions, **sizes)
    return parts.sum(0).to(tables.dtype)
