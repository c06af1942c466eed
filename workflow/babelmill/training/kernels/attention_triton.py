"""Compute GPT-BERT's attention blocks on GPUs: a matrix product, Triton kernels, and another matrix product.

The shipped block multiplies its input with two matrices, one for queries and keys and one for values and gates. Here
they are put together, so that forwards and backwards one longer product takes the place of two, and the gradients of
its results are parts of one tensor from the beginning.

The kernels of attention do scores, positions, mask, softmax and dropout in one pass. They compute the same as
`dropout.KeyedAttention`, which drops weights by row. They read queries, keys and values where the matrix product has
left them, in a tensor [B, T, W], and write their gradients into one such tensor; so nothing is copied. They work on
tiles of some queries and some keys, and leave out tiles in which no query sees a key:

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

Two more kernels multiply the values by the gate and normalise them. Backwards they also compute what attention's
backward pass needs of the values and their gradient: `delta`, for each head the sum of their products.

The kernels ran on an H200 (PyTorch 2.11, Triton 3.6): without them, a step of the preset `base` takes 22 % longer
(`benchmarks/README.md`, "On a GPU, measured"). Tests run them in Triton's interpreter and build them for sm_80 and
sm_90.
"""

# pyright: reportMissingParameterType=false, reportArgumentType=false, reportIndexIssue=false, reportCallIssue=false
# pyright: reportAttributeAccessIssue=false, reportOperatorIssue=false, reportGeneralTypeIssues=false
# (a type checker does not know what Triton makes of a function)

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import nn
from torch.nn import functional as F

from babelmill.model.attention import Visible, compute_dtype
from babelmill.model.gpt_bert import Attention, GPTBert, LayerCache
from babelmill.training.kernels.dropout import TILE, KeyedAttention, tiles
from babelmill.training.kernels.shared_triton import (
    WARPS,
    below,
    dot,
    gradient_of_input,
    kept,
    load,
    normalize,
    operator,
    sizes,
    store,
)

# A program computes TILE queries (or keys), and handles so many keys (or queries) at once. This was chosen by what the
# compiler makes of it for sm_90 (`benchmarks/gpu/instructions.py`). On an H200, an attention block took 3.38 ms,
# with 64 others 3.78, with 8 warps 3.32, and with 128 others and 8 warps 4.03 (`benchmarks/gpu.py`).
OTHERS = 32
OF_TABLES, POSITIONS = 64, 2048  # positions per tile, and per program, of the kernel for the gradients of tables
TOKENS = 16  # per program of the backward kernel of gates, which sums over them
NUMBERS = 16  # of a thread of this kernel, so that they fit into its registers


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


@triton.jit
def _gelu(x):
    """Return gelu(x) = x P(x) (Hendrycks and Gimpel, 2016, arXiv:1606.08415) and its derivative P(x) + x p(x).

    P is the normal distribution's cumulative function, and p its density. For x < 0, P(x) is p(x) times a polynomial in
    t = 1 / (1 + 0.23 |x|), and P(-x) is 1 - P(x) (Abramowitz and Stegun, 1964, formula 26.2.17; the error is below
    7.5e-8). So both need only one exponential.
    """
    density = tl.exp2(x * x * (-0.5 * 1.4426950408889634)) * 0.3989422804014327
    root = tl.rsqrt(1.0 + 0.2316419 * tl.abs(x))
    t = root * root  # a division needs five instructions
    tail = ((((1.330274429 * t - 1.821255978) * t + 1.781477937) * t - 0.356563782) * t + 0.319381530) * t
    share = tl.where(x < 0.0, density * tail, 1.0 - density * tail)
    return x * share, share + x * density


@triton.jit
def _gate_forward(
    VALUES, JOINT, ALIVE, RESULT, width, H, eps, GATES: tl.constexpr, B: tl.constexpr
):  # fmt: skip
    """Compute one token: its values times `alive` times the gelu of the gate, normalised."""
    token, n = tl.program_id(0).to(tl.int64), tl.arange(0, B)
    inside = n < H
    x = tl.load(VALUES + token * H + n, mask=inside, other=0.0).to(tl.float32) * tl.load(ALIVE + token).to(tl.float32)
    if GATES:
        x *= _gelu(tl.load(JOINT + token * width + 3 * H + n, mask=inside, other=0.0).to(tl.float32))[0]
    tl.store(RESULT + token * H + n, normalize(x, inside, H, eps)[0].to(RESULT.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["tokens"])
def _gate_backward(
    GRADIENT, VALUES, JOINT, ALIVE, DVALUES, INTO, DELTA, SUMS, width, H, T, tokens, eps,
    GATES: tl.constexpr, B: tl.constexpr, D: tl.constexpr, TOKENS: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of TOKENS tokens' values and gates, their DELTA, and the sum of the gates' gradients."""
    n, head = tl.arange(0, B), tl.arange(0, B // D)
    sums = tl.zeros([B], tl.float32)
    for s in range(TOKENS):
        token = tl.program_id(0).to(tl.int64) * TOKENS + s
        exists = token < tokens
        inside = (n < H) & exists
        gradient = tl.load(GRADIENT + token * H + n, mask=inside, other=0.0).to(tl.float32)
        alive = tl.load(ALIVE + token, mask=exists, other=0.0).to(tl.float32)
        values = tl.load(VALUES + token * H + n, mask=inside, other=0.0).to(tl.float32) * alive
        x = values
        if GATES:
            gelu, slope = _gelu(tl.load(JOINT + token * width + 3 * H + n, mask=inside, other=0.0).to(tl.float32))
            x = values * gelu
        y, scale = normalize(x, inside, H, eps)
        dx = gradient_of_input(gradient, y, scale, H)
        dvalues = dx * alive
        if GATES:
            dvalues *= gelu
            dgate = dx * values * slope
            tl.store(INTO + token * width + 3 * H + n, dgate.to(INTO.dtype.element_ty), mask=inside)
            sums += tl.where(inside, dgate, 0.0)
        rounded = dvalues.to(DVALUES.dtype.element_ty)  # as attention's backward pass reads it
        tl.store(DVALUES + token * H + n, rounded, mask=inside)
        delta = tl.sum(tl.reshape(tl.where(inside, rounded.to(tl.float32) * values, 0.0), [B // D, D]), 1)
        place = (token // T * (H // D) + head) * T + token % T
        tl.store(DELTA + place, delta, mask=(head < H // D) & exists)
    if GATES:
        tl.store(SUMS + tl.program_id(0) * H + n, sums, mask=n < H)


def _launch(kernel: Any, programs: int, tensors: dict[str, torch.Tensor], dropout: float) -> None:
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


def _empty(joint: torch.Tensor, tables: torch.Tensor, *_: Any) -> tuple[torch.Tensor, ...]:
    """Return empty tensors for the results of `_attention`."""
    (rows, length), (heads, buckets, size) = joint.shape[:2], tables.shape[1:]
    values = [joint.new_empty(rows, length, heads * size) for _ in range(2)]
    products = [joint.new_empty(heads, rows * length, buckets) for _ in range(2)]
    return *values, *products, joint.new_empty(rows, heads, length, dtype=torch.float32)


@operator("attention", _empty)
def _attention(
    joint: torch.Tensor,
    tables: torch.Tensor,
    lut: torch.Tensor,
    mask: torch.Tensor,
    spans: torch.Tensor,
    alive: torch.Tensor,
    keys: torch.Tensor,
    dropout: float,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the gated and normalised values [B, T, H], and what the backward pass needs.

    Args:
        joint: [B, T, W]: queries, keys, values and, if W is 4 H and not 3 H, gates.
        tables: [2, n, R, d], those of queries and of keys; R and d are powers of two from 16 on.
        lut: [2T - 1] int32, the row of the tables for each distance -(T - 1) .. T - 1.
        mask: [B, 1, T, T], added to the scores.
        spans: see `dropout.spans_of_mask`.
        alive: [B, 1, T, 1], by which values are multiplied; see `Visible`.
        keys: [B] int32, the rows' dropout keys for this place in the model.
        dropout: probability of dropping a weight.
        eps: see `Normalization`.

    Returns:
        the result, and the values before gates and normalisation, [B, T, H]; queries times the table of keys, and keys
        times the table of queries, [n, B T, R]; the logarithm of each softmax's denominator, [B, n, T] float32.
    """
    (rows, length, width), (_, heads, _, size) = joint.shape, tables.shape
    assert spans.shape == (rows, 2, tiles(length), 2), "spans of another pass"
    keys_of_heads = joint.view(rows * length, -1, size)[:, heads : 2 * heads].transpose(0, 1)
    result, values, content, position, lse = _empty(joint, tables)
    torch.bmm(keys_of_heads, tables[0].mT, out=position)
    tensors = {"JOINT": joint, "TABLES": tables, "LUT": lut, "MASK": mask, "SPANS": spans, "KEYS": keys}
    tensors |= {"POSITION": position, "CONTENT": content, "OUT": values, "LSE": lse}
    _launch(_forward, 1, tensors, dropout)
    hidden = heads * size
    numbers, gates = (width, hidden, eps), width > 3 * hidden
    _gate_forward[(rows * length,)](values, joint, alive, result, *numbers, GATES=gates, **sizes(hidden))
    return result, values, content, position, lse


def _empty_gradients(
    gradient: torch.Tensor, _values: Any, _content: Any, _position: Any, lse: torch.Tensor, *inputs: Any
) -> tuple[torch.Tensor, ...]:
    """Return empty tensors for the results of `_attention_backward`."""
    joint, tables, *_ = inputs
    size, width = gradient.size(-1), joint.size(-1)
    sums = lse.new_empty(3 * size), lse.new_empty(width - 3 * size)
    return torch.empty_like(joint), *sums, torch.empty_like(tables)


@operator("attention_backward", _empty_gradients)
def _attention_backward(
    gradient: torch.Tensor,
    values: torch.Tensor,
    content: torch.Tensor,
    position: torch.Tensor,
    lse: torch.Tensor,
    joint: torch.Tensor,
    tables: torch.Tensor,
    lut: torch.Tensor,
    one_hot: torch.Tensor,
    mask: torch.Tensor,
    spans: torch.Tensor,
    alive: torch.Tensor,
    keys: torch.Tensor,
    dropout: float,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the gradients of joint and tables, and sums.

    Args:
        gradient: of the first result of `_attention`.
        values, content, position, lse: its other results.
        one_hot: [2T - 1, R], `lut` as one-hot rows.
        others: its inputs.

    Returns:
        the gradient of joint; its sums over all positions, [3 H] and [H] (or [0]) float32; the gradient of tables.
    """
    (rows, length, size), width, heads = values.shape, joint.size(-1), tables.size(1)
    programs, gates = -(-rows * length // TOKENS), width > 3 * size
    into, of_values = torch.empty_like(joint), torch.empty_like(values)
    delta = values.new_empty(rows, heads, length, dtype=torch.float32)  # sums of the values times their gradients
    of_gates = delta.new_empty(programs, size if gates else 0)
    given = gradient, values, joint, alive, of_values, into, delta, of_gates
    numbers, switches = (width, size, length, rows * length, eps), {"GATES": gates, "D": size // heads}
    _gate_backward[(programs,)](*given, *numbers, **switches, TOKENS=TOKENS, **sizes(size, NUMBERS))

    of_content, of_position = torch.empty_like(content), torch.empty_like(position)
    by_query, by_key = (joint.new_empty(rows, heads, length, length) for _ in range(2))
    sums = lse.new_empty(rows * tiles(length), 3 * size)
    tensors = {"JOINT": joint, "TABLES": tables, "LUT": lut, "ONE_HOT": one_hot, "MASK": mask, "SPANS": spans}
    tensors |= {"KEYS": keys, "CONTENT": content, "POSITION": position, "LSE": lse, "DO": of_values, "DELTA": delta}
    tensors |= {"BY_QUERY": by_query, "BY_KEY": by_key, "INTO": into, "SUMS": sums}
    tensors |= {"DCONTENT": of_content, "DPOSITION": of_position}
    _launch(_gradient_of_scores, 1, tensors, dropout)
    _launch(_gradients_of_states, 2, tensors, dropout)
    count = -(-rows * length // POSITIONS)
    parts, given = lse.new_empty(count, *tables.shape), (joint, of_content, of_position)
    constants = {"COUNT": POSITIONS, "B": OF_TABLES, "D": size // heads, "R": tables.size(2), "num_warps": WARPS}
    _backward_of_tables[(count * heads,)](*given, parts, width, heads, rows * length, **constants)
    return into, sums.sum(0), of_gates.sum(0), parts.sum(0).to(tables.dtype)


class _Attended(torch.autograd.Function):
    """Computes the gated and normalised values from `joint`.

    The other inputs are `bias` [W], which is already part of `joint`, for its gradient; and those of `_attention`.
    """

    @staticmethod
    def forward(ctx: Any, joint: torch.Tensor, bias: torch.Tensor, *others: Any) -> torch.Tensor:
        *tensors, ctx.dropout, ctx.eps = others
        result, *kept = _attention(joint, *others)
        ctx.kind = bias.dtype
        ctx.save_for_backward(*kept, joint, *tensors)
        return result

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, gradient: torch.Tensor
    ) -> tuple[torch.Tensor | None, ...]:
        values, content, position, lse, joint, tables, lut, *more = ctx.saved_tensors
        one_hot = (lut[:, None] == torch.arange(tables.size(2), device=lut.device)).to(joint.dtype)
        given = gradient.contiguous(), values, content, position, lse, joint, tables, lut, one_hot, *more
        of_joint, sums, of_gates, of_tables = _attention_backward(*given, ctx.dropout, ctx.eps)
        return of_joint, torch.cat([sums, of_gates]).to(ctx.kind), of_tables, *[None] * 7


class FusedAttention(Attention):
    """Computes another `Attention` block with our kernels.

    Args:
        block: the block, after `dropout.install`. Its weights, their names and its dropout are used.
    """

    def __init__(self, block: Attention):
        nn.Module.__init__(self)
        vars(self).update(vars(block))
        assert isinstance(block.attend, KeyedAttention)
        self._keyed = block.attend

    def forward(
        self,
        hidden: torch.Tensor,
        relative: torch.Tensor,
        buckets: torch.Tensor,
        visible: Visible,
        implementation: str = "sdpa",
        cache: LayerCache | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Do what `Attention.forward` does, in training: there are no other implementations and no caches."""
        hidden = self.pre_layer_norm(hidden)
        size, dtype = hidden.size(-1), compute_dtype(hidden)
        projections = self.in_proj_qk, self.in_proj_vg if self.gate else self.in_proj_v
        weight = torch.cat([projection.weight.to(dtype) for projection in projections])
        bias = torch.cat([projection.bias for projection in projections])
        joint = F.linear(hidden, weight, bias.detach())
        tables = F.linear(self.relative_dropout(relative), weight[: 2 * size], bias[: 2 * size])
        rows = max(16, 2 ** (len(tables) - 1).bit_length())  # a power of two, as Triton needs
        tables = F.pad(tables, (0, 0, 0, rows - len(tables))).view(rows, 2, self.heads, -1).permute(1, 2, 0, 3)
        lut = torch.cat([buckets[0].flip(0), buckets[1:, 0]]).to(torch.int32)
        of_rows = self._keyed.spans(), visible.alive.contiguous(), self._keyed.row_keys()
        dropout = self.dropout.p if self.training else 0.0
        given = joint, bias, tables.contiguous(), lut, visible.penalty.contiguous(), *of_rows
        result = _Attended.apply(*given, dropout, self.post_layer_norm.eps)
        return self.dropout(self.out_proj(result)), None


def install(model: GPTBert) -> None:
    """Let a model use `FusedAttention`, after `dropout.install`. Its weights and their names do not change."""
    layers = model.transformer.attention_layers
    for number, block in enumerate(layers):
        assert isinstance(block, Attention)
        layers[number] = FusedAttention(block)
