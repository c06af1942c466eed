"""Train a NorBERT4: as a GPT-BERT, with keyed dropout and flat gradients, but with PyTorch's own attention.

A process holds the whole model. Documents are kept apart by the mask of GPT-BERT's training; the windows of local
layers come on top of it (`model/norbert4.py`).
"""

from dataclasses import asdict
from typing import Any

import torch
from torch import nn

from babelmill.config import model_size, schema
from babelmill.config.model_source import with_our_names
from babelmill.model.gpt_bert import training_mask
from babelmill.model.norbert4 import LARGEST, SHARPNESS, NorBERT4, NorBERT4Shape
from babelmill.runtime import cost
from babelmill.runtime.cost import Amount
from babelmill.runtime.processes import Processes
from babelmill.training.batches.token_batches import MicroBatch
from babelmill.training.kernels.compilation import Graphs
from babelmill.training.kernels.dropout import Keys
from babelmill.training.kernels.norbert4_functions import install
from babelmill.training.networks.loss import by_target, from_scores, loss
from babelmill.training.networks.network import Network
from babelmill.training.optimization.gradients import FlatGradients
from babelmill.training.optimization.sharding import Sharding
from babelmill.training.plan import randomness
from babelmill.training.plan.randomness import INITIALIZATION


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


class NorBERT4Network(Network):
    """Trains a NorBERT4.

    Args:
        shape: the shape of the model.
        train: seed, precision and so on.
        processes: this process among the others.
        by_hand: use faster functions in the feed-forward blocks on a CPU; False: use the shipped operations there. For
            attention, see `kernels/norbert4_functions.py`.
        graphs: compiles functions; None: nothing is compiled.
    """

    def __init__(
        self,
        shape: NorBERT4Shape,
        train: schema.Train,
        processes: Processes,
        by_hand: bool = True,
        graphs: Graphs | None = None,
    ):
        self._train, self._device, self._size = train, processes.device, size_of(shape)
        torch.manual_seed(randomness.key(train.seed, INITIALIZATION))
        model = NorBERT4(shape, train.activation_checkpointing).to(self._device)
        self.keys = Keys(train.seed, self._device)
        install(model, self.keys, by_hand and self._device.type == "cpu" and graphs is None)
        self.model = self._norbert4 = model
        self.gradients, self.sharding = FlatGradients(model, processes), Sharding({}, processes)
        self.config = {"architecture": "norbert4"} | with_our_names(asdict(shape))
        self._from_scores = from_scores_to_cap
        self.compiled = graphs
        if graphs is not None:
            for layer in model.encoder.layers:
                layer.forward = graphs.of(layer.forward, self._batched)
            classifier = model.classifier
            classifier.features = graphs.of(classifier.features, lambda hidden: [hidden, self.keys.targets])
            self._from_scores = graphs.of(from_scores_to_cap, by_target)

    def _batched(
        self, hidden: torch.Tensor, embeddings: torch.Tensor, first: torch.Tensor | None, sight: Any, *_: Any
    ) -> list[torch.Tensor]:
        """Return a layer's tensors whose first dimension is the rows."""
        given = [hidden, embeddings, self.keys.rows, *sight.visible]
        return given if first is None else [*given, first]

    def begin_step(self, number: int) -> None:
        """Set the dropout key that all rows of step `number` share."""
        self.keys.begin_step(number)

    def forward(self, batch: MicroBatch, groups: int) -> tuple[torch.Tensor, torch.Tensor]:
        """See `Network.forward`."""
        model = self._norbert4
        with torch.autocast(self._device.type, torch.bfloat16, enabled=self._train.precision == "bf16"):
            seen = training_mask(batch.segments, batch.causal)
            self.keys.begin_pass(batch.dropout, batch.positions, batch.input_ids.size(1))
            hidden = model.encode(batch.input_ids, seen)
            features = model.classifier.features(hidden.flatten(0, 1).index_select(0, batch.positions))
            matrix, bias = model.embedding.word_embedding.weight, model.classifier.bias
            return loss(features, matrix, bias, batch, self._train.z_loss_weight, groups, self._from_scores)

    def flops(self, length: int, positions: float, targets: Amount) -> Amount:
        """See `Network.flops`."""
        return cost.flops(self._size, length, positions, targets)

    def decays(self, name: str, parameter: nn.Parameter) -> bool:
        """Return whether a parameter has weight decay: matrices have, scales and lambdas do not."""
        return name.endswith(".weight") or ".weights." in name

    def matrices(self) -> set[str]:
        """Return the names of the matrices of the layers: there, only matrices have weight decay."""
        named = self.model.named_parameters()
        return {name for name, parameter in named if ".layers." in name and self.decays(name, parameter)}
