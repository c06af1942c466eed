"""Compute metrics of predicted codes with NumPy, from the true codes and the predicted codes of each text.

Codes are numbers. A code that the model does not know also has a number. It is never predicted, so it counts as missed.
"""

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np

TOPS = (1, 3, 5)
BINS = 15  # bins of the calibration


class Sets(NamedTuple):
    """The codes of texts; no text has a code twice."""

    codes: np.ndarray  # [codes] int64, the codes of all texts, one text after another
    offsets: np.ndarray  # [texts + 1] int64: text i has `codes[offsets[i]:offsets[i + 1]]`

    @classmethod
    def of(cls, lists: Sequence[Sequence[int]]) -> "Sets":
        """Make the sets from lists of codes, one list per text."""
        offsets = np.cumsum([0, *map(len, lists)], dtype=np.int64)
        return cls(np.array([code for each in lists for code in each], np.int64), offsets)

    @property
    def sizes(self) -> np.ndarray:
        """Return how many codes each text has, [texts]."""
        return np.diff(self.offsets)

    @property
    def texts(self) -> np.ndarray:
        """Return the number of the text that each code belongs to, [codes]."""
        return np.repeat(np.arange(len(self.offsets) - 1), self.sizes)

    def first(self) -> np.ndarray:
        """Return the first code of each text, -1 for a text without a code, [texts]."""
        return np.where(self.sizes > 0, np.append(self.codes, -1)[self.offsets[:-1]], -1)

    def among(self, chosen: np.ndarray) -> "Sets":
        """Return the sets of the texts that are `chosen`, [texts] bool."""
        sizes = self.sizes[chosen]
        return Sets(self.codes[np.repeat(chosen, self.sizes)], np.concatenate([[0], np.cumsum(sizes)]))


class Predictions(NamedTuple):
    """The predictions for texts."""

    codes: Sets  # the codes that are predicted
    likeliest: np.ndarray  # [texts, k] int64, the k most probable codes, the most probable first; -1 if there are fewer
    chances: np.ndarray  # [texts, k] float64, the probability of each

    def among(self, chosen: np.ndarray) -> "Predictions":
        """Return the predictions for the texts that are `chosen`, [texts] bool."""
        return Predictions(self.codes.among(chosen), self.likeliest[chosen], self.chances[chosen])


def inside(these: Sets, those: Sets) -> np.ndarray:
    """Return which of the codes `these` are among the codes `those` of the same text, [codes] bool."""
    width = 1 + max(these.codes.max(initial=0), those.codes.max(initial=0))
    return np.isin(these.texts * width + these.codes, those.texts * width + those.codes)


def is_true(codes: np.ndarray, truth: Sets) -> np.ndarray:
    """Return which codes are true codes of their texts: [texts, k] bool; `codes`: [texts, k], -1 for no code."""
    rows, width = codes.shape
    right = inside(Sets(codes.reshape(-1) + 1, np.arange(rows + 1) * width), Sets(truth.codes + 1, truth.offsets))
    return right.reshape(rows, width) & (codes >= 0)


def figures(truth: Sets, found: Predictions) -> dict[str, Any]:
    """Return the figures of some texts, each of which has a true code.

    `exact`: the share of texts for which exactly the true codes are predicted. `micro`: precision, recall and F1 over
    all codes together. `macro`: their means over the codes that occur here, as true or as predicted codes. `per_text`:
    the means over texts of each text's precision and recall. `top_k`: the share of texts that have a true code among
    the k likeliest. A figure that would be 0 / 0 is 0.
    """
    texts, codes = len(truth.sizes), found.codes.codes
    right = inside(found.codes, truth)
    hits = np.bincount(found.codes.texts[right], minlength=texts)
    exact = int(((hits == truth.sizes) & (hits == found.codes.sizes)).sum())
    count = 1 + max(truth.codes.max(initial=0), codes.max(initial=0))
    by_code = np.stack([np.bincount(each, minlength=count) for each in (codes[right], codes, truth.codes)])
    occur = by_code[1] + by_code[2] > 0
    per_text = rates(hits, found.codes.sizes, truth.sizes)
    true = is_true(found.likeliest, truth)
    return {
        "texts": texts,
        "exact": exact / texts,
        "exact_texts": exact,
        "codes": {"true": len(truth.codes), "predicted": len(codes), "right": int(right.sum())},
        "micro": {name: float(value) for name, value in rates(*by_code.sum(1)).items()},
        "macro": {name: mean(values) for name, values in rates(*by_code[:, occur]).items()}
        | {"codes": int(occur.sum())},
        "per_text": {name: mean(per_text[name]) for name in ("precision", "recall")},
        **{f"top_{k}": mean(np.any(true[:, :k], axis=1)) for k in TOPS},
    }


def mean(values: np.ndarray) -> float:
    """Return the mean of values; 0 if there are none."""
    return float(values.mean()) if len(values) else 0.0


def rates(right: np.ndarray, predicted: np.ndarray, true: np.ndarray) -> dict[str, np.ndarray]:
    """Return precision, recall and F1 from counts; 0 instead of a division by 0."""
    return {
        "precision": right / np.maximum(predicted, 1),
        "recall": right / np.maximum(true, 1),
        "f1": 2 * right / np.maximum(predicted + true, 1),
    }


def headline(truth: Sets, found: Predictions) -> dict[str, dict[str, Any]]:
    """Return the scores `exact` and `f1` (micro), each with its standard error over texts, and with its counts."""
    texts = len(truth.sizes)
    hits = np.bincount(found.codes.texts[inside(found.codes, truth)], minlength=texts)
    both = truth.sizes + found.codes.sizes
    exact = 2 * hits == both  # hits is at most either size, so the sum is equal only if both sizes are
    f1 = 2 * hits.sum() / max(1, both.sum())
    spread = np.sqrt(texts * max(1, texts) / max(1, texts - 1))  # for the error of a sum over texts (delta method)
    return {
        "exact": {
            "value": float(exact.mean()),
            "standard_error": float(exact.std() * spread / texts),
            "right": int(exact.sum()),
            "of": texts,
        },
        "f1": {
            "value": float(f1),
            "standard_error": float((2 * hits - f1 * both).std() * spread / max(1, both.sum())),
            "right": int(hits.sum()),
            "predicted": len(found.codes.codes),
            "of": len(truth.codes),
        },
    }


def digits(truth: Sets, found: Predictions, spelt: np.ndarray) -> list[float]:
    """Return the share of texts whose first true code and a predicted code share the first 1, 2, ... symbols.

    `spelt`: [codes, symbols], the ids of the symbols of each code.
    """
    texts = found.codes.texts
    same = spelt[truth.first()[texts]] == spelt[found.codes.codes]
    begins = np.zeros((len(truth.sizes), spelt.shape[1]), bool)
    np.logical_or.at(begins, texts, np.logical_and.accumulate(same, 1))
    return begins.mean(0).tolist()


def calibration(truth: Sets, found: Predictions) -> dict[str, Any]:
    """Compare the probability of the likeliest code with how often it is a true code, in bins of equal width.

    `expected_error` is the mean absolute difference, weighted by texts (Guo et al., 2017, arXiv:1706.04599). Each bin
    has its number of `texts`, the mean probability `chance` and the share `right`; both are None for an empty bin.
    """
    chance = np.clip(found.chances[:, 0], 0.0, 1.0)
    right = is_true(found.likeliest[:, :1], truth)[:, 0]
    place = np.minimum((chance * BINS).astype(int), BINS - 1)
    texts = np.bincount(place, minlength=BINS)
    sums = [np.bincount(place, weights=values, minlength=BINS) for values in (chance, right)]
    chances, shares = (total / np.maximum(texts, 1) for total in sums)
    return {
        "expected_error": float((np.abs(chances - shares) * texts).sum() / max(1, texts.sum())),
        "bins": [
            {"texts": int(n), "chance": float(p) if n else None, "right": float(share) if n else None}
            for n, p, share in zip(texts, chances, shares, strict=True)
        ],
    }


def threshold(truth: Sets, found: Predictions, most: int) -> dict[str, float]:
    """Return the probability from which predicting further codes gives the best micro F1, and this F1.

    The likeliest code of a text is always predicted, and at most `most` codes are. Every threshold that makes a
    difference is tried. The threshold returned lies half-way between the last probability that counts and the next
    lower one.
    """
    true = is_true(found.likeliest[:, :most], truth)
    chances = np.where(found.likeliest[:, :most] >= 0, found.chances[:, :most], 0.0)
    order = np.argsort(-chances[:, 1:], axis=None, kind="stable")
    further, right = chances[:, 1:].reshape(-1)[order], true[:, 1:].reshape(-1)[order]
    hits = true[:, 0].sum() + np.concatenate([[0], np.cumsum(right)])
    predicted = (found.likeliest[:, 0] >= 0).sum() + np.arange(len(hits))
    scores = 2 * hits / np.maximum(1, predicted + len(truth.codes))
    ends = np.append(np.concatenate([[1.0], further])[:-1] > further, True)  # no threshold separates equal ones
    best = int(np.argmax(np.where(ends, scores, -1.0)))
    edges = np.concatenate([[1.0], further, [0.0]])
    return {"value": float((edges[best] + edges[best + 1]) / 2), "f1": float(scores[best])}


def mistakes(truth: Sets, found: Predictions, most: int, examples: int) -> list[dict[str, Any]]:
    """Return the most frequent mistakes: `true` and `predicted` code, `count`, and some `texts` (their numbers).

    The missed codes of a text are paired with its wrong predictions, in order. If one side has fewer codes, its code is
    -1: `predicted` is -1 if a code was only missed, and `true` is -1 if a code was predicted in addition.
    """
    missed, wrong = ~inside(truth, found.codes), ~inside(found.codes, truth)
    pairs: dict[tuple[int, int], list[int]] = {}
    for text in np.flatnonzero(_any(missed, truth) | _any(wrong, found.codes)).tolist():
        true, predicted = slice(*truth.offsets[text : text + 2]), slice(*found.codes.offsets[text : text + 2])
        left = truth.codes[true][missed[true]].tolist()
        right = found.codes.codes[predicted][wrong[predicted]].tolist()
        for pair in zip_longest(left, right, fillvalue=-1):
            entry = pairs.setdefault(pair, [0])
            entry[0] += 1
            if len(entry) <= examples:
                entry.append(text)
    ordered = sorted(pairs.items(), key=lambda item: (-item[1][0], item[0]))[:most]
    return [{"true": a, "predicted": b, "count": n, "texts": texts} for (a, b), (n, *texts) in ordered]


def _any(of_codes: np.ndarray, sets: Sets) -> np.ndarray:
    """Return which texts have at least one of the chosen codes, [texts] bool; `of_codes`: [codes] bool."""
    return np.bincount(sets.texts[of_codes], minlength=len(sets.sizes)) > 0
