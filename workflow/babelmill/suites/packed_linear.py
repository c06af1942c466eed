"""Define linear layers for scoring on a CPU. Their weights are packed for its vector units once, not at each call.

They call oneDNN, a part of PyTorch, as PyTorch's compiler would do for inference. Results differ from those of
`nn.Linear` by rounding, since sums are computed in another order.
"""

import torch
from torch import nn


def install(model: nn.Module) -> None:
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
        """Return x W^T + b."""
        return torch.ops.mkldnn._linear_pointwise(x, self._weight, self._bias, "none", [], "")
