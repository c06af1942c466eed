"""Define NorBERT4 for transformers: the same weights are an encoder, masked and causal language model, and classifier.

The layers are those of training (`norbert4.py`, shipped beside this file). Masks, caches and heads are those of
GPT-BERT (`modeling_gpt_bert.py`). The names of weights are the published ones, so all classes hold the layers
themselves, and `model` is a method that the heads call.
"""

from dataclasses import fields
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from transformers.cache_utils import Cache
from transformers.modeling_outputs import BaseModelOutputWithPast

# transformers 4 copies only the files that this file imports, not those that they import. Hence the unused names.
from ..attention import compute_dtype
from ..gpt_bert import GPTBert  # noqa: F401  # pyright: ignore[reportUnusedImport]
from ..mixing import LayerMixing  # noqa: F401  # pyright: ignore[reportUnusedImport]
from ..norbert4 import Classifier, Embedding, Encoder, Linear, NorBERT4Shape, init_weights, normalize, sights
from .configuration_gpt_bert import GPTBertConfig  # noqa: F401  # pyright: ignore[reportUnusedImport]
from .configuration_norbert4 import NorBERT4Config
from .modeling_gpt_bert import (
    GPTBertForCausalLM,
    GPTBertForMaskedLM,
    GPTBertForSequenceClassification,
    GPTBertForTokenClassification,
    GPTBertModel,
    GPTBertPreTrainedModel,
    allowed_by,
)


def shape_of(config: NorBERT4Config) -> NorBERT4Shape:
    """Return the part of a configuration that holds the sizes of the layers."""
    return NorBERT4Shape(**{field.name: getattr(config, field.name) for field in fields(NorBERT4Shape)})


class NorBERT4PreTrainedModel(GPTBertPreTrainedModel):
    """Holds the layers, which all classes have."""

    config_class = NorBERT4Config
    base_model_prefix = ""
    _no_split_modules = ("Embedding", "Layer", "Classifier")
    # transformers 4 keeps caches in `_cache` of the classes that generate.
    _cache_to_use, _layer_caches = GPTBertModel._cache, GPTBertModel._layer_caches

    def __init__(self, config: NorBERT4Config):
        # Not `super()`: the classes of GPT-BERT between would make its layers.
        GPTBertPreTrainedModel.__init__(self, config)  # pyright: ignore[reportArgumentType]
        self.shape = shape_of(config)
        self.embedding = Embedding(self.shape)
        self.encoder = Encoder(self.shape)
        self.attention_mode = config.attention_mode or self.natural_attention_mode
        self.gradient_checkpointing = False

    def _init_weights(self, module: nn.Module) -> None:
        init_weights(module, self.config.hidden_size)

    def get_input_embeddings(self) -> nn.Embedding:
        """Return the token embedding. Its matrix is also the output matrix."""
        return self.embedding.word_embedding

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        """Replace the token embedding."""
        self.embedding.word_embedding = value

    def model(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        use_cache: bool = False,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
        return_dict: bool | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPast | tuple[Any, ...]:
        """Return hidden states of input_ids [B, T] or inputs_embeds [B, T, H]; see `GPTBertModel.forward`."""
        config, cache = self.config, self._cache_to_use(past_key_values, use_cache)
        hidden = self.embedding(input_ids, inputs_embeds)
        queries, device = hidden.size(1), hidden.device
        keys = queries + (0 if cache is None else int(cache.get_seq_length()))
        if cache is not None and attention_mask is not None and attention_mask.dim() == 4:
            attention_mask = attention_mask[..., :keys]  # a static cache has room for more keys, and so has its mask
        allowed = allowed_by(attention_mask, queries, keys, self.attention_mode == "causal", device)
        wants_weights = config.output_attentions if output_attentions is None else output_attentions
        wants_states = config.output_hidden_states if output_hidden_states is None else output_hidden_states
        plain = wants_weights or config._attn_implementation == "eager"
        self.encoder.activation_checkpointing = self.gradient_checkpointing
        seen = sights(self.shape, allowed, queries, keys, compute_dtype(hidden))
        caches = None if cache is None else self._layer_caches(cache, queries, keys, device)
        outputs, weights = self.encoder(hidden, seen, "plain" if plain else "sdpa", caches)
        output = BaseModelOutputWithPast(
            last_hidden_state=outputs[-1],
            past_key_values=cache,
            hidden_states=tuple(outputs) if wants_states else None,
            attentions=tuple(weights) if wants_weights else None,
        )
        return self._finish(output, return_dict)


class NorBERT4Model(NorBERT4PreTrainedModel):
    """Encodes texts without a head. It returns `last_hidden_state` [B, T, H]."""

    forward = NorBERT4PreTrainedModel.model

    def __init__(self, config: NorBERT4Config):
        super().__init__(config)
        self.post_init()


class NorBERT4LanguageModel(NorBERT4PreTrainedModel):
    """Adds the language-model head to the layers."""

    _keys_to_ignore_on_load_unexpected = None

    def __init__(self, config: NorBERT4Config):
        super().__init__(config)
        self.classifier = Classifier(self.shape)
        self.post_init()

    def _logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.classifier(hidden, self.embedding.word_embedding.weight)


class NorBERT4ForMaskedLM(NorBERT4LanguageModel, GPTBertForMaskedLM):
    """Predicts masked tokens. `config.logits_alignment` says which token the scores at a position are for."""


class NorBERT4ForCausalLM(NorBERT4LanguageModel, GPTBertForCausalLM):
    """Predicts the next tokens, and generates text with a KV cache."""

    natural_attention_mode = "causal"


class ClassifierHead(nn.Module):
    """Computes scores of classes, as published. It begins with the projection of the language model's head."""

    def __init__(self, config: NorBERT4Config, classes: int):
        super().__init__()
        self.eps = config.layer_norm_eps
        self.projection = Linear(config.hidden_size, config.hidden_size)
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.output_projection = Linear(config.hidden_size, classes, bias=True)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return [..., classes] for hidden states [..., H]."""
        hidden = F.gelu(self.projection(normalize(hidden, self.eps)), approximate="tanh")
        return self.output_projection(self.dropout(normalize(hidden, self.eps)))


class NorBERT4Classifier(NorBERT4PreTrainedModel):
    """Adds a head for classes to the layers."""

    _keys_to_ignore_on_load_unexpected = [r"^classifier\.emb2vocab\."]  # noqa: RUF012 (transformers 4 adds lists to it)

    def __init__(self, config: NorBERT4Config):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.classifier = ClassifierHead(config, config.num_labels)  # pyright: ignore[reportArgumentType]
        self.dropout = nn.Identity()  # the head has its own
        self.post_init()

    @property
    def score(self) -> nn.Module:
        """Return the head, by its name in GPT-BERT's classes."""
        return self.classifier


class NorBERT4ForSequenceClassification(NorBERT4Classifier, GPTBertForSequenceClassification):
    """Classifies texts and pairs of texts; see `GPTBertForSequenceClassification`."""

    def _pooled(self, hidden: torch.Tensor, attention_mask: torch.Tensor | None) -> torch.Tensor:
        (batch, length, _), causal = hidden.shape, self.attention_mode == "causal"
        seen = allowed_by(attention_mask, length, length, causal, hidden.device)[:, 0].sum(-1).expand(batch, -1)
        return hidden[torch.arange(batch, device=hidden.device), seen.argmax(1)]


class NorBERT4ForTokenClassification(NorBERT4Classifier, GPTBertForTokenClassification):
    """Classifies each token."""
