"""Documents that share a row do not see each other, in any model of transformers that asks it for its attention masks.

Two extension points of transformers do it: an attention implementation (its own, PyTorch's SDPA) and the function that
makes that implementation's masks, registered under one name. A model that is made with it combines its own rule (all
tokens, earlier ones, a sliding window) with ours: query and key are of the same document. Masks that are handed in from
outside would take the place of the model's rule in some models, and be ignored in others.

A model that makes its masks by itself does not notice any of this, so each one is put to the proof before it trains
(`transformers_proof.py`).
"""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import torch
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, and_masks, sdpa_mask

NAME = "babelmill_documents"  # of the attention implementation
_SEGMENTS: ContextVar[torch.Tensor | None] = ContextVar("segments", default=None)


@contextlib.contextmanager
def documents(segments: torch.Tensor | None) -> Iterator[None]:
    """Let forward passes in this context keep the documents apart that `segments` [B, T] counts; None: one a row."""
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
    """Make a mask as for SDPA, from the model's own rule and the documents'."""
    segments = _SEGMENTS.get()
    if segments is not None:
        mask_function = and_masks(mask_function, lambda b, _, query, key: segments[b, query] == segments[b, key])
        options |= {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}
    return sdpa_mask(*args, mask_function=mask_function, **options)


AttentionInterface.register(NAME, sdpa_attention_forward)
AttentionMaskInterface.register(NAME, _mask)
