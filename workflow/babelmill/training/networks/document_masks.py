"""Make attention masks that keep the documents of a row apart, for models that get their masks from transformers.

This registers two extensions of transformers under one name: an attention implementation (transformers' own one with
PyTorch's SDPA), and the function that makes the masks of this implementation. A model with this implementation combines
its own rule (all tokens, earlier tokens, a sliding window) with ours: query and key must belong to the same document.
(A mask that is passed in as an argument would replace the model's rule in some models, and others would ignore it.)

A model that makes its masks by itself ignores all of this. So each model is tested before it trains
(`transformers_check.py`).
"""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import torch
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, and_masks, sdpa_mask

NAME = "babelmill_documents"  # the name of the attention implementation
_SEGMENTS: ContextVar[torch.Tensor | None] = ContextVar("segments", default=None)


@contextlib.contextmanager
def documents(segments: torch.Tensor | None) -> Iterator[None]:
    """Keep documents apart in forward passes. `segments` is [B, T], or None if each row is one document."""
    token = _SEGMENTS.set(segments)
    try:
        yield
    finally:
        _SEGMENTS.reset(token)


def positions(segments: torch.Tensor) -> torch.Tensor:
    """Return the position of each token in its document's part of the row, from 0, [B, T] int64."""
    index = torch.arange(segments.size(1), device=segments.device).expand_as(segments)
    begins = torch.ones_like(segments, dtype=torch.bool)
    begins[:, 1:] = segments[:, 1:] != segments[:, :-1]
    return index - torch.where(begins, index, 0).cummax(1).values


def _mask(*args: Any, mask_function: Any, **options: Any) -> torch.Tensor | None:
    """Make a mask for SDPA that combines the model's own rule with the documents."""
    segments = _SEGMENTS.get()
    if segments is not None:
        mask_function = and_masks(mask_function, lambda b, _, query, key: segments[b, query] == segments[b, key])
        options |= {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}
    return sdpa_mask(*args, mask_function=mask_function, **options)


AttentionInterface.register(NAME, sdpa_attention_forward)
AttentionMaskInterface.register(NAME, _mask)
