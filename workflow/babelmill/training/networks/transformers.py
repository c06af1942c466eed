"""Train a transformers model, with its own masked or causal class and dropout. Documents are kept apart."""

import contextlib

import torch
from accelerate import init_empty_weights
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.utils import logging as transformers_logging

from babelmill.config import schema
from babelmill.runtime import cost
from babelmill.runtime.cost import Amount
from babelmill.runtime.processes import Processes
from babelmill.tokens.vocabulary import Vocabulary
from babelmill.training.batches import MicroBatch
from babelmill.training.networks import transformers_models
from babelmill.training.networks.lora import add_adapters
from babelmill.training.networks.loss import loss
from babelmill.training.networks.network import Network
from babelmill.training.networks.transformers_check import pass_through, prove
from babelmill.training.networks.transformers_models import (
    auto_class,
    blocks_of,
    checkpoint_activations,
    counted,
    documents,
    longest_row,
    make_model,
    output_layer,
    positions,
)
from babelmill.training.optimization.gradients import ShardedGradients, Sharding, local_rows, shard
from babelmill.training.plan import randomness
from babelmill.training.plan.objectives import hides_alone, objective_of
from babelmill.training.plan.randomness import INITIALIZATION

BASE_LAYER = ".base_layer."  # peft inserts this into the names of frozen weights


class _ScoresAndLoss(nn.Module):
    """Computes scores and loss in one forward pass, since only during this pass a process has the whole output matrix.

    Position ids begin with `first_position`; None: the model counts positions by itself.
    """

    def __init__(self, model: PreTrainedModel, z_loss_weight: float, first_position: int | None):
        super().__init__()
        self.model = model
        self._z_loss_weight, self._first_position = z_loss_weight, first_position
        output_layer(model).forward = pass_through

    def forward(self, batch: MicroBatch, groups: int) -> tuple[torch.Tensor, torch.Tensor]:
        given = {"input_ids": batch.input_ids}
        if self._first_position is not None:
            given["position_ids"] = positions(batch.segments) + self._first_position
        with documents(batch.segments):
            features = self.model(**given).logits.flatten(0, 1)[batch.positions]
        layer = output_layer(self.model)  # it did nothing in the pass above
        matrix, bias = layer.weight, getattr(layer, "bias", None)
        bias = matrix.new_zeros(len(matrix)) if bias is None else bias  # pyright: ignore
        return loss(features, matrix, bias, batch, self._z_loss_weight, groups)  # pyright: ignore


class TransformersNetwork(Network):
    """Trains a transformers model, which is spread over all processes (`gradients.shard`).

    Masked classes predict hidden tokens at their own positions; causal classes predict next tokens. If `loaded`, each
    process later reads its rows of all weights from files; otherwise they begin random. A UserError says that
    transformers has no such model, or that it does not compute what training assumes.
    """

    def __init__(
        self,
        config: PreTrainedConfig,
        train: schema.Train,
        vocabulary: Vocabulary,
        processes: Processes,
        loaded: bool = False,
    ):
        transformers_logging.set_verbosity_error()  # transformers would warn of padding, which our masks hide
        self.in_place = hides_alone(objective_of(train))
        longest = max(train.sequence_lengths)
        auto = auto_class(train)
        first_position = processes.on_main(lambda: prove(config, auto, vocabulary, longest))
        torch.manual_seed(randomness.key(train.seed, INITIALIZATION))
        # Constants keep their values, which no file holds.
        with init_empty_weights(include_buffers=False) if loaded else contextlib.nullcontext():
            made = make_model(config, auto)
        made.tie_weights()  # a weight in two places became two
        self.config = {
            "architecture": "transformers",
            "auto_class": auto,
            "class": type(made).__name__,
            "vocab_size": config.vocab_size,
            "max_position_embeddings": longest_row(made),
            "config": transformers_models.as_json(config),
        }
        self._size = counted(made, output_layer(made), frozen=train.lora_rank > 0)
        if train.activation_checkpointing:
            checkpoint_activations(made)
        if train.lora_rank:
            self.frozen = True
            alpha = train.lora_alpha or 2 * train.lora_rank
            self.config["adapter"] = {"rank": train.lora_rank, "alpha": alpha}
            torch.manual_seed(randomness.key(train.seed, INITIALIZATION))  # whether or not frozen weights were drawn
            add_adapters(made, train.lora_rank, alpha, torch.bfloat16 if train.precision == "bf16" else None)
        self._spread(made, _ScoresAndLoss(made, train.z_loss_weight, first_position), train, processes)

    def _spread(self, made: nn.Module, with_loss: nn.Module, train: schema.Train, processes: Processes) -> None:
        """Spread a model, as part of a module that computes its loss, over all processes; see `gradients.shard`."""
        self._shapes = {name: parameter.shape for name, parameter in made.named_parameters()}
        plain = {name.replace(BASE_LAYER, "."): shape for name, shape in self._shapes.items()}
        self.sharding = Sharding(self._shapes | plain, processes)
        self.model, self._with_loss = made, with_loss
        shard(with_loss, blocks_of(made), processes, train)
        self._parts = {n: nn.Parameter(local_rows(p)) for n, p in made.named_parameters() if p.requires_grad}
        self.gradients = ShardedGradients(made, self._parts, self.sharding)

    def begin_step(self, number: int) -> None:
        """Do nothing: dropout uses PyTorch's generator, which the trainer seeds for each micro-batch."""

    def forward(self, batch: MicroBatch, groups: int) -> tuple[torch.Tensor, torch.Tensor]:
        result = self._with_loss(batch, groups)
        if not torch.is_grad_enabled():
            self._with_loss.reshard()  # pyright: ignore  # else FSDP2 keeps weights for a backward pass
        return result

    def flops(self, length: int, positions: float, targets: Amount) -> Amount:
        return cost.flops(self._size, length, positions, targets)

    def decays(self, name: str, parameter: nn.Parameter) -> bool:
        """Return whether a parameter has weight decay. Biases and scales of norms, which are vectors, have none."""
        return parameter.ndim > 1

    def trained(self) -> dict[str, nn.Parameter]:
        """See `Network.trained`: this process's rows."""
        return self._parts

    @property
    def parameters(self) -> int:
        """Return the number of parameters of the model, without adapters, which are merged into it later."""
        return self._size.parameters

    def begun_with(self) -> dict[str, torch.Tensor]:
        """See `Network.begun_with`: with adapters, the frozen weights, by their names in a model without adapters."""
        weights = self.weights()
        if self.config.get("adapter") is None:
            return weights
        named = dict(self.model.named_parameters(remove_duplicate=False))
        frozen = {n: local_rows(p) for n, p in self.model.named_parameters() if not p.requires_grad}
        buffers = {name: value for name, value in self.model.state_dict().items() if name not in named}
        return {name.replace(BASE_LAYER, "."): value for name, value in (frozen | buffers).items()}

    def weights(self) -> dict[str, torch.Tensor]:
        """Return the weights by their names in the class. A tied weight has its first name, as in published files.

        If a part of the model is frozen, only the trained weights are returned.
        """
        parts = {name: part.detach() for name, part in self._parts.items()}
        named = dict(self.model.named_parameters(remove_duplicate=False))
        if len(parts) < len(self._shapes):
            return parts
        return parts | {name: value for name, value in self.model.state_dict().items() if name not in named}
