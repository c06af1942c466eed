"""Metrics of predicted codes, in NumPy: functions of which codes are true and which were predicted.

Codes are numbers. A code that the model does not know has a number, too, and is never predicted: it counts as missed.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

TOPS = (1, 3, 5)
BINS = 15  # of the calibration


class Sets(NamedTuple):
    """The codes of texts, each text's all different.

    Attributes:
        codes: [codes] int64, of all texts in a row.
        offsets: [texts + 1] int64: text i has `codes[offsets[i]:offsets[i + 1]]`.
    """

    codes: np.ndarray
    offsets: np.ndarray

    @classmethod
    def of(cls, lists: Sequence[Sequence[int]]) -> "Sets":
        """Make them of lists."""
        offsets = np.cumsum([0, *map(len, lists)], dtype=np.int64)
        return cls(np.array([code for each in lists for code in each], np.int64), offsets)

    @property
    def sizes(self) -> np.ndarray:
        """Return how many codes each text has, [texts]."""
        return np.diff(self.offsets)

    @property
    def texts(self) -> np.ndarray:
        """Return which text each code belongs to, [codes]."""
        return np.repeat(np.arange(len(self.offsets) - 1), self.sizes)

    def first(self) -> np.ndarray:
        """Return the first code of each text, -1 of one that has none, [texts]."""
        return np.where(self.sizes > 0, np.append(self.codes, -1)[self.offsets[:-1]], -1)

    def among(self, chosen: np.ndarray) -> "Sets":
        """Return the sets of the texts that are `chosen`, [texts] bool."""
        sizes = self.sizes[chosen]
        return Sets(self.codes[np.repeat(chosen, self.sizes)], np.concatenate([[0], np.cumsum(sizes)]))


class Found(NamedTuple):
    """What is predicted of texts.

    Attributes:
        codes: that they have.
        likeliest: [texts, k] int64, the most probable codes, the first one first; -1 where there are fewer.
        chances: [texts, k] float64, how probable each is.
    """

    codes: Sets
    likeliest: np.ndarray
    chances: np.ndarray

    def among(self, chosen: np.ndarray) -> "Found":
        """Return what is predicted of the texts that are `chosen`, [texts] bool."""
        return Found(self.codes.among(chosen), self.likeliest[chosen], self.chances[chosen])


def inside(these: Sets, those: Sets) -> np.ndarray:
    """Return which of `these` codes are among `those` of the same text, [codes] bool."""
    width = 1 + max(these.codes.max(initial=0), those.codes.max(initial=0))
    return np.isin(these.texts * width + these.codes, those.texts * width + those.codes)


def is_true(codes: np.ndarray, truth: Sets) -> np.ndarray:
    """Return which codes are true ones of their texts, both [texts, k]; -1 is none."""
    rows, width = codes.shape
    right = inside(Sets(codes.reshape(-1) + 1, np.arange(rows + 1) * width), Sets(truth.codes + 1, truth.offsets))
    return right.reshape(rows, width) & (codes >= 0)


def figures(truth: Sets, found: Found) -> dict[str, Any]:
    """Return what is measured of some texts, each of which has a true code.

    `exact`: share of the texts whose codes are all right, and no other. `micro`: precision, recall and F1 of all codes
    together. `macro`: their means over the codes that occur here, as true or as predicted ones. `per_text`: the means
    over texts of the precision and the recall of each. `top_k`: share of the texts of which a true code is among the
    k likeliest. What would be 0 / 0 is 0.
    """
    texts = len(truth.sizes)
    right = inside(found.codes, truth)
    hits = np.bincount(found.codes.texts[right], minlength=texts)
    exact = int(((hits == truth.sizes) & (hits == found.codes.sizes)).sum())
    count = 1 + max(truth.codes.max(initial=0), found.codes.codes.max(initial=0))
    by_code = [
        np.bincount(codes, minlength=count) for codes in (found.codes.codes[right], found.codes.codes, truth.codes)
    ]
    occur = by_code[1] + by_code[2] > 0
    precision, recall, f1 = rates(*(counts[occur] for counts in by_code))
    micro = rates(*(np.array(counts.sum()) for counts in by_code))
    per_text = rates(hits, found.codes.sizes, truth.sizes)
    true = is_true(found.likeliest, truth)
    return {
        "texts": texts,
        "exact": exact / texts,
        "exact_texts": exact,
        "codes": {"true": len(truth.codes), "predicted": len(found.codes.codes), "right": int(right.sum())},
        "micro": dict(zip(("precision", "recall", "f1"), map(float, micro), strict=True)),
        "macro": {
            **dict(zip(("precision", "recall", "f1"), map(mean, (precision, recall, f1)), strict=True)),
            "codes": int(occur.sum()),
        },
        "per_text": {"precision": mean(per_text[0]), "recall": mean(per_text[1])},
        **{f"top_{k}": mean(np.any(true[:, :k], axis=1)) for k in TOPS},
    }


def mean(values: np.ndarray) -> float:
    """Return the mean, 0 of nothing."""
    return float(values.mean()) if len(values) else 0.0


def rates(right: np.ndarray, predicted: np.ndarray, true: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return precision, recall and F1 from counts; 0 where there is nothing to divide by."""
    return (
        right / np.maximum(predicted, 1),
        right / np.maximum(true, 1),
        2 * right / np.maximum(predicted + true, 1),
    )


def headline(truth: Sets, found: Found) -> dict[str, dict[str, Any]]:
    """Return the scores `exact` and `f1` (micro), each with its standard error over texts, and what they count."""
    texts = len(truth.sizes)
    hits = np.bincount(found.codes.texts[inside(found.codes, truth)], minlength=texts)
    both = truth.sizes + found.codes.sizes
    exact = 2 * hits == both  # neither can be more than its set
    f1 = 2 * hits.sum() / max(1, both.sum())
    spread = np.sqrt(texts * max(1, texts) / max(1, texts - 1))  # of a sum over texts, by the delta method
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


def digits(truth: Sets, found: Found, spelt: np.ndarray) -> list[float]:
    """Return the share of texts whose first true code begins as a predicted one does, for 1, 2, ... symbols.

    `spelt`: [codes, symbols], ids of the symbols of each code.
    """
    texts = found.codes.texts
    same = spelt[truth.first()[texts]] == spelt[found.codes.codes]
    begins = np.zeros((len(truth.sizes), spelt.shape[1]), bool)
    np.logical_or.at(begins, texts, np.logical_and.accumulate(same, 1))
    return begins.mean(0).tolist()


def calibration(truth: Sets, found: Found) -> dict[str, Any]:
    """Compare how probable the likeliest code is said to be with how often it is a true one, in bins of equal width.

    `expected_error` is the mean difference, weighted by texts (Guo et al., 2017, arXiv:1706.04599). Of a bin: its
    number of `texts`, the mean `chance` and the share `right`.
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


def threshold(truth: Sets, found: Found, most: int) -> dict[str, float]:
    """Return from which probability on a further code is best predicted, and the micro F1 that this gives.

    The likeliest code is always predicted, and at most `most` are. Every threshold that makes a difference is tried;
    the one returned lies half-way to the next probability below.
    """
    true = is_true(found.likeliest[:, :most], truth)
    chances = np.where(found.likeliest[:, :most] >= 0, found.chances[:, :most], 0.0)
    order = np.argsort(-chances[:, 1:], axis=None, kind="stable")
    further, right = chances[:, 1:].reshape(-1)[order], true[:, 1:].reshape(-1)[order]
    hits = true[:, 0].sum() + np.concatenate([[0], np.cumsum(right)])
    predicted = (found.likeliest[:, 0] >= 0).sum() + np.arange(len(hits))
    scores = 2 * hits / np.maximum(1, predicted + len(truth.codes))
    ends = np.append(np.concatenate([[1.0], further])[:-1] > further, True)  # equal ones go together
    best = int(np.argmax(np.where(ends, scores, -1.0)))
    edges = np.concatenate([[1.0], further, [0.0]])
    return {"value": float((edges[best] + edges[best + 1]) / 2), "f1": float(scores[best])}


def mistakes(truth: Sets, found: Found, most: int, examples: int) -> list[dict[str, Any]]:
    """Return the most frequent mistakes: `true` and `predicted` code, `count`, and some `texts` (their numbers).

    What a text has and was not predicted stands beside what was predicted and is wrong, in order. Where there is none
    left, it is -1: a code is missed alone, or is one too many.
    """
    missed, wrong = ~inside(truth, found.codes), ~inside(found.codes, truth)
    pairs: dict[tuple[int, int], list[int]] = {}
    for text in np.flatnonzero(_any(missed, truth) | _any(wrong, found.codes)).tolist():
        left, right = (
            sets.codes[part][keep[part]].tolist()
            for sets, keep, part in (
                (truth, missed, slice(*truth.offsets[text : text + 2])),
                (found.codes, wrong, slice(*found.codes.offsets[text : text + 2])),
            )
        )
        for i in range(max(len(left), len(right))):
            pair = (left[i] if i < len(left) else -1, right[i] if i < len(right) else -1)
            entry = pairs.setdefault(pair, [0])
            entry[0] += 1
            if len(entry) <= examples:
                entry.append(text)
    ordered = sorted(pairs.items(), key=lambda item: (-item[1][0], item[0]))[:most]
    return [{"true": a, "predicted": b, "count": n, "texts": texts} for (a, b), (n, *texts) in ordered]


def _any(of_codes: np.ndarray, sets: Sets) -> np.ndarray:
    """Return which texts have such a code, [texts] bool."""
    return np.bincount(sets.texts[of_codes], minlength=len(sets.sizes)) > 0
