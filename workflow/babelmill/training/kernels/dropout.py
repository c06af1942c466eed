"""Drop elements by row: a hash of (seed, row of the run, place in the model, element) decides what is dropped.

So a row always loses the same elements: it does not matter which rows share its forward pass, or which process computes
it. Activation checkpointing needs no saved state to drop the same elements again. Each 32-bit hash decides about two
elements. So probabilities are multiples of 2^-16: 0.1 becomes 0.100006. The numbers are those of `randomness.draw`,
computed in int32 with wrap-around: this takes half the memory and gives the same integers on every device.

All rows share the table of relative positions, so it loses the same elements in all rows of a step.

Beside dropout, kernels of attention need to know which part of a row they compute, tile by tile. A tile is `TILE`
neighbouring positions. In causal rows no query sees a later key, and no query sees another document. So many tiles of
queries see few tiles of keys, and the kernels leave out the others.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from babelmill.model import norbert4
from babelmill.model.attention import Visible, attention
from babelmill.model.gpt_bert import Attention, GPTBert
from babelmill.model.norbert4 import NorBERT4
from babelmill.training.plan import randomness
from babelmill.training.plan.randomness import SHARED_DROPOUT

TILE = 64


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
    """Do what `randomness.mix` does, in int32. Right shifts fill negative numbers with ones, which masks remove."""
    x = _times(x ^ ((x >> 16) & 0xFFFF), 0x21F0AAAD)
    x.bitwise_xor_((x >> 15) & 0x1FFFF)
    x = _times(x, 0x735A2D97)
    return x.bitwise_xor_((x >> 15) & 0x1FFFF)


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
    if keys.device.type == "cpu" and not torch.compiler.is_compiling():
        bits = draw(keys[:, None], _kept_counters(half, keys.device)).view(torch.int16)  # the low half first
    else:  # here a view of another type would split the compiled kernel in two
        numbers = draw(keys[:, None], _counters(half, keys.device))
        bits = torch.stack([numbers << 16 >> 16, numbers >> 16], -1).flatten(1)
    dropped = round(p * 2**16)  # how many of the 2^16 values drop their element: the lowest, from -2^15 on
    return (bits[:, :size] >= dropped - 2**15).to(torch.get_default_dtype())


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
    """Computes `attention` with dropout by row, by the formula. It is the reference for the faster versions.

    Args:
        place: number of this attention in the model.
        keys: the keys of the present forward pass.
    """

    def __init__(self, place: int, keys: Keys):
        self._place, self._keys = counter(place, keys.step.device), keys

    def __call__(
        self, *tensors: torch.Tensor, visible: Visible, dropout: float = 0.0, implementation: str = "sdpa"
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Do what `attention` does. `tensors` are its first six arguments."""
        if implementation == "sdpa":
            return self.compute(tensors, visible, dropout), None
        return self._by_formula(tensors, visible, dropout)

    def compute(self, tensors: tuple[torch.Tensor, ...], visible: Visible, dropout: float) -> torch.Tensor:
        """Return the weighted values, [B, n, Tq, d]."""
        return self._by_formula(tensors, visible, dropout)[0] if dropout else attention(*tensors, visible=visible)[0]

    def _by_formula(
        self, tensors: tuple[torch.Tensor, ...], visible: Visible, dropout: float
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return the weighted values and the attention weights before dropout."""
        if not dropout:
            return attention(*tensors, visible=visible, implementation="plain")
        weights = attention(*tensors, visible=visible, implementation="plain")[1]
        assert weights is not None
        kept = self.kept(weights.shape, dropout).mul_(1 / (1 - dropout))
        return (weights * kept.to(weights.dtype)) @ tensors[2], weights

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
