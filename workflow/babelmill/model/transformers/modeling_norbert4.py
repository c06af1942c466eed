"""Define NorBERT4 for transformers: the same weights are an encoder, masked and causal language model, and classifier.

The layers are those of training (`norbert4.py`, shipped beside this file). Masks, caches and heads are those of
GPT-BERT (`modeling_gpt_bert.py`). The names of weights are the published ones, so all classes hold the layers
themselves, and `model` is a method that the heads call.
"""

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

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
    GPTBertPreTrainedModel,
    shape_of,
)


class NorBERT4PreTrainedModel(GPTBertPreTrainedModel):
    """Holds the layers, which all classes have."""

    config_class = NorBERT4Config
    base_model_prefix = ""
    _no_split_modules = ("Embedding", "Layer", "Classifier")

    def __init__(self, config: NorBERT4Config):
        # Not `super()`: the classes of GPT-BERT between would make its layers.
        GPTBertPreTrainedModel.__init__(self, config)  # pyright: ignore[reportArgumentType]
        self.shape = shape_of(config, NorBERT4Shape)  # pyright: ignore[reportArgumentType]
        self.embedding = Embedding(self.shape)
        self.encoder = Encoder(self.shape)
        self.attention_mode = config.attention_mode or self.natural_attention_mode
        self.gradient_checkpointing = False

    def _init_weights(self, module: nn.Module) -> None:
        init_weights(module, self.config.hidden_size)

    def _run(self, embedded: torch.Tensor, allowed: torch.Tensor, *how: Any) -> Any:
        self.encoder.activation_checkpointing = self.gradient_checkpointing
        queries, keys = allowed.shape[2:]
        return self.encoder(embedded, sights(self.shape, allowed, queries, keys, compute_dtype(embedded)), *how)

    model = GPTBertPreTrainedModel.states


class NorBERT4Model(NorBERT4PreTrainedModel):
    """Encodes texts without a head. It returns `last_hidden_state` [B, T, H]."""

    forward = GPTBertPreTrainedModel.states

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


class NorBERT4ForTokenClassification(NorBERT4Classifier, GPTBertForTokenClassification):
    """Classifies each token."""
