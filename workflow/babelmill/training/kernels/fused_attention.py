"""Compute GPT-BERT's attention blocks on GPUs: one matrix product, two Triton kernels, one matrix product.

The shipped block multiplies its input with two matrices, one for queries and keys and one for values and gates. Here
they are put together, so that forwards and backwards one longer product takes the place of two, and the gradients of
its results are parts of one tensor from the beginning. `attention_triton.py` computes the values, and `gate_triton.py`
multiplies them by the gate and normalises them.
"""

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from babelmill.model.attention import Visible, compute_dtype
from babelmill.model.gpt_bert import Attention, GPTBert, LayerCache
from babelmill.training.kernels import attention_triton, gate_triton
from babelmill.training.kernels.dropout import KeyedAttention
from babelmill.training.kernels.operators import operator, results_of


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
        tables, lut, mask, spans, keys, dropout: see `attention_triton.forward`.
        alive: [B, 1, T, 1], see `Visible`.
        eps: see `Normalization`.
    """
    values, content, position, lse = attention_triton.forward(joint, tables, lut, mask, spans, keys, dropout)
    return gate_triton.forward(values, joint, alive, eps), values, content, position, lse


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
        one_hot: see `attention_triton.backward`.
        others: its inputs.

    Returns:
        the gradient of joint; its sums over all positions, [3 H] and [H] (or [0]) float32; the gradient of tables.
    """
    into = torch.empty_like(joint)
    of_values, delta, of_gates = gate_triton.backward(into, gradient, values, joint, alive, tables.size(1), eps)
    more = content, position, lse, delta, joint, tables, lut, one_hot, mask, spans, keys, dropout
    of_tables, sums = attention_triton.backward(into, of_values, *more)
    return into, sums, of_gates, of_tables


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
