"""Choose the headline among the scores of a suite that scores.json holds.

A hybrid model has several scores, and those that hide tokens may be of a small sample of the pairs. The headline is the
most precise score. All readers of scores.json ask these functions, so that a report, a comparison and a run's last
lines name the same number.
"""

from collections import Counter
from typing import Any

METHODS = ("causal", "masked", "fused", "bound")  # in the order in which they are shown
BEST = ("fused", "causal", "masked", "bound")  # which method is the headline if several scored as many pairs


def headline_method(scores: dict[str, Any]) -> str:
    """Return the method of the headline score in scores.json: the one that scored the most pairs.

    Among those with as many pairs, it is the one that the file names, or the first of BEST. (Earlier versions always
    named the last method, even if its scores were those of a small sample.)
    """
    counts: Counter[str] = Counter()
    for each in scores["languages"].values():
        for method, share_of_method in each.get("methods", {}).items():
            counts[method] += (share_of_method["pairs"] or {"n": 0})["n"]
    named = scores["headline"]["method"]
    most = max(counts.values(), default=0)
    return next(method for method in (named, *BEST) if counts[method] == most)


def headline(scores: dict[str, Any], code: str) -> dict[str, Any] | None:
    """Return the headline score of a language in scores.json, see `share`; None if no pair has a score."""
    return scores["languages"][code]["methods"][headline_method(scores)][scores["headline"]["of"]]


def weighting(of: str) -> str:
    """Return how pairs are weighted in a suite's score; `of` is `headline` of the suite."""
    return "the unweighted mean of paradigms" if of == "paradigms" else "the share of all pairs"
