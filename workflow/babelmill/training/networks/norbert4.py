"""Train a NorBERT4: as a GPT-BERT, with keyed dropout and flat gradients, but with PyTorch's own attention.

A process holds the whole model. Documents are kept apart by the mask of GPT-BERT's training; the windows of local
layers come on top of it (`model/norbert4.py`).
"""

from dataclasses import asdict
from typing import Any

import torch
from torch import nn

from babelmill.config import model_size
from babelmill.config.model_source import with_our_names
from babelmill.model.norbert4 import LARGEST, SHARPNESS, NorBERT4, NorBERT4Shape
from babelmill.runtime.processes import Processes
from babelmill.training.batches.token_batches import MicroBatch
from babelmill.training.kernels.norbert4_functions import install
from babelmill.training.networks.gpt_bert import GPTBertNetwork
from babelmill.training.networks.loss import from_scores


def from_scores_to_cap(
    scores: torch.Tensor, targets: torch.Tensor, weights: torch.Tensor, z_loss_weight: float, learning: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Do what `loss.from_scores` does, for scores that have yet to be capped (`norbert4.capped`).

    The gradient of a sigmoid(s / b) is a / b sigmoid (1 - sigmoid).
    """
    squashed = torch.sigmoid(scores.to(torch.promote_types(scores.dtype, torch.float32)) / SHARPNESS)
    total, statistics, gradient = from_scores(squashed * LARGEST, targets, weights, z_loss_weight, learning)
    if gradient is None:
        return total, statistics, None
    slope = torch.addcmul(squashed, squashed, squashed, value=-1)
    return total, statistics, (gradient * slope * (LARGEST / SHARPNESS)).to(scores.dtype)


def size_of(shape: NorBERT4Shape) -> model_size.Size:
    """Return the size of a model of a shape."""
    heads = shape.num_attention_heads
    widths = heads * shape.query_key_head_size, heads * shape.value_head_size
    return model_size.norbert4(
        shape.vocab_size, shape.hidden_size, shape.intermediate_size, heads, shape.num_layers, *widths
    )


class NorBERT4Network(GPTBertNetwork):
    """Trains a NorBERT4. It has no functions by hand, but attention of its own, see `norbert4_functions.py`."""

    _from_scores = staticmethod(from_scores_to_cap)

    def _make(self, shape: Any, processes: Processes, by_hand: bool) -> tuple[Any, list[nn.Module]]:
        self._size, self.config = size_of(shape), {"architecture": "norbert4"} | with_our_names(asdict(shape))
        model = NorBERT4(shape, self._train.activation_checkpointing).to(self._device)
        install(model, self.keys)
        return model, [*model.encoder.layers]

    def _batched(self, hidden: torch.Tensor, *more: Any) -> list[torch.Tensor]:
        embeddings, first, sight = more[:3]
        given = [hidden, embeddings, self.keys.rows, *sight.visible]
        return given if first is None else [*given, first]

    def _encode(self, batch: MicroBatch, seen: torch.Tensor) -> torch.Tensor:
        self.keys.begin_pass(batch.dropout, batch.positions, batch.input_ids.size(1))
        return self.model.encode(batch.input_ids, seen)

    def decays(self, name: str, parameter: nn.Parameter) -> bool:
        """Return whether a parameter has weight decay: matrices have, scales and lambdas do not."""
        return name.endswith(".weight") or ".weights." in name

    def matrices(self) -> set[str]:
        """Return the names of the matrices of the layers: there, only matrices have weight decay."""
        named = self.model.named_parameters()
        return {name for name, parameter in named if ".layers." in name and self.decays(name, parameter)}
