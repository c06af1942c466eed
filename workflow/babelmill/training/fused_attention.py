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
from babelmill.training import attention_triton, gate_triton
from babelmill.training.dropout import KeyedAttention


@torch.library.custom_op("babelmill::attention", mutates_args=())
def _attention(
    joint: torch.Tensor,
    bias: torch.Tensor,
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
        bias: [W], already part of `joint`. The backward pass computes its gradient.
        tables, lut, mask, spans, keys, dropout: see `attention_triton.forward`.
        alive: [B, 1, T, 1], see `Visible`.
        eps: see `Normalization`.
    """
    values, content, position, lse = attention_triton.forward(joint, tables, lut, mask, spans, keys, dropout)
    return gate_triton.forward(values, joint, alive, eps), values, content, position, lse


@_attention.register_fake
def _(joint: torch.Tensor, _bias: Any, tables: torch.Tensor, *_: Any) -> tuple[torch.Tensor, ...]:
    rows, length = joint.size(0), joint.size(1)
    heads, buckets, size = tables.shape[1:]
    values = [joint.new_empty(rows, length, heads * size) for _ in range(2)]
    products = [joint.new_empty(heads, rows * length, buckets) for _ in range(2)]
    return *values, *products, joint.new_empty(rows, heads, length, dtype=torch.float32)


@torch.library.custom_op("babelmill::attention_backward", mutates_args=())
def _attention_backward(
    gradient: torch.Tensor,
    values: torch.Tensor,
    content: torch.Tensor,
    position: torch.Tensor,
    lse: torch.Tensor,
    joint: torch.Tensor,
    tables: torch.Tensor,
    lut: torch.Tensor,
    mask: torch.Tensor,
    spans: torch.Tensor,
    alive: torch.Tensor,
    keys: torch.Tensor,
    dropout: float,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the gradients of joint, bias (in float32) and tables.

    Args:
        gradient: of the first result of `_attention`.
        values, content, position, lse: its other results.
        others: its inputs.
    """
    into = torch.empty_like(joint)
    of_values, delta, of_gates = gate_triton.backward(into, gradient, values, joint, alive, tables.size(1), eps)
    more = content, position, lse, delta, joint, tables, lut, mask, spans, keys, dropout
    of_tables, sums = attention_triton.backward(into, of_values, *more)
    return into, torch.cat([sums, of_gates]), of_tables


@_attention_backward.register_fake
def _(
    _gradient: Any, _values: Any, _content: Any, _position: Any, lse: torch.Tensor, *inputs: Any
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    joint, tables, *_ = inputs
    return torch.empty_like(joint), lse.new_empty(joint.size(-1)), torch.empty_like(tables)


def _keep_for_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
    joint, bias, *tensors, ctx.dropout, ctx.eps = inputs
    ctx.kind = bias.dtype
    ctx.set_materialize_grads(False)  # of the results that only the backward pass needs
    ctx.save_for_backward(*output[1:], joint, *tensors)


def _gradients(ctx: Any, gradient: torch.Tensor, *_: None) -> tuple[torch.Tensor | None, ...]:
    of_joint, of_bias, of_tables = _attention_backward(gradient.contiguous(), *ctx.saved_tensors, ctx.dropout, ctx.eps)
    return of_joint, of_bias.to(ctx.kind), of_tables, *[None] * 7


_attention.register_autograd(_gradients, setup_context=_keep_for_backward)


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
        result, *_ = _attention(*given, dropout, self.post_layer_norm.eps)
        return self.dropout(self.out_proj(result)), None


def install(model: GPTBert) -> None:
    """Let a model use `FusedAttention`, after `dropout.install`. Its weights and their names do not change."""
    layers = model.transformer.attention_layers
    for number, block in enumerate(layers):
        assert isinstance(block, Attention)
        layers[number] = FusedAttention(block)
