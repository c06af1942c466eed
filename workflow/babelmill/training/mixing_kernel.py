"""Layer mixing with its gradient written out, for training; `babelmill.model.mixing` says what it computes.

In that file each sum is a new tensor, and so are its gradients. Here all h are rows of one buffer. One matrix product
over the rows known so far computes their part of the next few x. The gradient of h_i is a weighted sum of the gradients
of x_i, x_{i+1}, ..: the same recurrence, run backwards. The gradient of the weights is one matrix product at the end.
So a backward pass must run from the last x to the first one; no other kind of backward pass is supported.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from babelmill.model.mixing import LayerMixing

BLOCK = 6  # about the square root of the number of sub-blocks


def install(model: nn.Module) -> None:
    """Let a model mix its layers by this file's functions. Its weights and their names do not change."""
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, LayerMixing):
                setattr(module, name, LayerMixingByHand(child))


class _WeightedSums:
    """The sums y_t = sum_{u <= t} matrix[t, u] row_u, where row_t is known only when y_t is computed.

    Args:
        matrix: [S, S], lower triangular.
        shape: shape of a row.
    """

    def __init__(self, matrix: torch.Tensor, shape: torch.Size):
        self.matrix = matrix
        self.rows = matrix.new_empty(len(matrix), *shape)
        self.done = 0

    @property
    def row(self) -> torch.Tensor:
        """Return where to write row_t before the call of `next` that returns y_t."""
        return self.rows[self.done]

    def next(self) -> torch.Tensor:
        """Return y_t, of a row's shape."""
        t, rows = self.done, self.rows.flatten(1)
        self.done += 1
        start = t - t % BLOCK
        with torch.autocast(rows.device.type, enabled=False):
            if t == start and start > 0:
                self.known = self.matrix[start : start + BLOCK, :start] @ rows[:start]
            recent, weights = rows[start : t + 1].T, self.matrix[t, start : t + 1]
            sums = torch.mv(recent, weights) if start == 0 else torch.addmv(self.known[t - start], recent, weights)
        return sums.view(self.rows.shape[1:])


class _State:
    """State that all functions of a forward pass share: the rows h_0.., and later, the gradients of x_0..."""

    def __init__(self, matrix: torch.Tensor, shape: torch.Size):
        self.matrix = matrix
        self.sums = _WeightedSums(matrix, shape)
        self.gradients: _WeightedSums | None = None
        self.position = -1

    def gradient(self, position: int, gradient: torch.Tensor) -> torch.Tensor:
        """Return the gradient of h_position from the gradient of x_position. Each call has a lower position."""
        if self.gradients is None or position >= self.position:  # a new backward pass
            size = position + 1
            self.gradients = _WeightedSums(self.matrix[:size, :size].flip(0, 1).T.contiguous(), gradient.shape)
        self.position = position
        self.gradients.row.copy_(gradient)
        return self.gradients.next()

    def matrix_gradient(self) -> torch.Tensor:
        """Return the gradient of the matrix, after the gradients of all x. Its upper triangle has no meaning."""
        assert self.gradients is not None, "the gradients of all x come first"
        gradients, rows = self.gradients.rows.flatten(1), self.sums.rows.flatten(1)
        with torch.autocast(rows.device.type, enabled=False):
            known = (gradients @ rows[: len(gradients)].T).flip(0)
        self.gradients = None  # free its memory before the graph is freed
        result = torch.zeros_like(self.matrix)
        result[: len(known), : len(known)] = known
        return result


class _Start(torch.autograd.Function):
    """x_0 = h_0. Its backward pass runs last, when the gradients of all x are known."""

    @staticmethod
    def forward(ctx: Any, hidden: torch.Tensor, matrix: torch.Tensor, state: _State) -> torch.Tensor:
        ctx.state = state
        state.sums.row.copy_(hidden)
        return state.sums.next().view_as(hidden)

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, gradient: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, None]:
        return ctx.state.gradient(0, gradient), ctx.state.matrix_gradient(), None


class _Mix(torch.autograd.Function):
    """x_{j+1} from x_j and the change that the sub-block made to it."""

    @staticmethod
    def forward(ctx: Any, hidden: torch.Tensor, change: torch.Tensor, state: _State) -> torch.Tensor:
        ctx.state, ctx.position = state, state.sums.done
        torch.add(hidden, change, out=state.sums.row)
        return state.sums.next()

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, gradient: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, None]:
        gradient = ctx.state.gradient(ctx.position, gradient)
        return gradient, gradient, None


class LayerMixingByHand(LayerMixing):
    """`LayerMixing` by the functions of this file, with the weights of another `LayerMixing`."""

    def __init__(self, mixing: LayerMixing):
        super().__init__(0)
        self.alphas = mixing.alphas

    def start(self, hidden: torch.Tensor) -> tuple[torch.Tensor, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]]:
        """Return x_0, and a function that turns (x_j, the change by the next sub-block) into x_{j+1}; all [B, T, H]."""
        matrix = self.matrix(hidden)
        state = _State(matrix.detach(), hidden.shape)
        return _Start.apply(hidden, matrix, state), lambda x, change: _Mix.apply(x, change, state)
