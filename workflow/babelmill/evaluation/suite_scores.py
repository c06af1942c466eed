"""Read a suite's scores in scores.json: which of them is the headline, and of how many pairs.

A hybrid model has several scores, and those that hide tokens may be of a small sample of the pairs
(`evaluation.max_masked_items`). The headline is the most precise score. All readers of scores.json ask these functions,
so that a report, a comparison and a run's last lines name the same number.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

BEST = ("fused", "causal", "masked", "bound")  # which method is the headline if several scored as many pairs


def headline_method(scores: dict[str, Any]) -> str:
    """Return the method of the headline score in scores.json: the one that scored the most pairs.

    Among those with as many pairs, it is the one that the file names, or the first of BEST. Of words, which have a
    measure, every method scores all.
    """
    named = scores["headline"]["method"]
    if measure_of(scores):
        return named
    counts: Counter[str] = Counter()
    for each in scores["languages"].values():
        for method, share_of_method in each.get("methods", {}).items():
            counts[method] += (share_of_method["pairs"] or {"n": 0})["n"]
    most = max(counts.values(), default=0)
    return next(method for method in (named, *BEST) if counts[method] == most)


def headline(scores: dict[str, Any], code: str) -> dict[str, Any] | None:
    """Return the headline score of a language in scores.json, see `share`; None if no pair has a score."""
    return scores["languages"][code]["methods"][headline_method(scores)][scores["headline"]["of"]]


def weighting(of: str) -> str:
    """Return how pairs are weighted in a suite's score; `of` is `headline` of the suite."""
    return {
        "paradigms": "the unweighted mean of paradigms",
        "phenomena": "the mean over phenomena of the mean of their paradigms",
    }.get(of, "the share of all pairs")


def most_pairs(asked: Mapping[str, Any], method: str) -> int | None:
    """Return how many pairs of each paradigm a method scores at most (None: all).

    `asked`: has the keys `max_items` and `max_masked_items` of the section `evaluation`; a missing key means `all`.
    """
    keys = ("max_items",) if method == "causal" else ("max_items", "max_masked_items")
    return min((limit for key in keys if (limit := asked.get(key, "all")) != "all"), default=None)


def sample_of(scores: Mapping[str, Any], method: str) -> str:
    """Describe the sample of pairs that a method scored; "" if it scored all. `scores`: the content of scores.json."""
    for found in scores["languages"].values():
        whole, there = found["methods"].get(method, {}).get("pairs"), found.get("pairs", {}).get("pairs")
        if whole and (there is None or whole["n"] < there) and (most := most_pairs(scores, method)):
            return f"sample of {most:,} pairs of each paradigm"
    return ""


def measure_of(scores: dict[str, Any]) -> str:
    """Return what the scores in scores.json are, such as "Spearman"; "" if they are shares of right answers."""
    return scores.get("measure", "")


def chance(scores: dict[str, Any]) -> float:
    """Return the score that guessing gets: one half for pairs, the mean of 1 / options for choices, else 0."""
    if measure_of(scores):
        return 0.0
    shares = [each.get("pairs", {}).get("chance", 0.5) for each in scores["languages"].values()]
    return sum(shares) / len(shares)


def in_words(scores: dict[str, Any]) -> str:
    """Return the headline scores in scores.json as text: for each language, the score with its interval."""
    method, shares = headline_method(scores), list[str]()
    unit = f"({measure} x 100)" if (measure := measure_of(scores)) else "% right"
    for code in scores["languages"]:
        if share := headline(scores, code):
            low, high = (100 * end for end in share["interval"])
            shares.append(f"{code} {100 * share['score']:.1f} {unit} ({low:.1f} to {high:.1f}, n = {share['n']:,})")
    sample = f" ({of})" if (of := sample_of(scores, method)) else ""
    return f"{scores['suite']}, {method}{sample}: {', '.join(shares)}"
