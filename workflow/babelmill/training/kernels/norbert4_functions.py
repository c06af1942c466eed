"""Put into a NorBERT4 what training needs: dropout keyed by row.

Attention is PyTorch's own, with two exceptions, where the formula is computed. PyTorch's dropout is not keyed by row,
so `model.attention_probs_dropout_prob` above 0 needs the formula. It takes more memory, and on a GPU more time. In bf16
on a CPU, the formula is faster for rows of up to 512 tokens: see `benchmarks/README.md`, "NorBERT4".
"""

import torch

from babelmill.model.attention import Visible
from babelmill.model.norbert4 import NorBERT4, attention, attention_weights
from babelmill.training.kernels import dropout
from babelmill.training.kernels.dropout import KeyedAttention, Keys

SHORT = 512  # tokens; in longer rows, PyTorch's fused attention is faster than the formula


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
        wanted = implementation != "sdpa"  # otherwise weights are not returned: the encoder would keep all layers' ones
        if not dropout:
            short = query.device.type == "cpu" and query.dtype == torch.bfloat16 and key.size(-2) <= SHORT
            how = "plain" if short else implementation
            context, weights = attention(query, key, value, visible, implementation=how)
            return context, weights if wanted else None
        weights = attention_weights(query, key, visible).to(value.dtype)
        kept = self.kept(weights.shape, dropout).mul_(1 / (1 - dropout))
        return (weights * kept.to(weights.dtype)) @ value, weights if wanted else None


def install(model: NorBERT4, keys: Keys) -> None:
    """Put dropout keyed by row, and its attention, into a model; its weights stay."""
    dropout.install(model, keys, KeyedNorBERT4Attention)
