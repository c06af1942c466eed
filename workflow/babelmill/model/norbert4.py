"""Define NorBERT4, the second generation of GPT-BERT (HPLT 3.0, NorBERT 4), with the published names of parameters.

As in GPT-BERT, only the attention mask decides whether a token attends to both sides or only to the left. In contrast
to it, positions are rotations of queries and keys (RoPE), most layers attend only to tokens nearby, and each layer
mixes its input with the embeddings by a few learned numbers. So PyTorch's own attention computes all of it.

This file is shipped inside exported models: it imports nothing but torch, the standard library and files beside it.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

from .attention import Visible, compute_dtype, visible
from .gpt_bert import GEGLU, Blocks, LayerCache

THETA, GLOBAL_THETA = 10_000, 160_000  # bases of the rotations: of most layers, and of those that see far
LARGEST, SHARPNESS = 30.0, 7.5  # the scores are LARGEST * sigmoid(score / SHARPNESS)


@dataclass(frozen=True)
class NorBERT4Shape:
    """Holds the sizes of the model. The names are those of the published configuration files.

    A token attends to tokens at distances of up to `local_window_length`. In each layer whose number is divisible by
    `local_global_ratio`, counted from 1, it attends to distances of up to `global_window_length`.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_attention_heads: int
    query_key_head_size: int
    value_head_size: int
    max_sequence_length: int
    local_global_ratio: int
    local_window_length: int
    global_window_length: int
    layer_norm_eps: float = 1e-5
    embedding_dropout: float = 0.1
    hidden_dropout: float = 0.1
    attention_dropout: float = 0.1

    def is_global(self, layer: int) -> bool:
        """Return whether a layer, counted from 0, sees far."""
        return (layer + 1) % self.local_global_ratio == 0


class Sight(NamedTuple):
    """Says for layers of one kind (local or global) how positions rotate, and who may attend to whom.

    Attributes:
        cosines, sines: of the rotations, [Tq, d].
        visible: in the form that `attention` uses.
    """

    cosines: torch.Tensor
    sines: torch.Tensor
    visible: Visible


def sights(shape: NorBERT4Shape, allowed: torch.Tensor, queries: int, keys: int, dtype: torch.dtype) -> list[Sight]:
    """Return what local and global layers see.

    The angles of rotations are computed in float32, as published, and their cosines and sines only then converted.

    Args:
        shape: the sizes of the model.
        allowed: bool, [B or 1, 1 or n, queries, keys] or sizes that broadcast to it: True where the query may attend to
            the key if it is near enough.
        queries: number of new positions. They are the last ones of `keys`.
        keys: number of all positions.
        dtype: the type in which attention is computed.
    """
    position, size = torch.arange(keys, device=allowed.device), shape.query_key_head_size
    new, found = position[keys - queries :, None], []
    distance, wide = (new - position).abs(), torch.promote_types(dtype, torch.float32)
    for theta, window in ((THETA, shape.local_window_length), (GLOBAL_THETA, shape.global_window_length)):
        powers = theta ** (torch.arange(0, size, 2, dtype=torch.float32, device=allowed.device) / size)
        angles = (new.float() * (1.0 / powers)).repeat(1, 2)  # those of both halves are equal
        found.append(
            Sight(angles.cos().to(wide), angles.sin().to(wide), visible(allowed & (distance <= window), dtype))
        )
    return found


def normalize(x: torch.Tensor, eps: float) -> torch.Tensor:
    """Return the layer norm of x over its last dimension, without weights.

    It computes in float32 and returns the type of its input, also under autocast; see `gpt_bert.Normalization`.
    """
    with torch.autocast(x.device.type, enabled=False):
        return F.layer_norm(x, x.shape[-1:], None, None, eps)


def rotate(x: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
    """Rotate queries or keys [..., T, n, d]. `cosines` and `sines` are [T, d]; the result has the type of `x`."""
    first, second = x.chunk(2, -1)
    turned = torch.cat([-second, first], -1)
    return (x * cosines[:, None] + turned * sines[:, None]).to(x.dtype)


def mix(hidden: torch.Tensor, embeddings: torch.Tensor, share: torch.Tensor) -> torch.Tensor:
    """Return (1 - share) hidden + share embeddings. `share` is a scalar."""
    return torch.lerp(hidden, embeddings, share.to(hidden.dtype))


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    visible: Visible,
    dropout: float = 0.0,
    implementation: str = "sdpa",
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return the weighted values, and the attention weights if the implementation gives them.

    Args:
        query: [B, n, Tq, d].
        key, value: [B, n, Tk, d].
        visible: from the function of this name. A query that may attend to nothing gets zeros.
        dropout: probability of dropping an attention weight.
        implementation: "sdpa" (PyTorch's fused kernels) or "plain" (the formula itself).
    """
    if implementation == "sdpa":
        context = F.scaled_dot_product_attention(query, key, value, visible.penalty, dropout)
        return context * visible.alive, None
    weights = attention_weights(query, key, visible).to(value.dtype)
    return F.dropout(weights, dropout) @ value, weights


def attention_weights(query: torch.Tensor, key: torch.Tensor, visible: Visible) -> torch.Tensor:
    """Return the weights [B, n, Tq, Tk] of `attention` before dropout."""
    scores = query @ key.mT * query.size(-1) ** -0.5 + visible.penalty
    return scores.softmax(-1) * visible.alive


class Linear(nn.Linear):
    """Computes a linear map whose inputs are scaled: x (W diag(1 + scale))^T."""

    def __init__(self, inputs: int, outputs: int, bias: bool = False):
        super().__init__(inputs, outputs, bias)
        self.scale = nn.Parameter(torch.empty(inputs))

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return F.linear(input, self.weight * (1 + self.scale), self.bias)


class TwoLinear(nn.Module):
    """Computes two `Linear` of one input, which share their scale. The result has first the one, then the other."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.weights = nn.ParameterList(nn.Parameter(torch.empty(outputs, inputs)) for _ in range(2))
        self.scale = nn.Parameter(torch.empty(inputs))

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        both = torch.cat([self.weights[0], self.weights[1]])  # PyTorch 2.11 cannot compile a loop over a ParameterList
        return F.linear(input, both * (1 + self.scale))


class Embedding(nn.Module):
    """Holds the token embeddings."""

    def __init__(self, shape: NorBERT4Shape):
        super().__init__()
        self.eps = shape.layer_norm_eps
        self.word_embedding = nn.Embedding(shape.vocab_size, shape.hidden_size)
        self.word_scale = nn.Parameter(torch.empty(shape.hidden_size))
        self.dropout = nn.Dropout(shape.embedding_dropout)

    def forward(self, input_ids: torch.Tensor | None, words: torch.Tensor | None = None) -> torch.Tensor:
        """Return hidden [B, T, H] for input_ids [B, T] or their embeddings `words` [B, T, H]."""
        embedded = self.word_embedding(input_ids) if words is None else words
        return self.dropout(normalize(embedded, self.eps) * (1 + self.word_scale))


class Attention(nn.Module):
    """Computes self-attention. Its values are mixed with those of the first layer."""

    def __init__(self, shape: NorBERT4Shape):
        super().__init__()
        size, heads = shape.hidden_size, shape.num_attention_heads
        self.eps = shape.layer_norm_eps
        self.qk_proj = TwoLinear(size, heads * shape.query_key_head_size)
        self.v_proj = Linear(size, heads * shape.value_head_size)
        self.out_proj = Linear(heads * shape.value_head_size, size)
        self.q_scale = nn.Parameter(torch.empty(heads, shape.query_key_head_size))
        self.k_scale = nn.Parameter(torch.empty(heads, shape.query_key_head_size))
        self.lambdas = nn.Parameter(torch.empty(1))
        self.dropout = nn.Dropout(shape.hidden_dropout)
        self.weight_dropout = shape.attention_dropout
        self.attend = attention  # our trainer puts one with keyed dropout here

    def forward(
        self,
        of_values: torch.Tensor,
        of_scores: torch.Tensor,
        first: torch.Tensor | None,
        sight: Sight,
        implementation: str = "sdpa",
        cache: LayerCache | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """Return what to add to the hidden states [B, T, H], the first layer's values, and the weights ("plain" only).

        Args:
            of_values, of_scores: [B, T, H], the inputs of the values, and of the queries and keys.
            first: the first layer's values, [B, T, n, d]; None in this layer.
            sight: what this layer sees.
            implementation: see `attention`.
            cache: returns the keys and values of all positions so far. Generation uses it.
        """
        heads = self.q_scale.size(0)
        both = self.qk_proj(normalize(of_scores, self.eps)).unflatten(-1, (2, heads, -1))
        both = normalize(both, self.eps) * (1 + torch.stack([self.q_scale, self.k_scale])).to(both.dtype)
        both = rotate(both.flatten(2, 3), sight.cosines, sight.sines)
        value = self.v_proj(normalize(of_values, self.eps)).unflatten(-1, (heads, -1))
        first_values = value if first is None else first  # there, mixing changes nothing; the lambda's gradient is 0
        value = mix(value, first_values, self.lambdas[0])
        query, key = both.transpose(1, 2).chunk(2, 1)
        value = value.transpose(1, 2)
        if cache is not None:
            key, value = cache(key, value)
        dropout = self.weight_dropout if self.training else 0.0
        context, weights = self.attend(
            query, key, value, visible=sight.visible, dropout=dropout, implementation=implementation
        )
        context = normalize(context.transpose(1, 2).flatten(2), self.eps)
        return self.dropout(self.out_proj(context)), first_values, weights


class FeedForward(nn.Module):
    """Computes a feed-forward block."""

    def __init__(self, shape: NorBERT4Shape):
        super().__init__()
        self.eps = shape.layer_norm_eps
        self.up_proj = TwoLinear(shape.hidden_size, shape.intermediate_size)
        self.activation = GEGLU()
        self.down_proj = Linear(shape.intermediate_size, shape.hidden_size)
        self.dropout = nn.Dropout(shape.hidden_dropout)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        inner = self.activation(self.up_proj(normalize(hidden, self.eps)))
        return self.dropout(self.down_proj(normalize(inner, self.eps)))


class Layer(nn.Module):
    """Runs attention and a feed-forward block. Six numbers say how their inputs are mixed."""

    def __init__(self, shape: NorBERT4Shape):
        super().__init__()
        self.attention = Attention(shape)
        self.mlp = FeedForward(shape)
        self.lambdas = nn.Parameter(torch.empty(6))

    def forward(
        self,
        hidden: torch.Tensor,
        embeddings: torch.Tensor,
        first: torch.Tensor | None,
        sight: Sight,
        implementation: str = "sdpa",
        cache: LayerCache | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """Return the hidden states [B, T, H] after this layer, and what `Attention` returns beside its result."""
        of_values, of_scores, of_mlp, of_mlp_share, kept, of_kept = self.lambdas
        inputs = mix(hidden, embeddings, of_values), mix(hidden, embeddings, of_scores)
        change, first_values, weights = self.attention(*inputs, first, sight, implementation, cache)
        into_mlp = F.softplus(of_mlp) * mix(hidden, embeddings, of_mlp_share) + change
        residual = F.softplus(kept) * mix(hidden, embeddings, of_kept) + change
        return residual + self.mlp(into_mlp), first_values, weights


class Encoder(Blocks):
    """Runs the layers one after the other."""

    def __init__(self, shape: NorBERT4Shape, activation_checkpointing: bool = False):
        super().__init__()
        self.activation_checkpointing = activation_checkpointing
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.num_layers))
        self.kinds = [shape.is_global(layer) for layer in range(shape.num_layers)]

    def forward(
        self,
        embeddings: torch.Tensor,
        sights: list[Sight],
        implementation: str = "sdpa",
        caches: list[LayerCache] | None = None,
    ) -> tuple[list[torch.Tensor], list[torch.Tensor | None]]:
        """Return the L + 1 outputs of the embedding and the L layers, each [B, T, H], and the L attention weights.

        `embeddings` is [B, T, H], `sights` the result of the function of this name. `caches` holds one function per
        layer, see `Attention`.
        """
        hidden, first = embeddings, None
        outputs, weights = [hidden], []
        layers = zip(self.layers, self.kinds, caches or [None] * len(self.layers), strict=True)
        for layer, is_global, cache in layers:
            given = hidden, embeddings, first, sights[is_global], implementation, cache
            hidden, first, weight = self._run(layer, *given)
            outputs.append(hidden)
            weights.append(weight)
        return outputs, weights


class OutputProjection(nn.Module):
    """Holds the scale and the bias of the output layer, whose matrix is the token embedding."""

    def __init__(self, size: int, vocab_size: int):
        super().__init__()
        self.scale = nn.Parameter(torch.empty(size))
        self.bias = nn.Parameter(torch.empty(vocab_size))


class Classifier(nn.Module):
    """Computes the language model's scores."""

    def __init__(self, shape: NorBERT4Shape):
        super().__init__()
        self.eps = shape.layer_norm_eps
        self.projection = Linear(shape.hidden_size, shape.hidden_size)
        self.emb2vocab = OutputProjection(shape.hidden_size, shape.vocab_size)

    @property
    def bias(self) -> torch.Tensor:
        """Return the bias of the scores, [V]."""
        return self.emb2vocab.bias

    def features(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the input of the last, linear layer, [..., H], for hidden [..., H]."""
        hidden = F.gelu(self.projection(normalize(hidden, self.eps)), approximate="tanh")
        return normalize(hidden, self.eps) * (1 + self.emb2vocab.scale)

    def forward(self, hidden: torch.Tensor, embedding: torch.Tensor) -> torch.Tensor:
        """Return logits [..., V] for hidden [..., H] and the token embedding [V, H]. They lie between 0 and 30."""
        return LARGEST * torch.sigmoid(F.linear(self.features(hidden), embedding, self.bias) / SHARPNESS)


@torch.no_grad()
def init_weights(module: nn.Module, hidden_size: int) -> None:
    """Initialise the parameters that one module itself holds; for `nn.Module.apply`.

    Matrices are drawn from a truncated normal distribution of standard deviation sqrt(2 / 5H), and the lambdas begin
    with the published values. All scales begin as 1 + 0, and the bias as 0.
    """
    std = (2 / (5 * hidden_size)) ** 0.5
    for name, parameter in module.named_parameters(recurse=False):
        if name.endswith("scale") or name == "bias":
            nn.init.zeros_(parameter)
        elif name == "lambdas":
            parameter.copy_(torch.tensor([0.5] if len(parameter) == 1 else [0.0, 0.0, 1.0, 0.0, 1.0, 0.0]))
        elif parameter.ndim == 2:
            nn.init.trunc_normal_(parameter, std=std, a=-2 * std, b=2 * std)


class NorBERT4(nn.Module):
    """Scores tokens: this is the language model as it is trained.

    Args:
        config: sizes of the model.
        activation_checkpointing: recompute each layer's activations in the backward pass instead of keeping them.
    """

    def __init__(self, config: NorBERT4Shape, activation_checkpointing: bool = False):
        super().__init__()
        self.config = config
        self.embedding = Embedding(config)
        self.encoder = Encoder(config, activation_checkpointing)
        self.classifier = Classifier(config)
        self.apply(lambda module: init_weights(module, config.hidden_size))

    def encode(self, input_ids: torch.Tensor, allowed: torch.Tensor, implementation: str = "sdpa") -> torch.Tensor:
        """Return hidden states [B, T, H] of input_ids [B, T]. For `allowed`, see `sights`."""
        hidden, length = self.embedding(input_ids), input_ids.size(1)
        seen = sights(self.config, allowed, length, length, compute_dtype(hidden))
        return self.encoder(hidden, seen, implementation)[0][-1]

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return scores [..., V] of hidden states [..., H]. The caller may pass only the positions with a target."""
        return self.classifier(hidden, self.embedding.word_embedding.weight)

    def forward(self, input_ids: torch.Tensor, allowed: torch.Tensor) -> torch.Tensor:
        """Return logits [B, T, V]. The logits at position t are for the token at t + 1, in causal and masked rows."""
        return self.logits(self.encode(input_ids, allowed))
