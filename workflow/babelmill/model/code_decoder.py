"""Define the decoder of a label model, which writes a text's codes symbol by symbol (`labels/codes.py`).

It is a transformer decoder with sinusoidal positions, which attends to the encoder's hidden states of the text.
OccCANINE (Dahl et al., 2024, arXiv:2402.13604) has the same decoder, and its names of weights are kept here.

This file is shipped inside exported models: it imports nothing but torch and the standard library.
"""

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

HEADS = 8


def padded(input_ids: torch.Tensor, seen: torch.Tensor, config: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Return `input_ids` and `seen` with more padding, so that a text gets the same scores in every batch.

    Args:
        input_ids: [B, T], the tokens of the texts.
        seen: [B, T], 0 or false at padding.
        config: configuration of the encoder, which decides how much padding is needed (`padded_length`).
    """
    more = padded_length(input_ids.size(1), config) - input_ids.size(1)
    pad = getattr(config, "pad_token_id", None) or 0
    return F.pad(input_ids, (0, more), value=pad), F.pad(seen, (0, more))


def padded_length(length: int, config: Any) -> int:
    """Return how long the rows of `padded` are, in tokens.

    Only CANINE needs more padding. It joins groups of four characters. In transformers' class of CANINE, the last group
    of a row has no features of its own: it takes those of the group before. An incomplete group at the end is dropped.
    The features of a character depend on the next two characters. And in a chunk of 128 characters without text, the
    padding attends to the whole chunk. So each row ends with at least two groups of padding, and the length of a row
    that is longer than one chunk is a multiple of the chunk.
    """
    if not hasattr(config, "downsampling_rate"):
        return length
    rate, chunk = config.downsampling_rate, config.local_transformer_stride
    beyond = -(-(config.upsampling_kernel_size // 2) // rate)
    found = (-(-length // rate) + 1 + beyond) * rate
    return found if found <= chunk else -(-found // chunk) * chunk


def longest_text(config: Any) -> int | None:
    """Return how many tokens an encoder can read, or None if there is no limit."""
    positions = getattr(config, "max_position_embeddings", None)
    if positions is None or not hasattr(config, "downsampling_rate"):
        return positions
    positions = min(positions, config.num_hash_buckets)  # the number of position embeddings
    return next((length for length in range(positions, 0, -1) if padded_length(length, config) <= positions), 0)


class CodeDecoder(nn.Module):
    """Scores the next symbol of a sequence of codes.

    Args:
        entries: V, the number of different symbols.
        width: H, the hidden size of the encoder. The feed-forward blocks have this width, too.
        layers: number of layers. Each has 8 heads, or gcd(8, width) if 8 does not divide the width.
        longest: length of the longest sequence, in symbols.
        dropout: probability of dropping a number.
    """

    positions: torch.Tensor

    def __init__(self, entries: int, width: int, layers: int, longest: int, dropout: float = 0.0):
        super().__init__()
        self.token_emb = nn.ModuleDict({"embedding": nn.Embedding(entries, width)})
        self.register_buffer("positions", _sinusoidal(longest, width), persistent=False)
        self.drop = nn.Dropout(dropout)
        layer = nn.TransformerDecoderLayer(width, math.gcd(HEADS, width), width, dropout, batch_first=True)
        self.decoder = nn.TransformerDecoder(layer, layers)
        self.head = nn.Linear(width, entries)

    def forward(self, hidden: torch.Tensor, seen: torch.Tensor, symbols: torch.Tensor) -> torch.Tensor:
        """Return, for each of the given symbols, the scores of the symbol after it, [B, n, V].

        Args:
            hidden: [B, T, H], the output of the encoder's last layer.
            seen: [B, T] bool, false at padding.
            symbols: [B, n] int64; the first one is `BEGIN`.
        """
        length = symbols.size(1)
        later = torch.ones(length, length, dtype=torch.bool, device=symbols.device).triu(1)
        given = self.drop(self._embedded(symbols, self.positions[:length]))
        return self.head(self.decoder(given, hidden, tgt_mask=later, memory_key_padding_mask=~seen))

    def _embedded(self, symbols: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        embedded = self.token_emb["embedding"](symbols) * math.sqrt(self.head.in_features)
        return embedded + positions.to(embedded.dtype)

    def read(self, hidden: torch.Tensor) -> list[torch.Tensor]:
        """Return, per layer, the keys and values of the text, [2, B, heads, T, H / heads]. `advance` needs them.

        Args:
            hidden: [B, T, H], the output of the encoder's last layer.
        """
        found = []
        for layer in self._layers:
            attention, width = layer.multihead_attn, hidden.size(-1)
            both = F.linear(hidden, attention.in_proj_weight[width:], attention.in_proj_bias[width:])
            found.append(both.unflatten(-1, (2, attention.num_heads, -1)).permute(2, 0, 3, 1, 4).contiguous())
        return found

    def advance(
        self, text: list[torch.Tensor], seen: torch.Tensor, symbols: torch.Tensor, before: list[torch.Tensor]
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Read one more symbol. Return the scores of the next one, [B, W, V], and `before` for the next call.

        The scores are those of `forward` without dropout. But this method computes nothing again for the text or for
        the earlier symbols.

        Args:
            text: the result of `read`.
            seen: [B, T] bool, false at padding.
            symbols: [B, W] int64, the last symbol of each of a text's W beams.
            before: per layer, the keys and values of the earlier symbols, [B, W, n, 2 H]. It begins as `nothing`.
        """
        last, kept = self._embedded(symbols, self.positions[before[0].size(2)]), []
        for layer, of_text, given in zip(self._layers, text, before, strict=True):
            attention, heads = layer.self_attn, layer.self_attn.num_heads
            own = F.linear(last, attention.in_proj_weight, attention.in_proj_bias)
            width = last.size(-1)
            given = torch.cat([given, own[:, :, None, width:]], 2)
            kept.append(given)
            # [B, W, heads, 1 or n, H / heads]
            query = own[:, :, None, :width].unflatten(-1, (heads, -1)).transpose(2, 3)
            keys, values = given.unflatten(-1, (2, heads, -1)).permute(3, 0, 1, 4, 2, 5)
            found = F.scaled_dot_product_attention(query, keys, values)
            last = layer.norm1(last + attention.out_proj(found.flatten(2)))
            attention = layer.multihead_attn
            query = F.linear(last, attention.in_proj_weight[:width], attention.in_proj_bias[:width])
            query = query.unflatten(-1, (heads, -1)).transpose(1, 2)
            found = F.scaled_dot_product_attention(query, *of_text, attn_mask=seen[:, None, None])
            last = layer.norm2(last + attention.out_proj(found.transpose(1, 2).flatten(2)))
            last = layer.norm3(last + layer.linear2(layer.activation(layer.linear1(last))))
        return self.head(last), kept

    def nothing(self, hidden: torch.Tensor) -> list[torch.Tensor]:
        """Return the `before` of the first call of `advance`: one beam per text, no symbols, [B, 1, 0, 2 H]."""
        return [hidden.new_zeros(len(hidden), 1, 0, 2 * hidden.size(-1)) for _ in self.decoder.layers]

    @property
    def _layers(self) -> Any:
        return self.decoder.layers


def _sinusoidal(length: int, width: int) -> torch.Tensor:
    """Return the position encodings of Vaswani et al. (2017), [length, width]."""
    rates = torch.exp(-torch.arange(0, width, 2) * math.log(10000) / width)
    angles = torch.arange(length)[:, None] * rates
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)[:, :width]
