"""Define and train a label model: an encoder with its classifier, and a decoder that spells the codes."""

from collections.abc import Collection, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.utils import logging

from babelmill.config import schema
from babelmill.core.files import UserError
from babelmill.labels.codes import BEGIN, PAD, Codes
from babelmill.labels.data import LabelBatch
from babelmill.model.code_decoder import CodeDecoder, padded
from babelmill.model.transformers.configuration_gpt_bert import GPTBertConfig
from babelmill.model.transformers.modeling_gpt_bert import GPTBertForSequenceClassification
from babelmill.runtime.processes import Processes
from babelmill.stages import TrainStage
from babelmill.tokens.vocabulary import Vocabulary
from babelmill.training.networks import transformers_models
from babelmill.training.networks.loss import STATISTICS
from babelmill.training.networks.source_weights import shape_of
from babelmill.training.networks.transformers import TransformersNetwork
from babelmill.training.networks.transformers_models import (
    CLASSIFIER,
    checkpoint_activations,
    config_to_train,
    counted,
    from_json,
    longest_row,
    make_model,
    refused,
)
from babelmill.training.optimization.gradients import local_rows
from babelmill.training.plan import randomness
from babelmill.training.plan.randomness import INITIALIZATION

ENCODER = "encoder."  # prefix of the names of the encoder's weights
TOLERANCE = 1e-4  # how much padding may change a score, relative to the largest score


# The model.


class Labeller(nn.Module):
    """Computes the scores of an encoder's classifier, a `...ForSequenceClassification` model, and of a new decoder.

    The decoder is None if codes are not spelt. `about`: `labels` in config.json.
    """

    def __init__(self, encoder: PreTrainedModel, about: dict[str, Any]):
        super().__init__()
        self.encoder, self.decoder = encoder, None
        if layers := about["decoder_layers"]:
            longest = about["blocks"] * about["block_size"]
            self.decoder = CodeDecoder(about["entries"], encoder.config.hidden_size, layers, longest)
        self._hidden: torch.Tensor | None = None
        encoder.base_model.register_forward_hook(self._keep)

    def _keep(self, _module: nn.Module, _args: Any, output: Any) -> None:
        self._hidden = output[0]

    def forward(
        self, input_ids: torch.Tensor, seen: torch.Tensor, blocks: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return the scores of the classes, [B, K], and of the symbols of the blocks, [B, n s, V]."""
        input_ids, seen = padded(input_ids, seen, self.encoder.config)
        scores = self.encoder(input_ids=input_ids, attention_mask=seen.long()).logits
        if self.decoder is None:
            return scores, None
        hidden, self._hidden = self._hidden, None
        assert hidden is not None
        symbols = blocks.flatten(1)
        begin = torch.full_like(symbols[:, :1], BEGIN)
        return scores, self.decoder(hidden, seen, torch.cat([begin, symbols[:, :-1]], 1))


def encoder_from(values: dict[str, Any], classes: int) -> PreTrainedConfig:
    """Return an encoder's configuration from the values of config.json beside the trained weights."""
    ours = values["model_type"] == GPTBertConfig.model_type
    own = {key: value for key, value in values.items() if key != "model_type"}
    config = GPTBertConfig(**own) if ours else from_json(values)
    config.num_labels = classes
    return config


def make_encoder(config: PreTrainedConfig) -> PreTrainedModel:
    """Return a new encoder with a classifier and random weights."""
    if isinstance(config, GPTBertConfig):
        return GPTBertForSequenceClassification(config)
    return make_model(config, CLASSIFIER)


def names_in_source(
    encoder: PreTrainedModel, wanted: Iterable[str], there: Collection[str], where: str, heads: tuple[str, ...] = ()
) -> dict[str, str]:
    """Return {name in the encoder: name in the source}, without poolers that the source lacks.

    The `wanted` names are those of the encoder's class, which calls the encoder without its classifier
    `base_model_prefix`. The names in the source may lack this prefix, and may include a language model's head. Of
    weights without the prefix, only those whose names begin with one of `heads` are read. A UserError says that the
    source lacks a weight of the encoder.
    """
    found, prefix = {}, f"{encoder.base_model_prefix}."
    for name in wanted:
        if not name.startswith((prefix, *heads)):
            continue
        short = name.removeprefix(prefix)
        if theirs := next((each for each in (name, short) if each in there), None):
            found[name] = theirs
        elif ".pooler." not in f".{name}":
            raise UserError(f"{where}: {short} is missing: these are not the weights of this encoder")
    return found


# Its training.


def block_losses(logits: torch.Tensor, blocks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return losses of codes, [B, n], and of empty blocks that do not depend on the order of the codes.

    This is the loss of OccCANINE (Dahl et al., 2024, arXiv:2402.13604). "Farmer and fisher" has two codes, and their
    order has no meaning. So each of a text's k codes is compared with each of the first k blocks that the model
    predicts, by the mean cross-entropy of the code's symbols. The smallest of these k numbers is the loss of the code;
    at empty blocks it is 0. The blocks after the k-th are trained to be empty: [B] holds the sum of their mean
    cross-entropies, divided by n.

    Only the first k blocks count. In training, the decoder sees the earlier codes, so it could otherwise repeat them in
    a later block. The published code divides by the largest number of codes of a text in the batch. Here a batch may be
    cut between any two rows, so losses are returned per code and per row.

    `logits` [B, n s, V] score the symbols of n blocks with s symbols each; `blocks` [B, n, s] int64 are the symbols of
    each row's codes, and hold only `PAD` after its last code.
    """
    rows, count, size = blocks.shape
    log_probabilities = logits.view(rows, count, size, -1).log_softmax(-1)
    empty = (blocks == PAD).all(-1)
    with torch.no_grad():
        shape = rows, count, count, size  # predicted block, code
        index = blocks[:, None].expand(shape)[..., None]
        costs = -log_probabilities[:, :, None].expand(*shape, -1).gather(-1, index).sum((-1, -2))
        best = costs.masked_fill(empty[:, :, None], torch.inf).argmin(1)  # [rows, code]
    row, place = torch.arange(rows, device=blocks.device), torch.arange(size, device=blocks.device)
    chosen = log_probabilities[row[:, None, None], best[:, :, None], place, blocks]
    of_codes = -(chosen.mean(-1)).masked_fill(empty, 0)
    of_empty = -(log_probabilities[..., PAD].mean(-1)).masked_fill(~empty, 0)
    return of_codes, of_empty.sum(1) / count


class WithLabelLoss(nn.Module):
    """Computes the scores of a model, and then the loss. Classes are `exclusive` if each text has one code."""

    def __init__(self, model: Labeller, exclusive: bool):
        super().__init__()
        self.model, self._exclusive = model, exclusive

    def forward(self, batch: LabelBatch, groups: int) -> tuple[torch.Tensor, torch.Tensor]:
        of_codes, of_rows, of_empty = batch.weights
        scores, symbols = self.model(batch.input_ids, batch.seen, batch.blocks)
        sums = torch.zeros(groups, len(STATISTICS), dtype=torch.float64, device=scores.device)
        learns = batch.classes.amax(1)
        losses = learns * self._classes(scores.float(), batch.classes)
        best = batch.classes.gather(1, scores.argmax(1, keepdim=True))[:, 0]
        _add(sums, 2 * batch.languages + 1, losses, best)
        total = of_rows * losses.sum()
        if symbols is not None:
            spelt, empty = block_losses(symbols.float(), batch.blocks)
            total = total + of_codes * spelt.sum() + of_empty * (learns * empty).sum()
            _add(sums, 2 * batch.languages, spelt.sum(1), right_codes(symbols, batch.blocks))
        return total, sums

    def _classes(self, scores: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        """Return the loss of each row, [B]."""
        if not self._exclusive:
            return F.binary_cross_entropy_with_logits(scores, classes, reduction="none").mean(1)
        return -(classes * scores.log_softmax(1)).sum(1)


def _add(sums: torch.Tensor, groups: torch.Tensor, losses: torch.Tensor, right: torch.Tensor) -> None:
    """Add losses and numbers of right predictions, both [B], to the sums of their groups."""
    found = torch.stack([losses.detach(), torch.zeros_like(losses), right.to(losses.dtype)], 1)
    sums.index_add_(0, groups, found.double())


def right_codes(symbols: torch.Tensor, blocks: torch.Tensor) -> torch.Tensor:
    """Return how many of a row's k codes are among its first k blocks of likeliest symbols, [B]."""
    rows, count, size = blocks.shape
    empty = (blocks == PAD).all(2)
    found = symbols.argmax(2).view(rows, count, 1, size)
    same = (found == blocks[:, None]).all(3) & ~empty[:, :, None] & ~empty[:, None]
    return same.any(1).sum(1)


class LabelsNetwork(TransformersNetwork):
    """Trains a label model, which is spread over all processes (`gradients.shard`).

    A text has at most `blocks` codes. `heads` are prefixes of the names of weights that are read from the source
    (`Begun`). A UserError says that transformers has no classifier for this encoder, or that padding changes its
    scores.
    """

    def __init__(
        self,
        config: PreTrainedConfig,
        train: schema.Train,
        labels: schema.Labels,
        codes: Codes,
        blocks: int,
        processes: Processes,
        heads: tuple[str, ...] = (),
    ):
        self._heads = heads
        logging.set_verbosity_error()
        config.num_labels = len(codes.names)
        torch.manual_seed(randomness.key(train.seed, INITIALIZATION))
        encoder = make_encoder(config)
        processes.on_main(lambda: prove_padding(encoder, max(train.sequence_lengths)))
        about: dict[str, Any] = {
            "code": codes.system,
            "codes": codes.names,
            "block_size": codes.block_size,
            "blocks": blocks,
            "entries": codes.entries,
            "spelt": codes.blocks.tolist() if codes.block_size else [],
            "decoder_layers": labels.decoder_layers if codes.block_size else 0,
            "exclusive": blocks == 1,
        }
        made = Labeller(encoder, about)
        self.config = {
            "architecture": "labels",
            "class": type(encoder).__name__,
            "vocab_size": config.vocab_size,
            "max_position_embeddings": longest_row(encoder),
            "config": transformers_models.as_json(config),
            "labels": about,
        }
        self._encoder, self.size = encoder, counted(made, None, config.hidden_size)
        if train.activation_checkpointing:
            checkpoint_activations(encoder)
        if train.freeze == "encoder":
            for name, parameter in encoder.base_model.named_parameters():
                parameter.requires_grad_("pooler." in name)  # a language model as source has none
            self.frozen = True
        self._spread(made, WithLabelLoss(made, blocks == 1), train, processes)

    def begun_with(self) -> dict[str, torch.Tensor]:
        """See `Network.begun_with`: this process's rows of the encoder's weights, and of the source's heads."""
        known = (ENCODER, *self._heads)
        return {name: local_rows(p) for name, p in self.model.named_parameters() if name.startswith(known)}

    def names_in(self, saved: Collection[str], where: str) -> dict[str, str]:
        """See `Network.names_in`: if the source is a language model, its head is not used."""
        begun = self.begun_with()
        names = [name.removeprefix(ENCODER) for name in begun if name.startswith(ENCODER)]
        found = names_in_source(self._encoder, names, saved, where, self._heads)
        others = {name: name for name in begun if not name.startswith(ENCODER)}
        return {f"{ENCODER}{name}": theirs for name, theirs in found.items()} | others


def encoder_config(settings: TrainStage, source: Path | None, vocabulary: Vocabulary) -> PreTrainedConfig:
    """Return the configuration of the encoder; see `config_to_train`."""
    if settings.model.architecture == "transformers":
        return config_to_train(settings, source, vocabulary)
    shape: dict[str, Any] = asdict(shape_of(settings, source, vocabulary.entries))
    ids = {name: token for name, token in vocabulary.ids.items() if token is not None}
    values: dict[str, Any] = {**shape, **ids, "classifier_dropout": shape["hidden_dropout_prob"]}
    return GPTBertConfig(**values)


@torch.no_grad()
def prove_padding(encoder: PreTrainedModel, length: int) -> None:
    """Raise a UserError if padding changes the scores of a row that is not full."""
    encoder.eval()
    pad = getattr(encoder.config, "pad_token_id", None) or 0
    ordinary = torch.randint(encoder.config.vocab_size // 2, encoder.config.vocab_size, (1, max(2, length // 2)))
    seen = torch.ones_like(ordinary)
    more = length - ordinary.size(1)
    scores = []
    for n in (0, more):
        rows = padded(F.pad(ordinary, (0, n), value=pad), F.pad(seen, (0, n)), encoder.config)
        scores.append(encoder(input_ids=rows[0], attention_mask=rows[1]).logits)
    encoder.train()
    if (scores[0] - scores[1]).abs().max() > TOLERANCE * scores[0].abs().max():
        raise refused(encoder.config.model_type, "padding changes its scores")
