"""Train faster on a CPU: attention and GEGLU of GPT-BERT with their gradients written by hand.

The shipped model (`babelmill.model`) uses ordinary operations, which work with all of PyTorch. Training on a GPU uses
them, too, except for what our kernels for GPUs compute (`fused_attention.py`, `between_blocks.py`). On a CPU, ordinary
operations are slower than the functions of this file, which compute the same numbers. So the trainer replaces them.
Each function has a gradient, but no second derivative.
"""

import math
from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from babelmill.model.attention import Visible, flat_indices
from babelmill.model.gpt_bert import GEGLU
from babelmill.training.kernels import mixing_kernel
from babelmill.training.kernels.dropout import KeyedAttention


def install(model: nn.Module) -> None:
    """Let a model train with this file's GEGLU and with `mixing_kernel`. Its weights and their names do not change."""
    mixing_kernel.install(model)
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, GEGLU):
                setattr(module, name, CPUGEGLU())


class _GEGLU(torch.autograd.Function):
    """Computes x * gelu(gate). It writes both halves of the gradient into one tensor, which saves a copy."""

    @staticmethod
    def forward(ctx: Any, both: torch.Tensor) -> torch.Tensor:
        x, gate = both.chunk(2, -1)
        activation = F.gelu(gate, approximate="tanh")
        ctx.save_for_backward(both, activation)
        return x * activation

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        both, activation = ctx.saved_tensors
        x, gate = both.chunk(2, -1)
        result = torch.empty_like(both)
        d_x, d_gate = result.chunk(2, -1)
        torch.mul(gradient, activation, out=d_x)
        torch.ops.aten.gelu_backward.grad_input(gradient * x, gate, approximate="tanh", grad_input=d_gate)
        return result


class CPUGEGLU(GEGLU):
    """Computes `GEGLU` with the gradient of `_GEGLU`."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return x * gelu(gate) of the two halves of the input."""
        return _GEGLU.apply(x) if x.requires_grad else super().forward(x)


class _CPUAttention(torch.autograd.Function):
    """Computes attention and its gradient. (On a CPU, the gradient of PyTorch's `sdpa` takes a dozen operations.)

    The weights before and after dropout are saved for the backward pass.
    """

    @staticmethod
    def forward(
        ctx: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        query_table: torch.Tensor,
        key_table: torch.Tensor,
        buckets: torch.Tensor,
        penalty: torch.Tensor,
        alive: torch.Tensor,
        kept: torch.Tensor | None,
        dropout: float,
    ) -> torch.Tensor:
        batch, heads, _, size = query.shape
        scale = 1.0 / math.sqrt(3 * size)
        q, k, v = (x.reshape(batch * heads, -1, size) for x in (query, key, value))
        q_table, k_table = ((x * scale).repeat(batch, 1, 1) for x in (query_table, key_table))
        rows, columns = (index.expand(len(q), -1) for index in flat_indices(buckets, key_table.size(1)))

        scores = torch.baddbmm(q.new_empty(()), q, k.mT, beta=0, alpha=scale)
        part = torch.gather(torch.bmm(q, k_table.mT).flatten(1), 1, rows)
        scores.flatten(1).add_(part)
        torch.gather(torch.bmm(k, q_table.mT).flatten(1), 1, columns, out=part)
        scores.flatten(1).add_(part)
        scores.unflatten(0, (batch, heads)).add_(penalty)
        weights = torch.softmax(scores, -1)

        dropped = weights if kept is None else torch.mul(weights, kept.view(weights.shape), out=scores)
        factor = alive / (1 - dropout)
        context = torch.bmm(dropped, v).unflatten(0, (batch, heads)) * factor
        ctx.save_for_backward(q, k, v, q_table, k_table, rows, columns, weights, dropped, factor, context)
        ctx.scale = scale
        return context

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        q, k, v, q_table, k_table, rows, columns, weights, dropped, factor, context = ctx.saved_tensors
        batch, heads = gradient.shape[:2]
        mean = (gradient * context).sum(-1, keepdim=True).flatten(0, 1)  # the gradient's mean, weighted by the weights
        gradient = (gradient * factor).reshape(q.shape)
        d_value = torch.bmm(dropped.mT, gradient)
        d_scores = torch.bmm(gradient, v.mT).mul_(dropped).addcmul_(weights, mean, value=-1)

        wide = d_scores.to(torch.promote_types(d_scores.dtype, torch.float32)).flatten(1)  # long sums follow
        c2p = wide.new_zeros(len(q), q.size(1) * k_table.size(1)).scatter_add_(1, rows, wide)
        p2c = wide.new_zeros(len(q), k.size(1) * k_table.size(1)).scatter_add_(1, columns, wide)
        c2p, p2c = (x.view(len(q), -1, k_table.size(1)).to(q.dtype) for x in (c2p, p2c))
        d_query = torch.bmm(c2p, k_table).baddbmm_(d_scores, k, alpha=ctx.scale)
        d_key = torch.bmm(p2c, q_table).baddbmm_(d_scores.mT, q, alpha=ctx.scale)
        d_tables = (torch.bmm(p2c.mT, k), torch.bmm(c2p.mT, q))
        d_tables = (x.unflatten(0, (batch, heads)).sum(0) * ctx.scale for x in d_tables)
        return (
            *(x.unflatten(0, (batch, heads)) for x in (d_query, d_key, d_value)),
            *d_tables,
            None,
            None,
            None,
            None,
            None,
        )


class CPUAttention(KeyedAttention):
    """Computes attention with dropout by row, with `_CPUAttention` if a gradient is needed."""

    def compute(self, tensors: tuple[torch.Tensor, ...], visible: Visible, dropout: float) -> torch.Tensor:
        """Do what `KeyedAttention.compute` does."""
        query, key, *_ = tensors
        if not query.requires_grad:
            return super().compute(tensors, visible, dropout)
        kept = self.kept(torch.Size([*query.shape[:3], key.size(2)]), dropout) if dropout else None
        return _CPUAttention.apply(*tensors, *visible, kept, dropout)
