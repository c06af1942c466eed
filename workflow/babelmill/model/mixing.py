"""Compute layer mixing (DenseFormer, Pagliardini et al., 2024, arXiv:2402.02622).

The input of each sub-block is a weighted sum of all earlier outputs: x_j = sum_{i <= j} M[j, i] h_i, where h_0 is the
embedding, h_j the output of the j-th sub-block, and x_j the input of the next one. Computed term by term, 12 layers
would need 324 passes over a hidden state. So the x are computed in blocks of BLOCK. One matrix product per earlier
block adds its h to all x of this block. As soon as an h of this block is known, an outer product adds it to the x that
are still to come. All these are ordinary operations of PyTorch, so gradients (of any order), `torch.func`, tracing,
compiling and exporting work.

This file is shipped inside exported models: it imports nothing but torch.
"""

from collections.abc import Callable

import torch
from torch import nn

BLOCK = 7  # rows per block; for 25 rows, 5 and 6 were measured to be about as fast


class _WeightedSums:
    """Computes y_t = sum_{u <= t} matrix[t, u] row_u, where row_t becomes known just before y_t is needed.

    Args:
        matrix: [S, S], lower triangular.
    """

    def __init__(self, matrix: torch.Tensor):
        self.matrix = matrix
        self.blocks: list[torch.Tensor] = []  # rows of the blocks before this one, each [BLOCK, N]
        self.rows: list[torch.Tensor] = []  # the rows of this block so far, each [N]
        self.sums: torch.Tensor | None = None  # the part of this block's next y that is known, [.., N]

    def next(self, row: torch.Tensor) -> torch.Tensor:
        """Return y_t for row_t. Both have the same shape."""
        with torch.autocast(row.device.type, enabled=False):
            if len(self.rows) == BLOCK:
                self._begin_block()
            start = BLOCK * len(self.blocks)
            t, end = start + len(self.rows), min(start + BLOCK, len(self.matrix))
            weights, flat = self.matrix[t:end, t], row.reshape(-1)
            # An outer product, as a matrix product: its gradients are some, too.
            sums = weights[:, None] @ flat[None] if self.sums is None else torch.addr(self.sums, weights, flat)
            self.rows.append(flat)
            this, self.sums = sums.split([1, end - t - 1])
        return this.reshape(row.shape).clone()  # a part of `sums` would keep all of them in memory

    def _begin_block(self) -> None:
        """Begin a new block: compute the part of its sums that comes from the rows of all earlier blocks."""
        self.blocks.append(torch.stack(self.rows))
        self.rows, self.sums = [], None
        start = BLOCK * len(self.blocks)
        parts = self.matrix[start : start + BLOCK, :start].split(BLOCK, dim=1)
        for part, rows in zip(parts, self.blocks, strict=True):
            self.sums = part @ rows if self.sums is None else torch.addmm(self.sums, part, rows)


class LayerMixing(nn.Module):
    """Holds the weights: alphas[j] are the weights of h_0 .. h_{j+1} in x_{j+1}."""

    def __init__(self, sub_blocks: int):
        super().__init__()
        self.alphas = nn.ParameterList(nn.Parameter(torch.empty(j + 2)) for j in range(sub_blocks))

    def matrix(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return M, which is lower triangular, in the type of `hidden`."""
        size = len(self.alphas) + 1
        rows, columns = torch.tril_indices(size - 1, size, 1, device=hidden.device)
        matrix = hidden.new_zeros(size, size)
        matrix[0, 0].fill_(1.0)  # an assignment would copy the number from the host, and wait for the device
        return matrix.index_put((rows + 1, columns), torch.cat(list(self.alphas)).to(matrix.dtype))

    def start(self, hidden: torch.Tensor) -> tuple[torch.Tensor, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]]:
        """Return x_0, and a function of x_j and the next sub-block's change that returns x_{j+1}; all are [B, T, H]."""
        sums = _WeightedSums(self.matrix(hidden))
        return sums.next(hidden), lambda x, change: sums.next(x + change)
