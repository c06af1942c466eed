"""A model of transformers in training: its own masked or causal class, its own dropout, documents kept apart."""

import copy

import torch
from torch import nn
from transformers import PreTrainedConfig
from transformers.utils import logging

from babelmill.config import schema
from babelmill.runtime import cost
from babelmill.runtime.cost import Amount
from babelmill.runtime.processes import Processes
from babelmill.tokens.vocabulary import Vocabulary
from babelmill.training import randomness, transformers_models
from babelmill.training.batches import MicroBatch
from babelmill.training.document_masks import documents, positions
from babelmill.training.gradients import FlatGradients
from babelmill.training.loss import loss
from babelmill.training.network import Network
from babelmill.training.objectives import hides_alone, objective_of
from babelmill.training.randomness import INITIALIZATION
from babelmill.training.transformers_models import (
    blocks_of,
    checkpoint_activations,
    longest_row,
    make_model,
    output_layer,
)
from babelmill.training.transformers_proof import Proof
from babelmill.training.transformers_size import counted


class TransformersNetwork(Network):
    """A model of transformers and its moving average.

    Masked classes predict hidden tokens where they stand, causal classes next tokens.

    Args:
        config: of the model.
        train: objective, seed, precision and so on.
        vocabulary: of the workflow's tokenizer.
        processes: this process among the others.

    Raises:
        UserError: transformers has no such model, or it does not compute what training assumes.
    """

    whole_micro_batches = True

    def __init__(self, config: PreTrainedConfig, train: schema.Train, vocabulary: Vocabulary, processes: Processes):
        logging.set_verbosity_error()  # it warns of padding that is masked by document
        self._train, self._device = train, processes.device
        self.in_place = hides_alone(objective_of(train))
        torch.manual_seed(randomness.key(train.seed, INITIALIZATION))
        made = make_model(config, self.in_place)
        longest = max(train.sequence_lengths)
        self._first_position = Proof(made, self.in_place, vocabulary, longest).run()
        self.average = nn.Module.to(copy.deepcopy(made).requires_grad_(False).eval(), self._device)
        self._size = counted(made)
        if train.activation_checkpointing:
            checkpoint_activations(made)
        self.model = nn.Module.to(made, self._device)
        self.gradients = FlatGradients(self.model, processes)
        self.blocks = blocks_of(self.model)
        self.config = {
            "architecture": "transformers",
            "auto_class": transformers_models.auto_class(self.in_place),
            "class": type(made).__name__,
            "vocab_size": config.vocab_size,
            "max_position_embeddings": longest_row(made),
            "config": transformers_models.as_json(config),
        }

    def begin_step(self, number: int) -> None:
        """Do nothing: what is dropped is drawn from PyTorch's generator, which the trainer seeds by micro-batch."""

    def compile(self) -> None:
        """Do nothing: these models run as transformers has them."""

    def forward(self, batch: MicroBatch, groups: int, average: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
        """See `Network.forward`."""
        model = self.average if average else self.model
        with torch.autocast(self._device.type, torch.bfloat16, enabled=self._train.precision == "bf16"):
            given = {"input_ids": batch.input_ids}
            if self._first_position is not None:
                given["position_ids"] = positions(batch.segments) + self._first_position
            with documents(batch.segments):
                features = model(**given).logits.flatten(0, 1)[batch.positions]
            layer = output_layer(model)  # pyright: ignore[reportArgumentType]
            matrix, bias = layer.weight, getattr(layer, "bias", None)
            bias = matrix.new_zeros(len(matrix)) if bias is None else bias  # pyright: ignore
            return loss(features, matrix, bias, batch, self._train.z_loss_weight, groups)  # pyright: ignore

    def flops(self, length: int, positions: float, targets: Amount) -> Amount:
        """See `Network.flops`."""
        return cost.flops(self._size, 0, length, positions, targets)

    def decays(self, name: str, parameter: nn.Parameter) -> bool:
        """Return whether a parameter is no bias and no scale of a norm: these have one dimension in all models."""
        return parameter.ndim > 1

    def weights(self, average: bool = False) -> dict[str, torch.Tensor]:
        """Return the weights by the names of the class; a tied one under its first name, as it is published."""
        model = self.average if average else self.model
        every = {name for name, _ in model.named_parameters(remove_duplicate=False)}
        buffers = {name: value for name, value in model.state_dict().items() if name not in every}
        return {name: parameter.detach() for name, parameter in model.named_parameters()} | buffers

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        """See `Network.load`."""
        for prefix, average in (("model.", False), ("average.", True)):
            found = {n.removeprefix(prefix): tensor for n, tensor in tensors.items() if n.startswith(prefix)}
            mine = self.weights(average)
            if found.keys() != mine.keys():
                raise ValueError(f"the weights are not those of this model: {sorted(found.keys() ^ mine.keys())[:5]}")
            for name, tensor in mine.items():
                tensor.copy_(found[name])
