"""Define a label model: an encoder with its classifier, and a decoder that spells the codes."""

from collections.abc import Collection
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel

from babelmill.core.files import UserError
from babelmill.labels.codes import BEGIN
from babelmill.model.code_decoder import CodeDecoder, padded
from babelmill.model.transformers.configuration_gpt_bert import GPTBertConfig
from babelmill.model.transformers.modeling_gpt_bert import GPTBertForSequenceClassification
from babelmill.training.networks.transformers_models import CLASSIFIER, from_json, make_model


class Labeller(nn.Module):
    """Computes the scores of an encoder's classifier, a `...ForSequenceClassification` model, and of a decoder.

    The decoder is None if codes are not spelt.
    """

    def __init__(self, encoder: PreTrainedModel, decoder: CodeDecoder | None):
        super().__init__()
        self.encoder, self.decoder = encoder, decoder
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


def with_decoder(encoder: PreTrainedModel, about: dict[str, Any]) -> Labeller:
    """Return an encoder with a new decoder, or with none if codes are not spelt. `about`: `labels` in config.json."""
    if not about["decoder_layers"]:
        return Labeller(encoder, None)
    longest = about["blocks"] * about["block_size"]
    decoder = CodeDecoder(about["entries"], encoder.config.hidden_size, about["decoder_layers"], longest)
    return Labeller(encoder, decoder)


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


def heads_of(encoder: PreTrainedModel) -> set[str]:
    """Return the names of the weights that belong to the classifier, not to the encoder before it."""
    prefix = f"{encoder.base_model_prefix}."
    return {name for name, _ in encoder.named_parameters() if not name.startswith(prefix)}


def names_in_source(
    wanted: Collection[str], there: Collection[str], prefix: str, head: Collection[str], where: str
) -> dict[str, str]:
    """Return {name in the encoder: name in the source}, without heads, and without poolers that the source lacks.

    The `wanted` names are those of the encoder's class, which has a classifier (`head`) and calls the encoder without
    it `prefix`. The names in the source may lack the prefix, and may include a language model's head. A UserError says
    that the source lacks a weight of the encoder.
    """
    found = {}
    for name in wanted:
        candidates = [name, name.removeprefix(f"{prefix}.")]
        theirs = next((each for each in candidates if each in there and name not in head), None)
        if theirs is not None:
            found[name] = theirs
        elif name not in head and ".pooler." not in f".{name}":
            raise UserError(f"{where}: {candidates[-1]} is missing: these are not the weights of this encoder")
    return found
