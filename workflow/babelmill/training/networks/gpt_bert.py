"""Train our own architectures: with keyed dropout, flat gradients, and compiled functions on CUDA.

A process holds the whole model. A GPT-BERT gets faster functions by hand. A NorBERT4 has PyTorch's own attention;
documents are kept apart by the same mask, and the windows of its local layers come on top of it (`model/norbert4.py`).
"""

import functools
from dataclasses import asdict
from typing import Any

import torch
from torch import nn

from babelmill.config import models, schema
from babelmill.config.models import gpt_bert, with_our_names
from babelmill.model.gpt_bert import GPTBert, training_mask
from babelmill.model.norbert4 import LARGEST, SHARPNESS, NorBERT4, NorBERT4Shape
from babelmill.runtime.processes import Processes
from babelmill.training.batches import MicroBatch
from babelmill.training.kernels import dropout
from babelmill.training.kernels.compilation import Graphs
from babelmill.training.kernels.dropout import KeyedNorBERT4Attention, Keys
from babelmill.training.kernels.install import install
from babelmill.training.networks.loss import FromScores, from_scores, loss
from babelmill.training.networks.network import Network
from babelmill.training.optimization.gradients import FlatGradients, Sharding
from babelmill.training.plan import randomness
from babelmill.training.plan.randomness import INITIALIZATION


class GPTBertNetwork(Network):
    """Trains a GPT-BERT, with faster functions than the shipped ones (`kernels/install.py`).

    A subclass trains another architecture of ours, with other methods `_make`, `_encode` and `_batched`.

    Args:
        shape: the shape of the model.
        train: seed, precision and so on.
        processes: this process among the others.
        graphs: compiles functions; None: nothing is compiled.
    """

    model: Any  # a model of ours
    _from_scores: FromScores = staticmethod(from_scores)

    def __init__(self, shape: Any, train: schema.Train, processes: Processes, graphs: Graphs | None = None):
        self._train, self._device, self.compiled = train, processes.device, graphs
        self.keys = Keys(train.seed, self._device)
        torch.manual_seed(randomness.key(train.seed, INITIALIZATION))
        self.model, blocks = self._make(shape, processes)
        self._classifier, self._embedding = self.model.classifier, self.model.embedding.word_embedding
        self.gradients, self.sharding = FlatGradients(self.model, processes), Sharding({}, processes)
        if graphs is not None:
            for block in blocks:
                block.forward = graphs.of(block.forward, self._batched)
            features = self._classifier.features
            self._classifier.features = graphs.of(features, lambda hidden: [hidden, self.keys.targets])
            self._from_scores = graphs.of(self._from_scores, lambda *given: given[:3])  # scores, targets, weights

    def _make(self, shape: Any, processes: Processes) -> tuple[Any, list[nn.Module]]:
        """Return the model, and its blocks, which are compiled one by one; set what depends on the architecture."""
        self.size, self.config = gpt_bert(shape, shape.vocab_size), asdict(shape)
        model = GPTBert(shape, self._train.activation_checkpointing).to(self._device)
        compiled = self.compiled is not None
        # Our kernels leave out what no query sees.
        self._needs_spans = install(model, self.keys, processes, self._train.precision, compiled)
        self._buckets = functools.cache(model.buckets)  # computing them takes a hundred small kernels
        # With checkpointing, PyTorch reads the state of its generator, which it cannot do in a recording.
        self.recordable = self._device.type == "cuda" and not self._train.activation_checkpointing
        return model, [*model.transformer.attention_layers, *model.transformer.mlp_layers]

    def _batched(self, hidden: torch.Tensor, *more: Any) -> list[torch.Tensor]:
        """Return those inputs of a block whose first dimension is the rows. GPT-BERT's attention has `more`."""
        spans = [] if self.keys.spans is None else [self.keys.spans]
        return [hidden, self.keys.rows, *spans, *(more[2] if more else ())]

    def begin_step(self, number: int) -> None:
        """Set the dropout key that all rows of step `number` share."""
        self.keys.begin_step(number)

    def forward(self, batch: MicroBatch, groups: int) -> tuple[torch.Tensor, torch.Tensor]:
        """See `Network.forward`."""
        with torch.autocast(self._device.type, torch.bfloat16, enabled=self._train.precision == "bf16"):
            hidden = self._encode(batch, training_mask(batch.segments, batch.causal))
            features = self._classifier.features(hidden.flatten(0, 1).index_select(0, batch.positions))
            layer = self._embedding.weight, self._classifier.bias
            return loss(features, *layer, batch, self._train.z_loss_weight, groups, self._from_scores)

    def _encode(self, batch: MicroBatch, seen: torch.Tensor) -> torch.Tensor:
        """Return the hidden states [B, T, H] of a micro-batch, in which each token attends to what is `seen`."""
        length = batch.input_ids.size(1)
        self.keys.begin_pass(batch.dropout, batch.positions, length, seen if self._needs_spans else None)
        return self.model.encode(batch.input_ids, seen, buckets=self._buckets(length, self._device))


def from_scores_to_cap(
    scores: torch.Tensor, targets: torch.Tensor, weights: torch.Tensor, z_loss_weight: float, learning: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Do what `loss.from_scores` does, for scores that have yet to be capped, as `norbert4.Classifier` does.

    The gradient of a sigmoid(s / b) is a / b sigmoid (1 - sigmoid).
    """
    squashed = torch.sigmoid(scores.to(torch.promote_types(scores.dtype, torch.float32)) / SHARPNESS)
    total, statistics, gradient = from_scores(squashed * LARGEST, targets, weights, z_loss_weight, learning)
    if gradient is None:
        return total, statistics, None
    slope = torch.addcmul(squashed, squashed, squashed, value=-1)
    return total, statistics, (gradient * slope * (LARGEST / SHARPNESS)).to(scores.dtype)


def size_of(shape: NorBERT4Shape) -> models.Size:
    """Return the size of a model of a shape."""
    heads = shape.num_attention_heads
    widths = heads * shape.query_key_head_size, heads * shape.value_head_size
    return models.norbert4(
        shape.vocab_size, shape.hidden_size, shape.intermediate_size, heads, shape.num_layers, *widths
    )


class NorBERT4Network(GPTBertNetwork):
    """Trains a NorBERT4. It has no functions by hand, but attention of its own."""

    _from_scores = staticmethod(from_scores_to_cap)

    def _make(self, shape: Any, processes: Processes) -> tuple[Any, list[nn.Module]]:
        self.size, self.config = size_of(shape), {"architecture": "norbert4"} | with_our_names(asdict(shape))
        model = NorBERT4(shape, self._train.activation_checkpointing).to(self._device)
        dropout.install(model, self.keys, KeyedNorBERT4Attention)
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
