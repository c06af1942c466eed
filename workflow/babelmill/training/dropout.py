"""Dropout keyed by row: which elements are dropped is a hash of (seed, row of the run, place in the model, element).

So a row loses the same elements whatever rows are beside it in a forward pass, and whichever process makes it; and
activation checkpointing makes them again without any state. Each hash of 32 bits decides about two elements, with 16
bits for each: the probability is a multiple of 2^-16, 0.1 becomes 0.100006. The numbers are those of
`randomness.draw`, here in int32 lanes that wrap around: half the memory, and the same integers on every device.

What all rows share, the table of relative positions, loses the same elements in all rows of a step.
"""

from functools import lru_cache

import torch
from torch import nn

from babelmill.model.attention import Visible, attention
from babelmill.model.gpt_bert import Attention, GPTBert
from babelmill.training import randomness
from babelmill.training.randomness import SHARED_DROPOUT

GOLDEN = randomness.GOLDEN - 2**32  # as int32


def mix(x: torch.Tensor) -> torch.Tensor:
    """Do what `randomness.mix` does, in int32. Shifts to the right bring ones into negative numbers: masked away."""
    x = x ^ ((x >> 16) & 0xFFFF)
    x.mul_(0x21F0AAAD)
    x.bitwise_xor_((x >> 15) & 0x1FFFF)
    x.mul_(0x735A2D97)
    return x.bitwise_xor_((x >> 15) & 0x1FFFF)


def counter(number: int, device: torch.device) -> torch.Tensor:
    """Return a counter as `draw` takes it, a scalar.

    It is a tensor, so that layers which differ in it alone are compiled to one graph.
    """
    return mix(torch.full((), number, dtype=torch.int32, device=device) + GOLDEN)


def draw(keys: torch.Tensor, counter: torch.Tensor) -> torch.Tensor:
    """Return the number of each key at a counter: what `randomness.draw` does, in int32."""
    return mix(keys ^ counter)


def _counters(count: int, device: torch.device) -> torch.Tensor:
    """Return the counters 0 .. count - 1 as `draw` takes them, [count]."""
    return mix(torch.arange(count, dtype=torch.int32, device=device) + GOLDEN)


_kept_counters = lru_cache(maxsize=16)(_counters)  # on a CPU; elsewhere they are a part of the compiled kernel


def keep(keys: torch.Tensor, size: int, p: float) -> torch.Tensor:
    """Return 1.0 with probability 1 - p, else 0.0, for each of `size` elements of each key: [keys, size]."""
    half = (size + 1) // 2
    if keys.device.type == "cpu":
        bits = draw(keys[:, None], _kept_counters(half, keys.device)).view(torch.int16)  # the low half first
    else:  # a view of another type would end a compiled kernel
        numbers = draw(keys[:, None], _counters(half, keys.device))
        bits = torch.stack([numbers << 16 >> 16, numbers >> 16], -1).flatten(1)
    dropped = round(p * 2**16)  # of the 2^16 values from -2^15 on
    return (bits[:, :size] >= dropped - 2**15).to(torch.get_default_dtype())


class Keys:
    """The int32 keys of the forward pass that is being made.

    Attributes:
        rows: [B], of the rows.
        targets: [n], of the positions that have a target.
        step: [1], of what all rows share.
    """

    def __init__(self, seed: int, device: torch.device):
        self._seed = seed
        self.rows = self.targets = self.step = torch.zeros(1, dtype=torch.int32, device=device)

    def begin_step(self, step: int) -> None:
        """Take the key of step `step`."""
        self.step = torch.full_like(self.step, int32(randomness.key(self._seed, SHARED_DROPOUT, step)))

    def begin_pass(self, rows: torch.Tensor, positions: torch.Tensor, length: int) -> None:
        """Take the keys of a micro-batch.

        Args:
            rows: [B] int64 keys, see `MicroBatch.dropout`.
            positions: [n] int64, index of each target's position in the flattened [B, length].
            length: of the rows.
        """
        self.rows = rows.to(torch.int32)  # the low 32 bits
        position = (positions % length).to(torch.int32)
        self.targets = mix(self.rows[positions // length] ^ mix(position + GOLDEN))


def int32(number: int) -> int:
    """Return a 32-bit number as a signed one."""
    return number - 2**32 if number >= 2**31 else number


class RowDropout(nn.Dropout):
    """`nn.Dropout` of what belongs to the rows of a micro-batch, to its targets, or to all rows of a step.

    Args:
        p: probability of dropping an element.
        place: its number in the model.
        keys: of the present forward pass.
        of: which of them: "rows", "targets" or "step".
    """

    def __init__(self, p: float, place: int, keys: Keys, of: str):
        super().__init__(p)
        self._place, self._keys, self._of = counter(place, keys.step.device), keys, of

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Return the input, in training with some elements dropped and the others scaled."""
        if not self.training or self.p == 0.0 or not input.numel():  # a pass may have no target at all
            return input
        keys = draw(getattr(self._keys, self._of), self._place)
        kept = keep(keys, input.numel() // len(keys), self.p).mul_(1 / (1 - self.p))
        return input * kept.view(input.shape).to(input.dtype)


class KeyedAttention:
    """`attention` whose weights are dropped by row, by the formula: the reference of what is faster.

    Args:
        place: its number in the model.
        keys: of the present forward pass.
    """

    def __init__(self, place: int, keys: Keys):
        self._place, self._keys = counter(place, keys.step.device), keys

    def __call__(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        query_table: torch.Tensor,
        key_table: torch.Tensor,
        buckets: torch.Tensor,
        visible: Visible,
        dropout: float = 0.0,
        implementation: str = "sdpa",
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Do what `attention` does."""
        tensors = (query, key, value, query_table, key_table, buckets)
        if not dropout:
            return attention(*tensors, visible, implementation=implementation)
        weights = attention(*tensors, visible, implementation="plain")[1]
        assert weights is not None
        kept = self.kept(weights.shape, dropout).mul_(1 / (1 - dropout))
        return (weights * kept.to(weights.dtype)) @ value, weights

    def kept(self, shape: torch.Size, p: float) -> torch.Tensor:
        """Return which attention weights stay, as `keep` does, of `shape` [B, n, Tq, Tk]."""
        return keep(draw(self._keys.rows, self._place), shape[1:].numel(), p).view(shape)


def install(model: GPTBert, keys: Keys, attention_type: type[KeyedAttention] | None) -> None:
    """Let a model drop by these keys in training; its weights and their names stay.

    Args:
        model: in which all dropout is replaced.
        keys: which each forward pass sets before.
        attention_type: for the attention weights; None leaves them to PyTorch, whose dropout has no keys.
    """
    shared = {id(layer.relative_dropout) for layer in model.modules() if isinstance(layer, Attention)}
    of_targets = {id(module) for module in model.classifier.modules()}
    place = 0
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, nn.Dropout):
                of = "step" if id(child) in shared else "targets" if id(child) in of_targets else "rows"
                setattr(module, name, RowDropout(child.p, place := place + 1, keys, of))
        if isinstance(module, Attention):
            place += 1  # also where PyTorch drops, so that later places draw the same numbers on every device
            if attention_type is not None:
                module.attend = attention_type(place, keys)
