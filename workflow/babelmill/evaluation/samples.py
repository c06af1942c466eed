"""Say how many pairs of a suite a method scores (`evaluation.pairs` and `masked_pairs`)."""

from collections.abc import Mapping
from typing import Any


def most_pairs(asked: Mapping[str, Any], method: str) -> int | None:
    """Return how many pairs of each paradigm a method scores at most (None: all).

    `asked`: has the keys `pairs` and `masked_pairs` of the section `evaluation`; scores of earlier versions have no
    `pairs`.
    """
    keys = ("pairs",) if method == "causal" else ("pairs", "masked_pairs")
    return min((limit for key in keys if (limit := asked.get(key, "all")) != "all"), default=None)


def sample_of(asked: Mapping[str, Any], method: str) -> str:
    """Describe the sample of pairs that a method scored, see `most_pairs`; "" if it scored all pairs."""
    most = most_pairs(asked, method)
    return "" if most is None else f"sample of {most:,} pairs of each paradigm"
