"""Define GPT-BERT (Charpentier and Samuel, 2024, arXiv:2410.24159), with the published names of parameters.

It is a BERT-like encoder with relative positions, gated attention and GEGLU layers. The input of every sub-block is a
learned weighted sum of all earlier outputs (DenseFormer). Only the attention mask decides whether a token attends to
both sides or only to the left. So the same weights are a masked and a causal language model. Without `gate` and
`layer_mixing` it is LTG-BERT. The batch is the first dimension of all tensors.

This file is shipped inside exported models: it imports nothing but torch, the standard library and `.attention`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from .attention import Visible, attention, compute_dtype, position_buckets, visible
from .mixing import LayerMixing

# Takes a layer's new keys and values [B, n, T, d], and returns those of all positions so far. Generation uses it.
LayerCache = Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]


@dataclass(frozen=True)
class GPTBertShape:
    """Holds the sizes of the model. The names are those of the published configuration files."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    num_hidden_layers: int
    max_position_embeddings: int = 512
    position_bucket_size: int = 32
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    layer_norm_eps: float = 1e-5
    gate: bool = True
    layer_mixing: bool = True


def training_mask(segments: torch.Tensor, causal: torch.Tensor) -> torch.Tensor:
    """Return who may attend to whom: a position to all positions of its segment, but in causal rows not to later ones.

    Args:
        segments: [B, T] int64, the document that a position belongs to; -1 is padding, which attends to nothing.
        causal: [B] bool, whether the row is causal.

    Returns:
        [B, 1, T, T] bool, True where the query (dimension 2) may attend to the key (dimension 3).
    """
    position = torch.arange(segments.size(1), device=segments.device)
    same = (segments[:, :, None] == segments[:, None, :]) & (segments >= 0)[:, :, None]
    earlier = position[:, None] >= position[None, :]
    return (same & (earlier | ~causal[:, None, None]))[:, None]


class Normalization(nn.LayerNorm):
    """Normalises without weights (layer norm). It computes in float32 and returns the type of its input.

    This holds under autocast, too. (Autocast by itself would return float32, and the next linear layer would convert
    this back. The numbers would be the same, but need twice the memory.)
    """

    def __init__(self, size: int, eps: float):
        super().__init__(size, eps, elementwise_affine=False)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Normalise the last dimension of the input [..., size]."""
        if not torch.is_autocast_enabled(input.device.type):
            return super().forward(input)
        with torch.autocast(input.device.type, enabled=False):
            return super().forward(input)


class Embedding(nn.Module):
    """Holds the token embeddings, and the table of relative positions that all layers share."""

    def __init__(self, config: GPTBertShape):
        super().__init__()
        self.word_embedding = nn.Embedding(config.vocab_size, config.hidden_size)
        self.word_layer_norm = Normalization(config.hidden_size, config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.relative_embedding = nn.Parameter(torch.empty(2 * config.position_bucket_size - 1, config.hidden_size))
        self.relative_layer_norm = nn.LayerNorm(config.hidden_size, config.layer_norm_eps)

    def forward(
        self, input_ids: torch.Tensor | None, words: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return hidden [B, T, H] and positions [R, H] for input_ids [B, T] or their embeddings `words` [B, T, H]."""
        words = self.word_embedding(input_ids) if words is None else words
        return self.dropout(self.word_layer_norm(words)), self.relative_layer_norm(self.relative_embedding)


class Attention(nn.Module):
    """Computes self-attention with relative positions. If `gate` is on, a gate multiplies each query's result."""

    def __init__(self, config: GPTBertShape):
        super().__init__()
        size = config.hidden_size
        self.heads = config.num_attention_heads
        self.gate = config.gate
        self.pre_layer_norm = Normalization(size, config.layer_norm_eps)
        self.in_proj_qk = nn.Linear(size, 2 * size)
        if config.gate:
            self.in_proj_vg = nn.Linear(size, 2 * size)
        else:
            self.in_proj_v = nn.Linear(size, size)
        self.post_layer_norm = Normalization(size, config.layer_norm_eps)
        self.out_proj = nn.Linear(size, size)
        self.dropout = nn.Dropout(config.attention_probs_dropout_prob)
        self.relative_dropout = nn.Dropout(config.attention_probs_dropout_prob)
        self.attend = attention  # our trainer puts a faster one here on a CPU

    def _by_head(self, x: torch.Tensor) -> torch.Tensor:
        """Split [..., T, H] into heads, [..., n, T, d]."""
        return x.unflatten(-1, (self.heads, -1)).transpose(-2, -3)

    def forward(
        self,
        hidden: torch.Tensor,
        relative: torch.Tensor,
        buckets: torch.Tensor,
        visible: Visible,
        implementation: str = "sdpa",
        cache: LayerCache | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return what to add to hidden [B, T, H], of the same shape, and the weights [B, n, T, Tk] ("plain" only).

        `cache(key, value)` returns the keys and values of all positions so far. Generation uses it.
        """
        hidden = self.pre_layer_norm(hidden)
        query, key = map(self._by_head, self.in_proj_qk(hidden).chunk(2, -1))
        query_table, key_table = map(self._by_head, self.in_proj_qk(self.relative_dropout(relative)).chunk(2, -1))
        value, gate = self.in_proj_vg(hidden).chunk(2, -1) if self.gate else (self.in_proj_v(hidden), None)
        value = self._by_head(value)
        if cache is not None:
            key, value = cache(key, value)
        dropout = self.dropout.p if self.training else 0.0
        how = {"visible": visible, "dropout": dropout, "implementation": implementation}
        context, weights = self.attend(query, key, value, query_table, key_table, buckets, **how)
        context = context.transpose(1, 2).flatten(2)
        if gate is not None:
            context = context * F.gelu(gate)
        return self.dropout(self.out_proj(self.post_layer_norm(context))), weights


class GEGLU(nn.Module):
    """Computes x * gelu(gate), where x and gate are the two halves of the input (Shazeer, 2020)."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x, gate = x.chunk(2, -1)
        return x * F.gelu(gate, approximate="tanh")


class FeedForward(nn.Module):
    """Computes a feed-forward block. The published names of parameters contain the indices of `mlp`."""

    def __init__(self, config: GPTBertShape, layer: int):
        super().__init__()
        size, inner, eps = config.hidden_size, config.intermediate_size, config.layer_norm_eps
        self.mlp = nn.Sequential(
            Normalization(size, eps),
            nn.Linear(size, 2 * inner, bias=False),
            GEGLU(),
            Normalization(inner, eps),
            nn.Linear(inner, size, bias=False),
            nn.Dropout(config.hidden_dropout_prob),
        )
        self.mlp[1].init_scale = self.mlp[4].init_scale = (1 / (2 * (1 + layer))) ** 0.5

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.mlp(hidden)


class Blocks(nn.Module):
    """Runs blocks one after the other. Their activations may be computed again in the backward pass."""

    activation_checkpointing: bool

    def _run(self, block: nn.Module, *args: Any) -> Any:
        if self.activation_checkpointing and self.training:
            return checkpoint(block, *args, use_reentrant=False)
        return block(*args)


class Encoder(Blocks):
    """Runs the attention and feed-forward blocks one after the other."""

    def __init__(self, config: GPTBertShape, activation_checkpointing: bool = False):
        super().__init__()
        self.activation_checkpointing = activation_checkpointing
        self.attention_layers = nn.ModuleList(Attention(config) for _ in range(config.num_hidden_layers))
        self.mlp_layers = nn.ModuleList(FeedForward(config, i) for i in range(config.num_hidden_layers))
        self.dwa_modules = LayerMixing(2 * config.num_hidden_layers) if config.layer_mixing else None

    def forward(
        self,
        hidden: torch.Tensor,
        relative: torch.Tensor,
        buckets: torch.Tensor,
        visible: Visible,
        implementation: str = "sdpa",
        caches: list[LayerCache] | None = None,
    ) -> tuple[list[torch.Tensor], list[torch.Tensor | None]]:
        """Return the L + 1 outputs of the embedding and the L layers, each [B, T, H], and the L attention weights.

        `hidden` [B, T, H] is the token embeddings. `caches` holds one function per layer; see `Attention`.
        """
        hidden, add = (hidden, torch.add) if self.dwa_modules is None else self.dwa_modules.start(hidden)
        outputs, weights = [hidden], []
        layers = zip(self.attention_layers, self.mlp_layers, caches or [None] * len(self.mlp_layers), strict=True)
        for attend, feed_forward, cache in layers:
            change, weight = self._run(attend, hidden, relative, buckets, visible, implementation, cache)
            hidden = add(hidden, change)
            hidden = add(hidden, self._run(feed_forward, hidden))
            outputs.append(hidden)
            weights.append(weight)
        return outputs, weights


class OutputProjection(nn.Module):
    """Holds the bias of the output layer, whose matrix is the token embedding."""

    def __init__(self, vocab_size: int):
        super().__init__()
        self.bias = nn.Parameter(torch.empty(vocab_size))


class Classifier(nn.Module):
    """Computes the language model's scores. The published names of parameters contain the indices of `nonlinearity`."""

    def __init__(self, config: GPTBertShape):
        super().__init__()
        size, eps = config.hidden_size, config.layer_norm_eps
        self.nonlinearity = nn.ModuleList(
            [
                Normalization(size, eps),
                nn.Linear(size, size),
                nn.GELU(),
                Normalization(size, eps),
                nn.Dropout(config.hidden_dropout_prob),
                OutputProjection(config.vocab_size),
            ]
        )

    @property
    def bias(self) -> torch.Tensor:
        """Return the bias of the scores, [V]."""
        return self.nonlinearity[-1].get_parameter("bias")

    def features(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the input of the last, linear layer, [..., H], for hidden [..., H]."""
        for layer in self.nonlinearity[:-1]:
            hidden = layer(hidden)
        return hidden

    def forward(self, hidden: torch.Tensor, embedding: torch.Tensor) -> torch.Tensor:
        """Return logits [..., V] for hidden [..., H] and the token embedding [V, H]."""
        return F.linear(self.features(hidden), embedding, self.bias)


@torch.no_grad()
def init_weights(module: nn.Module, hidden_size: int) -> None:
    """Initialise the parameters that one module itself holds, as in the published code; for `nn.Module.apply`.

    Matrices are drawn from a truncated normal distribution of standard deviation sqrt(2 / 5H). In the feed-forward
    block of layer i, the deviation is multiplied by sqrt(1 / 2(1 + i)). Biases are zero. Layer mixing begins as the
    identity.
    """
    std = (2 / (5 * hidden_size)) ** 0.5 * getattr(module, "init_scale", 1.0)
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.trunc_normal_(module.weight, std=std, a=-2 * std, b=2 * std)
    elif isinstance(module, Embedding):
        nn.init.trunc_normal_(module.relative_embedding, std=std, a=-2 * std, b=2 * std)
    elif isinstance(module, nn.LayerNorm) and module.elementwise_affine:
        nn.init.ones_(module.weight)
    elif isinstance(module, nn.ParameterList):  # of LayerMixing
        for alpha in module:
            nn.init.zeros_(alpha)
            alpha[-1] = 1.0
    bias = getattr(module, "bias", None)
    if isinstance(bias, nn.Parameter):
        nn.init.zeros_(bias)


class GPTBert(nn.Module):
    """Scores tokens: this is the language model as it is trained.

    Args:
        config: sizes of the model.
        activation_checkpointing: recompute each block's activations in the backward pass instead of keeping them.
    """

    def __init__(self, config: GPTBertShape, activation_checkpointing: bool = False):
        super().__init__()
        self.config = config
        self.embedding = Embedding(config)
        self.transformer = Encoder(config, activation_checkpointing)
        self.classifier = Classifier(config)
        self.apply(lambda module: init_weights(module, config.hidden_size))

    def buckets(self, length: int, device: torch.device) -> torch.Tensor:
        """Return `position_buckets` of whole sequences, [T, T] int64."""
        config = self.config
        return position_buckets(length, length, config.position_bucket_size, config.max_position_embeddings, device)

    def encode(
        self,
        input_ids: torch.Tensor,
        allowed: torch.Tensor,
        implementation: str = "sdpa",
        buckets: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return hidden states [B, T, H] of input_ids [B, T].

        `allowed` is the argument of `visible`, for instance [B, 1, T, T]. `buckets` is the result of the method of this
        name, if the caller already has it.
        """
        hidden, relative = self.embedding(input_ids)
        if buckets is None:
            buckets = self.buckets(input_ids.size(1), input_ids.device)
        seen = visible(allowed, compute_dtype(hidden))
        outputs, _ = self.transformer(hidden, relative, buckets, seen, implementation)
        return outputs[-1]

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return scores [..., V] of hidden states [..., H]. The caller may pass only the positions with a target."""
        return self.classifier(hidden, self.embedding.word_embedding.weight)

    def forward(self, input_ids: torch.Tensor, allowed: torch.Tensor) -> torch.Tensor:
        """Return logits [B, T, V]. The logits at position t are for the token at t + 1, in causal and masked rows."""
        return self.logits(self.encode(input_ids, allowed))
