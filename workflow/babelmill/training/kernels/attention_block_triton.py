"""Compute GPT-BERT's attention blocks on GPUs: one matrix product, two Triton kernels, one matrix product.

The shipped block multiplies its input with two matrices, one for queries and keys and one for values and gates. Here
they are put together, so that forwards and backwards one longer product takes the place of two, and the gradients of
its results are parts of one tensor from the beginning. `attention_triton.py` computes the values. The kernels of this
file multiply them by the gate and normalise them. Backwards they also compute what attention's backward pass needs of
the values and their gradient: `delta`, for each head the sum of their products.

The kernels ran on an H200 (PyTorch 2.11, Triton 3.6): without them and those of `attention_triton.py`, a step of the
preset `base` takes 22 % longer (`benchmarks/README.md`, "On a GPU, measured"). Tests run them in Triton's interpreter
and build them for sm_80 and sm_90.
"""

# pyright: reportMissingParameterType=false, reportArgumentType=false, reportIndexIssue=false, reportCallIssue=false
# pyright: reportAttributeAccessIssue=false, reportOperatorIssue=false, reportGeneralTypeIssues=false
# (a type checker does not know what Triton makes of a function)

from typing import Any

import torch
import triton
import triton.language as tl
from torch import nn
from torch.nn import functional as F

from babelmill.model.attention import Visible, compute_dtype
from babelmill.model.gpt_bert import Attention, GPTBert, LayerCache
from babelmill.training.kernels import attention_triton
from babelmill.training.kernels.attention_triton import gradient_of_tables, launch
from babelmill.training.kernels.dropout import KeyedAttention, tiles
from babelmill.training.kernels.shared_triton import gradient_of_input, normalize, operator, results_of, sizes

TOKENS = 16  # per program of the backward kernel, which sums over them
NUMBERS = 16  # of a thread of this kernel, so that they fit into its registers


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


@operator("attention")
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
    position = torch.bmm(keys_of_heads, tables[0].mT)
    content, values = torch.empty_like(position), joint.new_empty(rows, length, heads * size)
    lse = joint.new_empty(rows, heads, length, dtype=torch.float32)
    tensors = {"JOINT": joint, "TABLES": tables, "LUT": lut, "MASK": mask, "SPANS": spans, "KEYS": keys}
    tensors |= {"POSITION": position, "CONTENT": content, "OUT": values, "LSE": lse}
    launch(attention_triton._forward, 1, tensors, dropout)
    result, hidden = torch.empty_like(values), heads * size
    numbers, gates = (width, hidden, eps), width > 3 * hidden
    _gate_forward[(rows * length,)](values, joint, alive, result, *numbers, GATES=gates, **sizes(hidden))
    return result, values, content, position, lse


@results_of("attention")
def _(joint: torch.Tensor, tables: torch.Tensor, *_: Any) -> tuple[torch.Tensor, ...]:
    rows, length = joint.size(0), joint.size(1)
    heads, buckets, size = tables.shape[1:]
    values = [joint.new_empty(rows, length, heads * size) for _ in range(2)]
    products = [joint.new_empty(heads, rows * length, buckets) for _ in range(2)]
    return *values, *products, joint.new_empty(rows, heads, length, dtype=torch.float32)


@operator("attention_backward")
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
    launch(attention_triton._gradient_of_scores, 1, tensors, dropout)
    launch(attention_triton._gradients_of_states, 2, tensors, dropout)
    of_tables = gradient_of_tables(joint, of_content, of_position, tables)
    return into, sums.sum(0), of_gates.sum(0), of_tables


@results_of("attention_backward")
def _(
    gradient: torch.Tensor, _values: Any, _content: Any, _position: Any, lse: torch.Tensor, *inputs: Any
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    joint, tables, *_ = inputs
    size, width = gradient.size(-1), joint.size(-1)
    sums = lse.new_empty(3 * size), lse.new_empty(width - 3 * size)
    return torch.empty_like(joint), *sums, torch.empty_like(tables)


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
