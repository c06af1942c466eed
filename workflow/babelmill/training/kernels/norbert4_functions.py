"""Put into a NorBERT4 what training needs: dropout keyed by row, and faster functions for CPUs.

Attention is PyTorch's own, with two exceptions, where the formula is computed. PyTorch's dropout is not keyed by row,
so `model.attention_probs_dropout_prob` above 0 needs the formula. It takes more memory, and on a GPU more time. In bf16
on a CPU, the formula is faster: see `benchmarks/README.md`, "NorBERT4".
"""

import torch

from babelmill.model.attention import Visible
from babelmill.model.norbert4 import NorBERT4, attention, attention_weights
from babelmill.training.kernels import dropout, pytorch_kernels
from babelmill.training.kernels.dropout import KeyedAttention, Keys


class KeyedNorBERT4Attention(KeyedAttention):
    """Computes the attention of a NorBERT4 with dropout by row."""

    def __call__(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        visible: Visible,
        dropout: float = 0.0,
        implementation: str = "sdpa",
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Do what `norbert4.attention` does."""
        if not dropout:
            slow = query.device.type == "cpu" and query.dtype == torch.bfloat16  # PyTorch's fused attention
            return attention(query, key, value, visible, implementation="plain" if slow else implementation)
        weights = attention_weights(query, key, visible).to(value.dtype)
        kept = self.kept(weights.shape, dropout).mul_(1 / (1 - dropout))
        return (weights * kept.to(weights.dtype)) @ value, weights


def install(model: NorBERT4, keys: Keys, by_hand: bool) -> None:
    """Put dropout keyed by row and, with `by_hand`, faster functions into a model. Its weights do not change."""
    if by_hand:
        pytorch_kernels.install(model, geglu=True)
    dropout.install(model, keys, KeyedNorBERT4Attention)
