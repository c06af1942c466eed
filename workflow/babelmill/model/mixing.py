"""Layer mixing (DenseFormer, Pagliardini et al., 2024, arXiv:2402.02622): each block reads a weighted sum of all.

With h_0 the embedding, h_j the j-th sub-block's output and x_j the input of the next: x_j = sum_{i <= j} M[j, i] h_i.
Term by term that would be 324 passes over a hidden state for 12 layers. Here BLOCK of the x are made together: what
they owe to the h of each earlier block is one matrix product, and what they owe to an h of their own block is added to
all of them, as an outer product, when it is known. These are ordinary operations, so that gradients of any part, of any
order, `torch.func`, tracing, compiling and exporting work.

This file is shipped inside exported models: it imports nothing but torch.
"""

from collections.abc import Callable

import torch
from torch import nn

BLOCK = 7  # of 25 rows; measured, 5 and 6 are about as fast


class _WeightedSums:
    """y_t = sum_{u <= t} matrix[t, u] row_u, where row_t is known only when y_t is asked for.

    Args:
        matrix: [S, S], lower triangular.
    """

    def __init__(self, matrix: torch.Tensor):
        self.matrix = matrix
        self.blocks: list[torch.Tensor] = []  # rows of the blocks before this one, each [BLOCK, N]
        self.rows: list[torch.Tensor] = []  # of this block
        self.sums: torch.Tensor | None = None  # what is known of this block's y that are still to come, [.., N]

    def next(self, row: torch.Tensor) -> torch.Tensor:
        """Return y_t for row_t; both are of the same shape."""
        with torch.autocast(row.device.type, enabled=False):
            if len(self.rows) == BLOCK:
                self._begin_block()
            start = BLOCK * len(self.blocks)
            t, end = start + len(self.rows), min(start + BLOCK, len(self.matrix))
            weights, flat = self.matrix[t:end, t], row.reshape(-1)
            sums = torch.outer(weights, flat) if self.sums is None else torch.addr(self.sums, weights, flat)
            self.rows.append(flat)
            this, self.sums = sums.split([1, end - t - 1])
        return this.reshape(row.shape)

    def _begin_block(self) -> None:
        """Begin the sums of a new block with what they owe to the rows of all blocks before it."""
        self.blocks.append(torch.stack(self.rows))
        self.rows, self.sums = [], None
        start = BLOCK * len(self.blocks)
        parts = self.matrix[start : start + BLOCK, :start].split(BLOCK, dim=1)
        for part, rows in zip(parts, self.blocks, strict=True):
            self.sums = part @ rows if self.sums is None else torch.addmm(self.sums, part, rows)


class LayerMixing(nn.Module):
    """The weights: alphas[j] are those of x_{j+1}, on h_0 .. h_{j+1}."""

    def __init__(self, sub_blocks: int):
        super().__init__()
        self.alphas = nn.ParameterList(nn.Parameter(torch.empty(j + 2)) for j in range(sub_blocks))

    def matrix(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return M, lower triangular, in the type of hidden."""
        size = len(self.alphas) + 1
        rows, columns = torch.tril_indices(size - 1, size, 1, device=hidden.device)
        matrix = hidden.new_zeros(size, size)
        matrix[0, 0] = 1.0
        return matrix.index_put((rows + 1, columns), torch.cat(list(self.alphas)).to(matrix.dtype))

    def start(self, hidden: torch.Tensor) -> tuple[torch.Tensor, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]]:
        """Return x_0, and a function that turns (x_j, the change by the next sub-block) into x_{j+1}; all [B, T, H]."""
        sums = _WeightedSums(self.matrix(hidden))
        return sums.next(hidden), lambda x, change: sums.next(x + change)
