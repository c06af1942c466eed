"""Choose which tokens of a row are hidden, and what replaces them, for all rows at once on the tokens' own device.

As in the published code, spans of one to three tokens are drawn, and whole spans are taken in random order until enough
tokens are hidden. Of these spans, some become random tokens, some stay (10 % each as published), and the others become
`<mask>`. There are two differences from the published code. The number of hidden tokens is exact (the last span is
cut), so that the plan knows the number of targets. And it is not counted how often a token has been hidden, so that a
row's mask depends only on the row's number.
"""

from dataclasses import dataclass

import torch

from babelmill.training.plan.objectives import Hiding
from babelmill.training.plan.randomness import below, draw

NEVER = torch.iinfo(torch.int64).max


@dataclass(frozen=True)
class MaskKeys:
    """Holds one 32-bit key per row and stream, each [B] int64 (see `randomness`)."""

    span: torch.Tensor
    priority: torch.Tensor
    action: torch.Tensor
    replacement: torch.Tensor


def spans(keys: torch.Tensor, position: torch.Tensor, longest: int) -> torch.Tensor:
    """Return the number of the span that each position belongs to, [B, T] int64.

    Spans are 1 to `longest` tokens long, each length equally often. `position`: 0 .. T - 1.
    """
    length = len(position)
    lengths = 1 + below(draw(keys[:, None], position), longest)
    starts = (lengths.cumsum(1) - lengths).clamp(max=length)
    first = torch.zeros(len(keys), length + 1, dtype=torch.int64, device=keys.device)
    return first.scatter_(1, starts, 1)[:, :length].cumsum(1) - 1


@torch.library.custom_op("babelmill::sorted_rows", mutates_args=())
def _sorted_rows(values: torch.Tensor) -> torch.Tensor:
    """Sort each row. `torch.compile` does not look inside: its own sort is one kernel that takes minutes to build."""
    return values.sort(1).values


@_sorted_rows.register_fake
def _(values: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(values)


def choose(
    maskable: torch.Tensor,  # [B, T] bool, at least `count` of them per row
    count: torch.Tensor,  # [B] int64
    span: torch.Tensor,  # [B, T] int64, from `spans`
    keys: torch.Tensor,  # [B] int64, `MaskKeys.priority`
    position: torch.Tensor,  # [T] int64, 0 .. T - 1
) -> torch.Tensor:
    """Choose exactly `count` maskable positions per row: whole spans in random order, and a part of the last span.

    The result is [B, T] bool.
    """
    rank = torch.where(maskable, draw(keys[:, None], span) * len(position) + position, NEVER)
    last = _sorted_rows(rank).gather(1, (count - 1).clamp(min=0)[:, None])
    return maskable & (rank <= last) & (count > 0)[:, None]


def corrupt(
    tokens: torch.Tensor,  # [B, T] int64
    chosen: torch.Tensor,  # [B, T] bool, from `choose`
    span: torch.Tensor,  # [B, T] int64, from `spans`
    keys: MaskKeys,
    position: torch.Tensor,  # [T] int64, 0 .. T - 1
    mask_id: int,
    ordinary: torch.Tensor,  # [n] int64, ids from which random tokens are drawn (no special tokens)
    hiding: Hiding,  # how often each action is taken
) -> torch.Tensor:
    """Replace the chosen tokens by `<mask>`, by random tokens or by themselves, with one action per span."""
    action = draw(keys.action[:, None], span)
    random = ordinary[below(draw(keys.replacement[:, None], position), len(ordinary))]
    masked, replaced = int((1 - hiding.random - hiding.keep) * 2**32), int((1 - hiding.keep) * 2**32)
    corrupted = torch.where(action < masked, mask_id, torch.where(action < replaced, random, tokens))
    return torch.where(chosen, corrupted, tokens)
