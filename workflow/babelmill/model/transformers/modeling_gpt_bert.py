"""Define GPT-BERT for transformers: the same weights are an encoder, masked and causal language model, and classifier.

The layers are those of training (`gpt_bert.py`, shipped beside this file). A token attends to all tokens that the
attention mask and the attention mode allow. Only training separates documents, so a pair of texts is `<s> A <s> B`.
"""

import functools
from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar

import torch
from torch import nn
from torch.nn import functional as F
from transformers import GenerationMixin, PreTrainedModel
from transformers.cache_utils import Cache, DynamicCache
from transformers.modeling_outputs import (
    BaseModelOutputWithPast,
    CausalLMOutputWithPast,
    MaskedLMOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)
from transformers.utils import ModelOutput  # pyright: ignore[reportPrivateImportUsage]

# transformers 4 copies only the files that this file imports, not those that they import. Hence LayerMixing.
from ..attention import compute_dtype, position_buckets, visible
from ..gpt_bert import Classifier, Embedding, Encoder, GPTBertShape, LayerCache, init_weights
from ..mixing import LayerMixing  # noqa: F401  # pyright: ignore[reportUnusedImport]
from .configuration_gpt_bert import GPTBertConfig

Output = TypeVar("Output", bound=ModelOutput)
Shape = TypeVar("Shape")


def shape_of(config: GPTBertConfig, kind: type[Shape] = GPTBertShape) -> Shape:
    """Return the part of a configuration that holds the sizes of the layers."""
    return kind(**{field.name: getattr(config, field.name) for field in fields(kind)})  # pyright: ignore


def allowed_by(mask: torch.Tensor | None, queries: int, keys: int, causal: bool, device: torch.device) -> torch.Tensor:
    """Return who may attend to whom, bool [B or 1, 1 or n, queries, keys].

    Args:
        mask: one of
            * None: nothing is padding.
            * [B, keys]: 0 or False is padding, which attends to nothing, and to which nothing attends.
            * [B, queries, keys] or [B, 1 or n, queries, keys]: booleans, or numbers of which 0 blocks attention. If no
              number is positive, it is a mask of transformers that is added to the scores: 0 allows attention, a
              negative number blocks it.
        queries: number of new positions. They are the last ones of `keys`.
        causal: whether each position may attend only to itself and earlier ones, even if the mask allows more.
    """
    allowed = torch.ones(1, 1, queries, keys, dtype=torch.bool, device=device)
    if causal:
        allowed = allowed.tril(keys - queries)
    if mask is None:
        return allowed
    if mask.dim() not in (2, 3, 4) or mask.size(-1) != keys or (mask.dim() > 2 and mask.size(-2) != queries):
        raise ValueError(
            f"attention_mask is {list(mask.shape)}; [B, {keys}], [B, {queries}, {keys}] or [B, 1, {queries}, {keys}]"
            " is expected"
        )
    if mask.dim() == 2:
        present = mask > 0
        return allowed & present[:, None, None, :] & present[:, None, keys - queries :, None]
    added = mask.is_floating_point() and not (mask > 0).any()
    given = mask >= 0 if added else mask > 0
    return allowed & (given if mask.dim() == 4 else given[:, None])


class GPTBertPreTrainedModel(PreTrainedModel):
    """Holds what all classes share."""

    config_class = GPTBertConfig
    base_model_prefix = "model"
    embedding: Any  # like `_run`, of the classes that hold the layers
    _run: Callable[..., Any]
    natural_attention_mode = "bidirectional"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    # Classes without the language model's head ignore its weights. Without this line, each loading would warn of them.
    _keys_to_ignore_on_load_unexpected = [r"^classifier\."]  # noqa: RUF012 (transformers 4 adds lists to it)
    _no_split_modules = ("Embedding", "Encoder", "Classifier")  # pyright: ignore[reportAssignmentType]

    def __init__(self, config: GPTBertConfig, *args: Any, **kwargs: Any):
        config.check()
        super().__init__(config, *args, **kwargs)

    def _init_weights(self, module: nn.Module) -> None:
        init_weights(module, self.config.hidden_size)

    @property
    def _holder(self) -> Any:
        """Return the module that holds the layers: this one, or the encoder of a class with a head."""
        return self if hasattr(self, "embedding") else self.model

    def get_input_embeddings(self) -> nn.Embedding:
        """Return the token embedding. Its matrix is also the output matrix."""
        return self._holder.embedding.word_embedding

    def set_input_embeddings(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, value: nn.Embedding
    ) -> None:
        """Replace the token embedding."""
        self._holder.embedding.word_embedding = value

    def _finish(self, output: Output, return_dict: bool | None) -> Output | tuple[Any, ...]:
        wanted = return_dict if return_dict is not None else getattr(self.config, "return_dict", True)
        return output if wanted else output.to_tuple()

    def states(
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
        """Return hidden states of input_ids [B, T] or inputs_embeds [B, T, H]; see `allowed_by` for the attention mask.

        `past_key_values` holds keys and values of earlier positions, to which the new ones are appended. Positions are
        relative, so `position_ids` and all other arguments are ignored.
        """
        config, cache = self.config, self._cache_to_use(past_key_values, use_cache)
        embedded = self.embedding(input_ids, inputs_embeds)
        hidden = embedded[0] if isinstance(embedded, tuple) else embedded
        queries, device = hidden.size(1), hidden.device
        keys = queries + (0 if cache is None else int(cache.get_seq_length()))
        if cache is not None and attention_mask is not None and attention_mask.dim() == 4:
            attention_mask = attention_mask[..., :keys]  # a static cache has room for more keys, and so has its mask
        allowed = allowed_by(attention_mask, queries, keys, self.attention_mode == "causal", device)
        wants_weights = config.output_attentions if output_attentions is None else output_attentions
        wants_states = config.output_hidden_states if output_hidden_states is None else output_hidden_states
        plain = wants_weights or config._attn_implementation == "eager"
        caches = None if cache is None else self._layer_caches(cache, queries, keys, device)
        outputs, weights = self._run(embedded, allowed, "plain" if plain else "sdpa", caches)
        output = BaseModelOutputWithPast(
            last_hidden_state=outputs[-1],
            past_key_values=cache,
            hidden_states=tuple(outputs) if wants_states else None,
            attentions=tuple(weights) if wants_weights else None,
        )
        return self._finish(output, return_dict)

    def _cache_to_use(self, past_key_values: Cache | None, use_cache: bool) -> Cache | None:
        """Return the cache to use: the given one, a new one if the caller wants one, or None."""
        causal = self.attention_mode == "causal"
        if past_key_values is not None and not causal:
            raise ValueError(
                "a bidirectional model cannot keep a cache, since new tokens change the states of old ones; pass"
                " use_cache=False, or attention_mode='causal' to from_pretrained"
            )
        recomputes = self.gradient_checkpointing and self.training
        if past_key_values is None and use_cache and causal and not recomputes:
            return DynamicCache()
        return past_key_values

    def _layer_caches(self, cache: Cache, queries: int, keys: int, device: torch.device) -> list[LayerCache]:
        """Return a function for each layer that adds the new keys and values to the cache and returns all of them."""
        new = torch.arange(keys - queries, keys, device=device)

        def remember(layer: int, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            key, value = cache.update(key, value, layer, {"cache_position": new})  # for transformers 4's static cache
            return key[:, :, :keys], value[:, :, :keys]  # a static cache has room for more

        return [functools.partial(remember, layer) for layer in range(self.config.num_hidden_layers)]


class GPTBertModel(GPTBertPreTrainedModel):
    """Encodes texts without a head. It returns `last_hidden_state` [B, T, H]."""

    def __init__(self, config: GPTBertConfig):
        super().__init__(config)
        shape = shape_of(config)
        self.embedding = Embedding(shape)
        self.transformer = Encoder(shape)
        self.attention_mode = config.attention_mode or self.natural_attention_mode
        self.gradient_checkpointing = False
        self.post_init()

    forward = GPTBertPreTrainedModel.states

    def _run(self, embedded: tuple[torch.Tensor, torch.Tensor], allowed: torch.Tensor, *how: Any) -> Any:
        (hidden, relative), (queries, keys), config = embedded, allowed.shape[2:], self.config
        size, longest = config.position_bucket_size, config.max_position_embeddings
        buckets = position_buckets(queries, keys, size, longest, hidden.device)
        self.transformer.activation_checkpointing = self.gradient_checkpointing
        return self.transformer(hidden, relative, buckets, visible(allowed, compute_dtype(hidden)), *how)


class GPTBertHead(GPTBertPreTrainedModel):
    """Adds a head to the encoder, which takes the default attention mode of the head's class."""

    output_type: Any
    _scored: Callable[..., tuple[torch.Tensor | None, torch.Tensor]]  # the loss, and the logits of hidden states

    def __init__(self, config: GPTBertConfig):
        super().__init__(config)
        self.model = GPTBertModel(config)
        self.model.attention_mode = config.attention_mode or self.natural_attention_mode

    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        return_dict: bool | None = None,
        **kwargs: Any,
    ) -> ModelOutput | tuple[Any, ...]:
        """Return the logits of the head, and their loss if there are labels. The class says what both are."""
        items = kwargs.pop("num_items_in_batch", None)
        kwargs.pop("use_cache", None)
        output = self.model(input_ids, attention_mask, return_dict=True, **kwargs)
        loss, logits = self._scored(output.last_hidden_state, attention_mask, labels, items)
        output = self.output_type(loss, logits, output.hidden_states, output.attentions)
        return self._finish(output, return_dict)


class GPTBertLanguageModel(GPTBertHead):
    """Adds the language-model head to the encoder."""

    _keys_to_ignore_on_load_unexpected = None

    def __init__(self, config: GPTBertConfig):
        super().__init__(config)
        self.classifier = Classifier(shape_of(config))
        self.post_init()

    def _logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.classifier(hidden, self.get_input_embeddings().weight)

    def resize_token_embeddings(self, *args: Any, **kwargs: Any) -> nn.Embedding:
        """Resize as in transformers. The head shares the embedding's matrix, so only its bias needs the new size."""
        embedding = super().resize_token_embeddings(*args, **kwargs)
        old, size = self.classifier.bias, embedding.num_embeddings
        new = torch.cat([old.detach()[:size], old.new_zeros(max(0, size - len(old)))])
        holder = next(module for module in self.classifier.modules() if module._parameters.get("bias") is old)
        holder.register_parameter("bias", nn.Parameter(new, old.requires_grad))
        return embedding

    @staticmethod
    def _cross_entropy(
        logits: torch.Tensor, labels: torch.Tensor, num_items_in_batch: torch.Tensor | int | None = None
    ) -> torch.Tensor:
        """Return the mean loss of the labels that are not -100; given the Trainer's number of items, sum / items."""
        reduction = "mean" if num_items_in_batch is None else "sum"
        logits, labels = logits.flatten(0, 1).float(), labels.flatten().to(logits.device)
        loss = F.cross_entropy(logits, labels, ignore_index=-100, reduction=reduction)
        return loss if num_items_in_batch is None else loss / num_items_in_batch


class GPTBertForMaskedLM(GPTBertLanguageModel):
    """Predicts masked tokens. `config.logits_alignment` says which token the scores at a position are for.

    Logits are [B, T, V]. `labels` [B, T] holds the token at each position, or -100 where none is scored.
    """

    output_type = MaskedLMOutput

    def _scored(
        self, hidden: torch.Tensor, _mask: Any, labels: torch.Tensor | None, items: Any
    ) -> tuple[torch.Tensor | None, torch.Tensor]:
        logits, loss = self._logits(hidden), None
        ahead = int(self.config.masked_target == "next")  # 1 if the scores at a position are for the next token
        if labels is not None:
            loss = self._cross_entropy(logits[:, : logits.size(1) - ahead], labels[:, ahead:], items)
        to_the_right = ahead - int(self.config.logits_alignment == "mntp")
        if to_the_right:
            logits = F.pad(logits, (0, 0, to_the_right, -to_the_right))
        return loss, logits


class GPTBertForCausalLM(GPTBertLanguageModel, GenerationMixin):
    """Predicts the next tokens, and generates text with a KV cache."""

    natural_attention_mode = "causal"

    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | torch.Tensor = 0,
        return_dict: bool | None = None,
        **kwargs: Any,
    ) -> CausalLMOutputWithPast | tuple[Any, ...]:
        """Return next-token logits [B, T, V], or only those of the last `logits_to_keep` positions.

        `labels` are the `input_ids`, not shifted.
        """
        items = kwargs.pop("num_items_in_batch", None)
        use_cache = self.config.use_cache if use_cache is None else use_cache
        output = self.model(
            input_ids,
            attention_mask,
            past_key_values,
            inputs_embeds,
            use_cache=use_cache and labels is None,
            return_dict=True,
            **kwargs,
        )
        keep = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) and logits_to_keep else slice(None)
        logits = self._logits(output.last_hidden_state[:, keep])
        loss = None if labels is None else self._cross_entropy(logits[:, :-1], labels[:, 1:], items)
        output = CausalLMOutputWithPast(loss, logits, output.past_key_values, output.hidden_states, output.attentions)
        return self._finish(output, return_dict)


class GPTBertClassifier(GPTBertHead):
    """Adds a linear head for classes to the encoder."""

    def __init__(self, config: GPTBertConfig):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.score = nn.Linear(config.hidden_size, config.num_labels)  # pyright: ignore[reportArgumentType]
        self.post_init()


class GPTBertForSequenceClassification(GPTBertClassifier):
    """Classifies texts and pairs of texts, or gives each a number (`num_labels` = 1).

    The head reads the hidden state of one position: the first that attends to as many positions as any other. If
    attention is bidirectional, this is the first token. If it is causal (by the mode or the mask), it is the last one.
    Logits are [B, num_labels]. `labels` are [B] (classes or numbers) or [B, num_labels] (several classes).
    """

    output_type = SequenceClassifierOutput

    def _scored(
        self, hidden: torch.Tensor, mask: torch.Tensor | None, labels: torch.Tensor | None, _items: Any
    ) -> tuple[torch.Tensor | None, torch.Tensor]:
        # This does not use len(hidden), which would fix a dynamic size.
        (batch, length, _), causal = hidden.shape, self._holder.attention_mode == "causal"
        seen = allowed_by(mask, length, length, causal, hidden.device)[:, 0].sum(-1).expand(batch, -1)
        logits = self.score(self.dropout(hidden[torch.arange(batch, device=hidden.device), seen.argmax(1)]))
        if labels is None:
            return None, logits
        if self.num_labels == 1:
            return F.mse_loss(logits.squeeze(-1), labels.to(logits.dtype).view(-1)), logits
        if labels.is_floating_point():
            return F.binary_cross_entropy_with_logits(logits, labels), logits
        return F.cross_entropy(logits, labels.view(-1)), logits


class GPTBertForTokenClassification(GPTBertClassifier):
    """Classifies each token. Logits are [B, T, num_labels]. `labels` are [B, T], or -100 where a token has none."""

    output_type = TokenClassifierOutput

    def _scored(
        self, hidden: torch.Tensor, _mask: Any, labels: torch.Tensor | None, _items: Any
    ) -> tuple[torch.Tensor | None, torch.Tensor]:
        logits = self.score(self.dropout(hidden))
        if labels is None:
            return None, logits
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100), logits
