"""Drop elements by row: a hash of (seed, row of the run, place in the model, element) decides what is dropped.

So a row always loses the same elements: it does not matter which rows share its forward pass, or which process computes
it. Activation checkpointing needs no saved state to drop the same elements again. Each 32-bit hash decides about two
elements. So probabilities are multiples of 2^-16: 0.1 becomes 0.100006. The numbers are those of `randomness.draw`,
computed in int32 with wrap-around: this takes half the memory and gives the same integers on every device.

All rows share the table of relative positions, so it loses the same elements in all rows of a step.

Attention drops its weights. The shipped models have operations whose gradients of any order exist. In training, first
gradients are enough, so classes of this file replace them, which compute the same numbers with dropout keyed by row:

* `KeyedAttention`: the formula.
* `CPUAttention`: with a gradient written by hand.
* `OneHotAttention`, for GPUs: no atomic additions. The shipped model copies the products of queries and keys with the
  position tables to their places among the scores. The gradient of such a copy adds many numbers at one address. A GPU
  does so with atomic additions, which are slow and come in another order in each run. Here a product with a one-hot
  table copies the numbers instead. Its gradient is a matrix product, too, so every run computes the same numbers.
* `KeyedNorBERT4Attention`: PyTorch's own attention, with two exceptions, where the formula is computed. PyTorch's
  dropout is not keyed by row, so `model.attention_probs_dropout_prob` above 0 needs the formula. It takes more memory,
  and on a GPU more time. In bf16 on a CPU, the formula is faster for rows of up to 512 tokens: see
  `benchmarks/README.md`, "NorBERT4".

Beside dropout, kernels of attention need to know which part of a row they compute, tile by tile. A tile is `TILE`
neighbouring positions. In causal rows no query sees a later key, and no query sees another document. So many tiles of
queries see few tiles of keys, and the kernels leave out the others.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from babelmill.model import norbert4
from babelmill.model.attention import Visible, attention, compute_dtype, flat_indices
from babelmill.model.gpt_bert import Attention, GPTBert
from babelmill.model.norbert4 import NorBERT4
from babelmill.training.plan import randomness
from babelmill.training.plan.randomness import SHARED_DROPOUT

TILE = 64
COLUMNS = 64  # columns of the one-hot table: matrix units need a multiple of 8, and a table has 63 rows as published
SHORT = 512  # tokens; in longer rows, PyTorch's fused attention is faster than the formula


def tiles(length: int) -> int:
    """Return how many tiles a row of `length` tokens has."""
    return -(-length // TILE)


def spans_of_mask(seen: torch.Tensor) -> torch.Tensor:
    """Return from where to where the queries of each tile see keys, and the keys of each tile are seen by queries.

    Args:
        seen: [B, 1, T, T] bool, see `training_mask`. The keys that a tile sees must be neighbours, and so must be the
            queries that see a tile.

    Returns:
        [B, 2, tiles, 2] int32: of queries and of keys; the first position, and the last one plus 1 (T and 0 if there is
        none).
    """
    length, found = seen.size(-1), []
    seen = F.pad(seen[:, 0], (0, -length % TILE) * 2)
    position = torch.arange(seen.size(-1), dtype=torch.int32, device=seen.device)
    for of_tiles in (seen.unflatten(1, (-1, TILE)).any(2), seen.unflatten(2, (-1, TILE)).any(3).mT):  # [B, tiles, T]
        first, last = (torch.where(of_tiles, position, otherwise) for otherwise in (length, -1))
        found.append(torch.stack([first.amin(-1), last.amax(-1) + 1], -1))
    return torch.stack(found, 1)


GOLDEN = randomness.GOLDEN - 2**32  # as int32


def mix(x: torch.Tensor) -> torch.Tensor:
    """Do what `randomness.mix` does, in int32."""
    x = _times(_shifted(x, 16).bitwise_xor_(x), 0x21F0AAAD)
    x = _times(x.bitwise_xor_(_shifted(x, 15)), 0x735A2D97)
    return x.bitwise_xor_(_shifted(x, 15))


def _shifted(x: torch.Tensor, bits: int) -> torch.Tensor:
    """Return x >> bits of unsigned numbers: PyTorch fills negative ones with ones, which a mask removes."""
    return (x >> bits).bitwise_and_(2 ** (32 - bits) - 1)


def _times(x: torch.Tensor, factor: int) -> torch.Tensor:
    """Return the product with wrap-around; if nothing is being compiled, in place.

    On a CPU, compiled code is C++, which does not define int32 products that overflow: the compiler made other numbers.
    """
    return (x.long() * factor).int() if torch.compiler.is_compiling() else x.mul_(factor)


def counter(number: int, device: torch.device) -> torch.Tensor:
    """Return a number as a counter for `draw`, a scalar.

    It is a tensor, so that layers that differ only in their counter are compiled to one graph.
    """
    return mix(torch.full((), number, dtype=torch.int32, device=device) + GOLDEN)


def draw(keys: torch.Tensor, counter: torch.Tensor) -> torch.Tensor:
    """Return the random number of each key at a counter, as `randomness.draw` does, in int32."""
    return mix(keys ^ counter)


def _counters(count: int, device: torch.device) -> torch.Tensor:
    """Return 0 .. count - 1 as counters for `draw`, [count]."""
    return mix(torch.arange(count, dtype=torch.int32, device=device) + GOLDEN)


_kept_counters = lru_cache(maxsize=16)(_counters)  # for CPUs; on a GPU the compiled kernel computes them


def keep(keys: torch.Tensor, size: int, p: float) -> torch.Tensor:
    """Return 1.0 with probability 1 - p, else 0.0, for each of `size` elements per key: [keys, size]."""
    half = (size + 1) // 2
    least = round(p * 2**16) - 2**15  # of the 2^16 values, the lowest drop their element, from -2^15 on
    if keys.device.type == "cpu" and not torch.compiler.is_compiling():
        bits = draw(keys[:, None], _kept_counters(half, keys.device)).view(torch.int16)  # the low half first
        kept = torch.empty(len(keys), size, device=keys.device)
        return torch.ge(bits[:, :size], least, out=kept)  # in one pass; by way of a bool tensor, it takes two slow ones
    # Here a view of another type would split the compiled kernel in two.
    numbers = draw(keys[:, None], _counters(half, keys.device))
    bits = torch.stack([numbers << 16 >> 16, numbers >> 16], -1).flatten(1)
    return (bits[:, :size] >= least).to(torch.get_default_dtype())


class Keys:
    """Holds the int32 keys of the present forward pass, and where its rows see.

    Attributes:
        rows: [B], one key per row.
        targets: [n], one key per position that has a target.
        step: [1], the key for tensors that all rows share.
        spans: [B, 2, tiles, 2], see `spans_of_mask`; None if no kernel of ours computes attention.
    """

    def __init__(self, seed: int, device: torch.device):
        self._seed = seed
        self.step = torch.zeros(1, dtype=torch.int32, device=device)
        self.rows = self.targets = self.step
        self.spans: torch.Tensor | None = None

    def begin_step(self, step: int) -> None:
        """Set the key of step `step`, in place: recorded passes read it there."""
        key = randomness.key(self._seed, SHARED_DROPOUT, step)
        self.step.fill_(key - 2**32 if key >= 2**31 else key)

    def begin_pass(
        self, rows: torch.Tensor, positions: torch.Tensor, length: int, seen: torch.Tensor | None = None
    ) -> None:
        """Set the keys of a micro-batch.

        Args:
            rows: [B] int64 keys, see `MicroBatch.dropout`.
            positions: [n] int64, index of each target's position in the flattened [B, length].
            length: length of the rows.
            seen: [B, 1, T, T] bool, see `training_mask`, for our GPU kernels of attention.
        """
        self.rows = rows.to(torch.int32)  # the low 32 bits
        self.spans = None if seen is None else spans_of_mask(seen)
        position = (positions % length).to(torch.int32)
        self.targets = mix(self.rows[positions // length] ^ mix(position + GOLDEN))


class RowDropout(nn.Dropout):
    """Drops elements by key, in tensors that belong to a micro-batch's rows, to its targets, or to the whole step.

    Args:
        p: probability of dropping an element.
        place: number of this module in the model.
        keys: the keys of the present forward pass.
        of: which of these keys to use: "rows", "targets" or "step".
    """

    def __init__(self, p: float, place: int, keys: Keys, of: str):
        super().__init__(p)
        self.place, self.keys, self._of = counter(place, keys.step.device), keys, of

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Return the input; in training, some of its elements are dropped and the others scaled."""
        if not self.training or self.p == 0.0 or not input.numel():  # a pass may have no target at all
            return input
        keys = draw(getattr(self.keys, self._of), self.place)
        kept = keep(keys, input.numel() // len(keys), self.p).mul_(1 / (1 - self.p))
        return input * kept.view(input.shape).to(input.dtype)

    def of_rows(self, training: bool) -> tuple[torch.Tensor | None, torch.Tensor | None, float]:
        """Return the rows' keys in the present pass, the counter and the probability, for our GPU kernels.

        If nothing is dropped, the probability is 0, and there are neither keys nor a counter.
        """
        return (self.keys.rows, self.place, self.p) if training and self.p else (None, None, 0.0)


class NoDropout(nn.Dropout):
    """Drops nothing: other code drops these elements, with the probability that this module holds."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return input


class KeyedAttention:
    """Computes the attention of a GPT-BERT with dropout by row, by the formula.

    Args:
        place: number of this attention in the model.
        keys: the keys of the present forward pass.
    """

    def __init__(self, place: int, keys: Keys):
        self._place, self._keys = counter(place, keys.step.device), keys

    def __call__(
        self, *tensors: torch.Tensor, visible: Visible, dropout: float = 0.0, **_: Any
    ) -> tuple[torch.Tensor, None]:
        """Do what the model's `attention` does, but return no weights. `tensors` are its first arguments."""
        return self.compute(tensors, visible, dropout), None

    def compute(self, tensors: tuple[torch.Tensor, ...], visible: Visible, dropout: float) -> torch.Tensor:
        """Return the weighted values, [B, n, Tq, d]."""
        if not dropout:
            return attention(*tensors, visible=visible)[0]
        weights = attention(*tensors, visible=visible, implementation="plain")[1]
        assert weights is not None
        return self.drop(weights, dropout) @ tensors[2]

    def drop(self, weights: torch.Tensor, p: float) -> torch.Tensor:
        """Drop some of the attention weights [B, n, Tq, Tk], and scale the others."""
        return weights * self.kept(weights.shape, p).mul_(1 / (1 - p)).to(weights.dtype)

    def kept(self, shape: torch.Size, p: float) -> torch.Tensor:
        """Return which attention weights are kept (see `keep`). `shape` is [B, n, Tq, Tk]."""
        return keep(self.row_keys(), shape[1:].numel(), p).view(shape)

    def row_keys(self) -> torch.Tensor:
        """Return the key of each row for this place in the model, [B] int32."""
        return draw(self._keys.rows, self._place)

    def spans(self) -> torch.Tensor:
        """Return `Keys.spans` of the present pass."""
        assert self._keys.spans is not None
        return self._keys.spans


class _CPUAttention(torch.autograd.Function):
    """Computes attention and its gradient. (On a CPU, the gradient of PyTorch's `sdpa` takes a dozen operations.)

    The weights before and after dropout are saved for the backward pass.
    """

    @staticmethod
    def forward(
        ctx: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        query_table: torch.Tensor,
        key_table: torch.Tensor,
        buckets: torch.Tensor,
        penalty: torch.Tensor,
        alive: torch.Tensor,
        kept: torch.Tensor | None,
        dropout: float,
    ) -> torch.Tensor:
        batch, heads, _, size = query.shape
        scale = 1.0 / math.sqrt(3 * size)
        q, k, v = (x.reshape(batch * heads, -1, size) for x in (query, key, value))
        q_table, k_table = ((x * scale).repeat(batch, 1, 1) for x in (query_table, key_table))
        rows, columns = (index.expand(len(q), -1) for index in flat_indices(buckets, key_table.size(1)))

        scores = torch.baddbmm(q.new_empty(()), q, k.mT, beta=0, alpha=scale)
        part = torch.gather(torch.bmm(q, k_table.mT).flatten(1), 1, rows)
        scores.flatten(1).add_(part)
        torch.gather(torch.bmm(k, q_table.mT).flatten(1), 1, columns, out=part)
        scores.flatten(1).add_(part)
        scores.unflatten(0, (batch, heads)).add_(penalty)
        weights = torch.softmax(scores, -1)

        dropped = weights if kept is None else torch.mul(weights, kept.view(weights.shape), out=scores)
        factor = alive / (1 - dropout)
        context = torch.bmm(dropped, v).unflatten(0, (batch, heads)) * factor
        ctx.save_for_backward(q, k, v, q_table, k_table, rows, columns, weights, dropped, factor, context)
        ctx.scale = scale
        return context

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        q, k, v, q_table, k_table, rows, columns, weights, dropped, factor, context = ctx.saved_tensors
        batch, heads = gradient.shape[:2]
        mean = (gradient * context).sum(-1, keepdim=True).flatten(0, 1)  # the gradient's mean, weighted by the weights
        gradient = (gradient * factor).reshape(q.shape)
        d_value = torch.bmm(dropped.mT, gradient)
        d_scores = torch.bmm(gradient, v.mT).mul_(dropped).addcmul_(weights, mean, value=-1)

        wide = d_scores.to(torch.promote_types(d_scores.dtype, torch.float32)).flatten(1)  # long sums follow
        c2p = wide.new_zeros(len(q), q.size(1) * k_table.size(1)).scatter_add_(1, rows, wide)
        p2c = wide.new_zeros(len(q), k.size(1) * k_table.size(1)).scatter_add_(1, columns, wide)
        c2p, p2c = (x.view(len(q), -1, k_table.size(1)).to(q.dtype) for x in (c2p, p2c))
        d_query = torch.bmm(c2p, k_table).baddbmm_(d_scores, k, alpha=ctx.scale)
        d_key = torch.bmm(p2c, q_table).baddbmm_(d_scores.mT, q, alpha=ctx.scale)
        d_tables = (torch.bmm(p2c.mT, k), torch.bmm(c2p.mT, q))
        d_tables = (x.unflatten(0, (batch, heads)).sum(0) * ctx.scale for x in d_tables)
        return (
            *(x.unflatten(0, (batch, heads)) for x in (d_query, d_key, d_value)),
            *d_tables,
            *[None] * 5,
        )


class CPUAttention(KeyedAttention):
    """Computes attention with dropout by row, with `_CPUAttention` if a gradient is needed."""

    def compute(self, tensors: tuple[torch.Tensor, ...], visible: Visible, dropout: float) -> torch.Tensor:
        query, key, *_ = tensors
        if not query.requires_grad:
            return super().compute(tensors, visible, dropout)
        kept = self.kept(torch.Size([*query.shape[:3], key.size(2)]), dropout) if dropout else None
        return _CPUAttention.apply(*tensors, *visible, kept, dropout)


def _spread(products: torch.Tensor, one_hot: torch.Tensor) -> torch.Tensor:
    """Return element r(i, j) of products [B, n, T, R] for each i and j, [B, n, T, S].

    `one_hot` [T, R, S]: 1 at [i, r(i, j), j], otherwise 0.
    """
    spread = torch.bmm(products.flatten(0, 1).transpose(0, 1), one_hot)
    return spread.transpose(0, 1).unflatten(0, products.shape[:2])


class OneHotAttention(KeyedAttention):
    """Computes attention with dropout by row, with products with one-hot tables."""

    def compute(self, tensors: tuple[torch.Tensor, ...], visible: Visible, dropout: float) -> torch.Tensor:
        query, key, value, query_table, key_table, buckets = tensors
        size = -(-key_table.size(1) // COLUMNS) * COLUMNS
        tables = [F.pad(table, (0, 0, 0, size - table.size(1))) for table in (key_table, query_table)]
        places = torch.arange(size, device=buckets.device)[:, None]
        of_query, of_key = (
            (b[:, None, :] == places).to(compute_dtype(query)) for b in (buckets, buckets.T)
        )  # at [i, r, j] and at [j, r, i]
        parts = query @ key.mT, _spread(query @ tables[0].mT, of_query), _spread(key @ tables[1].mT, of_key).mT
        wide = torch.promote_types(parts[0].dtype, torch.float32)
        scores = sum(part.to(wide) for part in parts) / math.sqrt(3 * query.size(-1)) + visible.penalty
        weights = (scores.softmax(-1) * visible.alive).to(value.dtype)
        return (self.drop(weights, dropout) if dropout else weights) @ value


class KeyedNorBERT4Attention(KeyedAttention):
    """Computes the attention of a NorBERT4 with dropout by row."""

    def compute(self, tensors: tuple[torch.Tensor, ...], visible: Visible, dropout: float) -> torch.Tensor:
        query, key, value = tensors
        if dropout:
            weights = norbert4.attention_weights(query, key, visible).to(value.dtype)
            return self.drop(weights, dropout) @ value
        short = query.device.type == "cpu" and query.dtype == torch.bfloat16 and key.size(-2) <= SHORT
        return norbert4.attention(query, key, value, visible, implementation="plain" if short else "sdpa")[0]


def install(model: GPTBert | NorBERT4, keys: Keys, attention_type: Callable[[int, Keys], Any]) -> None:
    """Let a model use these keys for dropout in training. Its weights and their names do not change.

    Args:
        model: the model in which all dropout is replaced.
        keys: the keys, which are set before each forward pass.
        attention_type: the class of the model's attention, which drops its weights.
    """
    shared = {id(layer.relative_dropout) for layer in model.modules() if isinstance(layer, Attention)}
    of_targets = {id(module) for module in model.classifier.modules()}
    place = 0
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, nn.Dropout):
                of = "step" if id(child) in shared else "targets" if id(child) in of_targets else "rows"
                setattr(module, name, RowDropout(child.p, place := place + 1, keys, of))
        if isinstance(module, (Attention, norbert4.Attention)):
            place += 1
            module.attend = attention_type(place, keys)
