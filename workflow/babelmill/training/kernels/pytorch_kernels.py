"""Train faster with ordinary operations of PyTorch: what our kernels for GPUs do not compute, or cannot.

The shipped model (`babelmill.model`) has operations whose gradients of any order exist. In training, first gradients
are enough, so the trainer replaces them by the functions of this file, which compute the same numbers:

* On a CPU, attention with a gradient written by hand.
* On a GPU, attention without atomic additions. The shipped model copies the products of queries and keys with the
  position tables to their places among the scores. The gradient of such a copy adds many numbers at one address. A GPU
  does so with atomic additions, which are slow and come in another order in each run. Here a product with a one-hot
  table copies the numbers instead. Its gradient is a matrix product, too, so every run computes the same numbers.
* On both, layer mixing; `babelmill.model.mixing` has the formula. There each sum is a new tensor, and so are its
  gradients. Here all h (the embedding and the outputs of the sub-blocks) are rows of one buffer. One product over all
  rows known so far computes their part of the next few x (the inputs of the sub-blocks). The gradient of h_i is a
  weighted sum of the gradients of x_i, x_{i+1}, ..: the same recurrence, run backwards. The gradient of the weights is
  one matrix product at the end. So a backward pass must run from the last x to the first one; no other kind of backward
  pass is supported. In both directions a row is a sum of two tensors: h_{j+1} is x_j plus the change by a sub-block;
  the gradient of x_j is what that sub-block gives plus what h_{j+1} gives. So one function, `WeightedSums.next`, adds,
  stores and sums.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from babelmill.model.attention import Visible, compute_dtype, flat_indices
from babelmill.model.mixing import LayerMixing
from babelmill.training.kernels.dropout import KeyedAttention

COLUMNS = 64  # columns of the one-hot table: matrix units need a multiple of 8, and a table has 63 rows as published
BLOCK = 6  # rows of layer mixing per product: about the square root of the number of sub-blocks


def install(model: nn.Module) -> None:
    """Let a model mix its layers with this file's functions. Its weights and their names do not change."""
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, LayerMixing):
                setattr(module, name, LayerMixingByHand(child))


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
            *[None] * 5,
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


def _spread(products: torch.Tensor, one_hot: torch.Tensor) -> torch.Tensor:
    """Return element r(i, j) of products [B, n, T, R] for each i and j, [B, n, T, S].

    `one_hot` [T, R, S]: 1 at [i, r(i, j), j], otherwise 0.
    """
    spread = torch.bmm(products.flatten(0, 1).transpose(0, 1), one_hot)
    return spread.transpose(0, 1).unflatten(0, products.shape[:2])


class OneHotAttention(KeyedAttention):
    """Computes attention with the functions of this file. For `place` and `keys`, see `KeyedAttention`."""

    def compute(self, tensors: tuple[torch.Tensor, ...], visible: Visible, dropout: float) -> torch.Tensor:
        """Do what `KeyedAttention.compute` does."""
        query, key, value, query_table, key_table, buckets = tensors
        size = -(-key_table.size(1) // COLUMNS) * COLUMNS
        tables = [F.pad(table, (0, 0, 0, size - table.size(1))) for table in (key_table, query_table)]
        places = torch.arange(size, device=buckets.device)[:, None]
        of_query, of_key = (
            (b[:, None, :] == places).to(compute_dtype(query)) for b in (buckets, buckets.T)
        )  # at [i, r, j] and at [j, r, i]
        parts = query @ key.mT, _spread(query @ tables[0].mT, of_query), _spread(key @ tables[1].mT, of_key).mT
        wide = torch.promote_types(parts[0].dtype, torch.float32)
        scores = sum(part.to(wide) for part in parts) / math.sqrt(3 * query.size(-1)) + visible.penalty
        weights = (scores.softmax(-1) * visible.alive).to(value.dtype)
        if dropout:
            weights = weights * self.kept(weights.shape, dropout).mul_(1 / (1 - dropout)).to(weights.dtype)
        return weights @ value


class WeightedSums:
    """Computes y_t = sum_{u <= t} matrix[t, u] row_u, where row_t becomes known just before y_t is needed.

    Args:
        matrix: [S, S], lower triangular.
        shape: shape of a row.
    """

    def __init__(self, matrix: torch.Tensor, shape: torch.Size):
        self.matrix = matrix
        self.rows = matrix.new_empty(len(matrix), *shape)
        self.done = 0

    def next(self, row: torch.Tensor, change: torch.Tensor | None = None) -> torch.Tensor:
        """Return y_t, in a row's shape, for row_t = row + change (None: no change).

        Rows come in blocks. One product adds up what all rows before a block give to all y of the block (`known`).
        Then each y needs only the rows of its own block.
        """
        t, rows = self.done, self.rows.flatten(1)
        self.done += 1
        if change is None:
            self.rows[t].copy_(row)
        else:
            torch.add(row, change, out=self.rows[t])
        start = t - t % BLOCK  # of the block of row_t
        with torch.autocast(rows.device.type, enabled=False):
            if t == start and start > 0:
                self.known = self.matrix[start : start + BLOCK, :start] @ rows[:start]
            recent, weights = rows[start : t + 1].T, self.matrix[t, start : t + 1]
            sums = torch.mv(recent, weights) if start == 0 else torch.addmv(self.known[t - start], recent, weights)
        return sums.view(self.rows.shape[1:])

    def products(self, others: torch.Tensor) -> torch.Tensor:
        """Return the products of all rows with all rows of another buffer, [S, S]."""
        with torch.autocast(others.device.type, enabled=False):
            return self.rows.flatten(1) @ others.flatten(1).T


class _State:
    """Holds what all functions of a forward pass share: the rows h_0.., and later, the gradients of x_0..."""

    def __init__(self, sums: WeightedSums):
        self.sums = sums
        self.gradients: WeightedSums | None = None
        self.position = -1
        self.gradient_of_row: torch.Tensor | None = None  # the gradient of h_{position}

    def gradient(self, position: int, given: torch.Tensor | None, dtype: torch.dtype) -> torch.Tensor:
        """Return the gradient of h_position. Each call has a lower position.

        Args:
            position: the index of x and h.
            given: the gradient of x_position without the part that h_{position + 1} gives; None: there is no other
                part.
            dtype: type of the result.
        """
        matrix, shape = self.sums.matrix, self.sums.rows.shape[1:]
        if self.gradients is None or position >= self.position:  # a new backward pass
            size = position + 1
            turned = matrix[:size, :size].flip(0, 1).T.contiguous()
            self.gradients, self.gradient_of_row = WeightedSums(turned, shape), None
        self.position = position
        self.gradient_of_row = self.gradients.next(*(x for x in (given, self.gradient_of_row) if x is not None))
        return self.gradient_of_row.to(dtype)

    def matrix_gradient(self) -> torch.Tensor:
        """Return the gradient of the matrix, after the gradients of all x. Its upper triangle has no meaning."""
        assert self.gradients is not None, "the gradients of all x come first"
        size = len(self.gradients.matrix)
        known = self.gradients.products(self.sums.rows[:size]).flip(0)
        self.gradients = self.gradient_of_row = None  # free their memory before the graph is freed
        result = torch.zeros_like(self.sums.matrix)
        result[:size, :size] = known
        return result


class _Start(torch.autograd.Function):
    """Computes x_0 = h_0. Its backward pass runs last, when the gradients of all x are known."""

    @staticmethod
    def forward(ctx: Any, hidden: torch.Tensor, matrix: torch.Tensor, state: _State) -> torch.Tensor:
        ctx.set_materialize_grads(False)
        ctx.state, ctx.type = state, hidden.dtype
        return state.sums.next(hidden)

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, gradient: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor, None]:
        return ctx.state.gradient(0, gradient, ctx.type), ctx.state.matrix_gradient(), None


class _Mix(torch.autograd.Function):
    """Computes x_{j+1} from x_j and the change that the sub-block made to it.

    The backward pass gives x_j no gradient: `_State.gradient` adds it when the rest of that gradient is known.
    """

    @staticmethod
    def forward(ctx: Any, hidden: torch.Tensor, change: torch.Tensor, state: _State) -> torch.Tensor:
        ctx.set_materialize_grads(False)
        ctx.state, ctx.position, ctx.type = state, state.sums.done, change.dtype
        return state.sums.next(hidden, change)

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, gradient: torch.Tensor | None
    ) -> tuple[None, torch.Tensor, None]:
        return None, ctx.state.gradient(ctx.position, gradient, ctx.type), None


class LayerMixingByHand(LayerMixing):
    """Computes `LayerMixing` with the functions of this file and the weights of another `LayerMixing`."""

    def __init__(self, mixing: LayerMixing):
        super().__init__(0)
        self.alphas = mixing.alphas

    def start(self, hidden: torch.Tensor) -> tuple[torch.Tensor, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]]:
        """Return x_0, and a function that turns (x_j, the change by the next sub-block) into x_{j+1}; all [B, T, H]."""
        matrix = self.matrix(hidden)
        state = _State(WeightedSums(matrix.detach(), hidden.shape))
        return _Start.apply(hidden, matrix, state), lambda x, change: _Mix.apply(x, change, state)
