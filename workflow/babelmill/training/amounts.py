"""How much of the text is masked, and how many scores exist at once: what a training and its plan have to agree on.

Without torch, so that a login node can compute with it.
"""

from fractions import Fraction
from typing import overload

import numpy as np

from babelmill.config import schema

CPU_TOKENS = 2048  # of a forward pass on a CPU
WHOLE_TOKENS = 16384  # of a micro-batch, where whole ones are dealt and train.micro_batch_tokens does not say
CHUNK = 2**26, 2**24  # scores that exist at once, on a GPU and (they fit into the cache) on a CPU


def whole_tokens(train: schema.Train) -> int:
    """Return the tokens of a micro-batch, where micro-batches are dealt to processes whole."""
    return train.micro_batch_tokens or WHOLE_TOKENS


def masked_share(train: schema.Train) -> Fraction:
    """Return the share of masked rows: 1 for the objective `masked`, 0 for `causal`."""
    return {"hybrid": Fraction(train.hybrid_ratio), "masked": Fraction(1), "causal": Fraction(0)}[train.objective]


@overload
def mask_rate(train: schema.Train, step: int, steps: int) -> float: ...
@overload
def mask_rate(train: schema.Train, step: np.ndarray, steps: int) -> np.ndarray: ...
def mask_rate(train: schema.Train, step: int | np.ndarray, steps: int) -> float | np.ndarray:
    """Return the share of maskable targets that is masked at a step (or at several) of `steps`: it changes linearly."""
    return train.mask_rate_start + (train.mask_rate_end - train.mask_rate_start) * step / steps
