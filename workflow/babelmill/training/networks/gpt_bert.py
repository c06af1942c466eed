"""Train a GPT-BERT: with keyed dropout, faster functions by hand, flat gradients, and compiled functions on CUDA."""

import functools
from dataclasses import asdict
from typing import Any

import torch

from babelmill.config import schema
from babelmill.config.model_size import gpt_bert
from babelmill.model.gpt_bert import GPTBert, GPTBertShape, training_mask
from babelmill.runtime import cost
from babelmill.runtime.cost import Amount
from babelmill.runtime.processes import Processes
from babelmill.training.batches.token_batches import MicroBatch
from babelmill.training.kernels.compilation import Graphs
from babelmill.training.kernels.dropout import Keys
from babelmill.training.kernels.install import install
from babelmill.training.networks.loss import by_target, from_scores, loss
from babelmill.training.networks.network import Network
from babelmill.training.optimization.gradients import FlatGradients
from babelmill.training.optimization.sharding import Sharding
from babelmill.training.plan import randomness
from babelmill.training.plan.randomness import INITIALIZATION


class GPTBertNetwork(Network):
    """Trains a GPT-BERT, by default with faster functions than the shipped ones (`by_hand`, `kernels/install.py`)."""

    def __init__(
        self,
        shape: GPTBertShape,
        train: schema.Train,
        processes: Processes,
        by_hand: bool = True,
        graphs: Graphs | None = None,
    ):
        self._size, self._train, self._device = gpt_bert(shape, shape.vocab_size), train, processes.device
        torch.manual_seed(randomness.key(train.seed, INITIALIZATION))
        model = GPTBert(shape, train.activation_checkpointing).to(self._device)
        self.keys = Keys(train.seed, self._device)
        used = install(model, self.keys, processes, train.precision, by_hand, graphs is not None)
        self._needs_spans = "attention" in used  # our kernels leave out what no query sees
        self.model = self._gpt_bert = model
        self._buckets = functools.cache(model.buckets)  # computing them takes a hundred small kernels
        self.gradients, self.sharding = FlatGradients(model, processes), Sharding({}, processes)
        self.config = asdict(shape)
        # With checkpointing, PyTorch reads the state of its generator, which it cannot do in a recording.
        self.recordable = self._device.type == "cuda" and not train.activation_checkpointing
        self._from_scores = from_scores
        self.compiled = graphs
        if graphs is not None:
            for block in (*model.transformer.attention_layers, *model.transformer.mlp_layers):
                block.forward = graphs.of(block.forward, self._batched)
            classifier = model.classifier
            classifier.features = graphs.of(classifier.features, lambda hidden: [hidden, self.keys.targets])
            self._from_scores = graphs.of(from_scores, by_target)

    def _batched(self, hidden: torch.Tensor, *attention: Any) -> list[torch.Tensor]:
        """Return a block's tensors whose first dimension is the rows; `attention`: the inputs of attention alone."""
        return [hidden, self.keys.rows, self.keys.spans, *(attention[2] if attention else ())]

    def begin_step(self, number: int) -> None:
        """Set the dropout key that all rows of step `number` share."""
        self.keys.begin_step(number)

    def forward(self, batch: MicroBatch, groups: int) -> tuple[torch.Tensor, torch.Tensor]:
        model = self._gpt_bert
        with torch.autocast(self._device.type, torch.bfloat16, enabled=self._train.precision == "bf16"):
            seen, length = training_mask(batch.segments, batch.causal), batch.input_ids.size(1)
            self.keys.begin_pass(batch.dropout, batch.positions, length, seen if self._needs_spans else None)
            hidden = model.encode(batch.input_ids, seen, buckets=self._buckets(length, self._device))
            features = model.classifier.features(hidden.flatten(0, 1).index_select(0, batch.positions))
            matrix, bias = model.embedding.word_embedding.weight, model.classifier.bias
            return loss(features, matrix, bias, batch, self._train.z_loss_weight, groups, self._from_scores)

    def flops(self, length: int, positions: float, targets: Amount) -> Amount:
        return cost.flops(self._size, length, positions, targets)
