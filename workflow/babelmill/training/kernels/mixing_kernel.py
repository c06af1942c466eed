"""Compute layer mixing for training, with its gradient written by hand; `babelmill.model.mixing` has the formula.

In that file each sum is a new tensor, and so are its gradients. Here all h (the embedding and the outputs of the
sub-blocks) are rows of one buffer. One matrix product over the rows known so far computes their part of the next few x
(the inputs of the sub-blocks). The gradient of h_i is a weighted sum of the gradients of x_i, x_{i+1}, ..: the same
recurrence, run backwards. The gradient of the weights is one matrix product at the end. So a backward pass must run
from the last x to the first one; no other kind of backward pass is supported.

In both directions a row is a sum of two tensors: h_{j+1} is x_j plus the change by a sub-block, and the gradient of x_j
is what that sub-block gives plus what h_{j+1} gives. So one function, `WeightedSums.next`, adds, stores and sums.

In bf16 on GPUs, `mixing_triton.py` does more of a model's work at once.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from babelmill.model.mixing import LayerMixing

BLOCK = 6  # about the square root of the number of sub-blocks


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

    def next(
        self, row: torch.Tensor, change: torch.Tensor | None, dtype: torch.dtype
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return y_t for row_t = row + change (None: no change) in a row's shape, and y_t again in the type `dtype`."""
        t, rows = self.done, self.rows.flatten(1)
        self.done += 1
        if change is None:
            self.rows[t].copy_(row)
        else:
            torch.add(row, change, out=self.rows[t])
        start = t - t % BLOCK
        with torch.autocast(rows.device.type, enabled=False):
            if t == start and start > 0:
                self.known = self.matrix[start : start + BLOCK, :start] @ rows[:start]
            recent, weights = rows[start : t + 1].T, self.matrix[t, start : t + 1]
            sums = torch.mv(recent, weights) if start == 0 else torch.addmv(self.known[t - start], recent, weights)
        sums = sums.view(self.rows.shape[1:])
        return sums, sums.to(dtype)

    def products(self, others: torch.Tensor) -> torch.Tensor:
        """Return the products of all rows with all rows of another buffer, [S, S]."""
        with torch.autocast(others.device.type, enabled=False):
            return self.rows.flatten(1) @ others.flatten(1).T


def install(model: nn.Module) -> None:
    """Let a model mix its layers with this file's functions. Its weights and their names do not change."""
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, LayerMixing):
                setattr(module, name, LayerMixingByHand(child))


class _State:
    """State that all functions of a forward pass share: the rows h_0.., and later, the gradients of x_0..."""

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
        row, *more = (part for part in (given, self.gradient_of_row) if part is not None)
        self.position = position
        self.gradient_of_row, result = self.gradients.next(row, more[0] if more else None, dtype)
        return result

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
        return state.sums.next(hidden, None, hidden.dtype)[0]

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
        return state.sums.next(hidden, change, hidden.dtype)[0]

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
