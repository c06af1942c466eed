"""Make an exported model score short rows fast: attention for items of suites, linear layers that are packed once.

The sentences of an item are equal up to some token. Up to there, the states of a causal model are equal, too. So a row
holds the common beginning once, then the rest of the first sentence, then the rest of the second, and so on. The
positions of each rest follow those of the beginning.

The scores and the operations of attention are those of `babelmill.model.attention.attention`, which is shipped. Two
things differ. Tokens may have any position. And the products with the tables of positions are made once per head, not
once per head and row, and only with the table rows of distances that occur: in short rows these products took longer
than attention itself.

Linear layers call oneDNN, a part of PyTorch, as PyTorch's compiler would do for inference on a CPU. Their results
differ from those of `nn.Linear` by rounding, since sums are computed in another order.
"""

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F


class FreePositions:
    """Computes attention of tokens that may have any position. It replaces the attention of a model."""

    def __init__(self, model: Any):
        # [B, T] int64: the positions (below T) of the tokens in the rows that are read next; None: 0, 1, 2, ... T - 1
        self.positions: torch.Tensor | None = None
        for layer in model.model.transformer.attention_layers:
            layer.attend = self

    def __call__(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        query_table: torch.Tensor,
        key_table: torch.Tensor,
        buckets: torch.Tensor,
        visible: Any,
        **_: Any,
    ) -> tuple[torch.Tensor, None]:
        """Return the weighted values as `babelmill.model.attention.attention` does, without cache and dropout."""
        first, last = int(buckets.min()), int(buckets.max())
        length, size = len(buckets), last - first + 1
        buckets = self._of_positions(buckets) - first
        places = size * torch.arange(length, device=buckets.device)
        bias = _products(query, key_table[:, first : last + 1], places[:, None] + buckets)
        bias += _products(key, query_table[:, first : last + 1], places + buckets)
        scale = 1.0 / math.sqrt(3 * query.size(-1))
        bias = bias.transpose(0, 1).mul_(scale).add_(visible.penalty)
        return F.scaled_dot_product_attention(query, key, value, bias, scale=scale) * visible.alive, None

    def _of_positions(self, buckets: torch.Tensor) -> torch.Tensor:
        """Return the row of the tables for each pair of tokens, [B or 1, T, T].

        `buckets` [T, T] are the rows for the positions 0, 1, 2, ...
        """
        if self.positions is None:
            return buckets[None]
        of_distance = torch.cat([buckets[0].flip(0), buckets[1:, 0]])  # from 1 - T to T - 1
        return of_distance[self.positions[:, :, None] - self.positions[:, None, :] + len(buckets) - 1]


def _products(states: torch.Tensor, table: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Return the products of states [B, n, T, d] with a table [n, R, d], taken at some places: [n, B, T, T].

    `places`, [B or 1, T, T], are indices into the T * R products of a row.
    """
    batch, heads, length, _ = states.shape
    found = states.transpose(1, 2).flatten(0, 1).transpose(0, 1) @ table.mT
    index = places.flatten(1).expand(heads, batch, -1)
    return found.view(heads, batch, -1).gather(2, index).unflatten(2, (length, length))


def pack_linear_layers(model: nn.Module) -> None:
    """Replace the linear layers of a model with packed ones, if PyTorch has oneDNN."""
    if not torch.backends.mkldnn.is_available():
        return
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, nn.Linear):
                setattr(module, name, PackedLinear(child))


class PackedLinear(nn.Module):
    """A linear layer for inference alone."""

    def __init__(self, layer: nn.Linear):
        super().__init__()
        self._weight = torch.ops.mkldnn._reorder_linear_weight(layer.weight.detach())
        self._bias = layer.bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.mkldnn._linear_pointwise(x, self._weight, self._bias, "none", [], "")
