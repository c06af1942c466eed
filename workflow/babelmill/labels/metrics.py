"""Compute metrics of predicted codes from the true codes and the predicted codes of each text.

The codes of texts are an indicator matrix, [texts, codes] bool in compressed rows, as scikit-learn reads them. A code
that the model does not know has a column, too. It is never predicted, so it counts as missed.
"""

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array
from sklearn.metrics import precision_recall_fscore_support

TOPS = (1, 3, 5)
RATES = ("precision", "recall", "f1")
BINS = 15  # bins of the calibration


def indicator(lists: Sequence[Sequence[int]], codes: int) -> csr_array:
    """Return the codes of texts as a matrix, from a list of codes per text, none of which has a code twice."""
    columns = np.array([code for each in lists for code in each], np.int64)
    return csr_array(
        (np.ones(len(columns), bool), columns, np.cumsum([0, *map(len, lists)])), shape=(len(lists), codes)
    )


class Predictions(NamedTuple):
    """The predictions for texts."""

    codes: csr_array  # the codes that are predicted
    likeliest: np.ndarray  # [texts, k] int64, the k most probable codes, the most probable first; -1 if there are fewer
    chances: np.ndarray  # [texts, k] float64, the probability of each

    def among(self, chosen: np.ndarray | slice) -> "Predictions":
        """Return the predictions for the texts that are `chosen`, [texts] bool."""
        return Predictions(self.codes[chosen], self.likeliest[chosen], self.chances[chosen])


def sizes(codes: csr_array) -> np.ndarray:
    """Return how many codes each text has, [texts]."""
    return np.diff(codes.indptr)


def is_true(codes: np.ndarray, truth: csr_array) -> np.ndarray:
    """Return which codes are true codes of their texts: [texts, k] bool; `codes`: [texts, k], -1 for no code."""
    rows = np.repeat(np.arange(len(codes)), codes.shape[1])
    return np.asarray(truth[rows, codes.reshape(-1)]).reshape(codes.shape) & (codes >= 0)


def figures(truth: csr_array, found: Predictions) -> dict[str, Any]:
    """Return the figures of some texts, each of which has a true code.

    `exact`: the share of texts for which exactly the true codes are predicted. `micro`: precision, recall and F1 over
    all codes together. `macro`: their means over the codes that occur here, as true or as predicted codes. `top_k`: the
    share of texts that have a true code among the k likeliest. A figure that would be 0 / 0 is 0.
    """
    right = truth.multiply(found.codes)
    exact = (sizes(truth) == sizes(found.codes)) & (sizes(right) == sizes(truth))
    true = is_true(found.likeliest, truth)
    options: dict[str, Any] = {"labels": np.flatnonzero((truth + found.codes).sum(0)), "zero_division": 0}
    rates = {
        average: precision_recall_fscore_support(truth, found.codes, average=average, **options)
        for average in ("micro", "macro")
    }
    return {
        "texts": len(exact),
        "exact": float(exact.mean()),
        **{name: dict(zip(RATES, map(float, values[:3]), strict=True)) for name, values in rates.items()},
        **{f"top_{k}": float(np.any(true[:, :k], axis=1).mean()) for k in TOPS},
    }


def headline(truth: csr_array, found: Predictions) -> dict[str, dict[str, Any]]:
    """Return the scores `exact` and `f1` (micro), each with its standard error over texts, and with its counts."""
    texts = len(sizes(truth))
    hits, both = sizes(truth.multiply(found.codes)), sizes(truth) + sizes(found.codes)
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
            "predicted": found.codes.nnz,
            "of": truth.nnz,
        },
    }


def digits(truth: csr_array, found: Predictions, spelt: np.ndarray) -> list[float]:
    """Return the share of texts whose likeliest code begins with the first 1, 2, ... symbols of a true code.

    `spelt`: [codes, symbols], the ids of the symbols of each code.
    """
    texts, codes = truth.nonzero()
    same = np.logical_and.accumulate(spelt[codes] == spelt[found.likeliest[texts, 0]], 1)
    begins = np.zeros((len(sizes(truth)), spelt.shape[1]), bool)
    np.logical_or.at(begins, texts, same)
    return begins.mean(0).tolist()


def calibration_error(truth: csr_array, found: Predictions) -> float:
    """Return the mean difference between the probability of the likeliest code and how often it is a true code.

    It is over bins of equal width, weighted by their texts (Guo et al., 2017, arXiv:1706.04599).
    """
    chance = np.clip(found.chances[:, 0], 0.0, 1.0)
    right = is_true(found.likeliest[:, :1], truth)[:, 0]
    place = np.minimum((chance * BINS).astype(int), BINS - 1)
    difference = np.bincount(place, weights=chance - right)
    return float(np.abs(difference).sum() / max(1, len(chance)))


def threshold(truth: csr_array, found: Predictions, most: int) -> dict[str, float]:
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
    scores = 2 * hits / np.maximum(1, predicted + truth.nnz)
    ends = np.append(np.concatenate([[1.0], further])[:-1] > further, True)  # no threshold separates equal ones
    best = int(np.argmax(np.where(ends, scores, -1.0)))
    edges = np.concatenate([[1.0], further, [0.0]])
    return {"value": float((edges[best] + edges[best + 1]) / 2), "f1": float(scores[best])}


def mistakes(truth: csr_array, found: Predictions, most: int) -> list[dict[str, Any]]:
    """Return the most frequent mistakes: `true` and `predicted` code, `count`, and the number of the first `text`.

    The missed codes of a text are paired with its wrong predictions. If one side has fewer codes, its code is -1:
    `predicted` is -1 if a code was only missed, and `true` is -1 if a code was predicted in addition.
    """
    pairs: dict[tuple[int, int], list[int]] = {}
    for text in range(len(sizes(truth))):
        true, predicted = (
            {*each.indices[slice(*each.indptr[text : text + 2])].tolist()} for each in (truth, found.codes)
        )
        for pair in zip_longest(sorted(true - predicted), sorted(predicted - true), fillvalue=-1):
            pairs.setdefault(pair, []).append(text)
    ordered = sorted(pairs.items(), key=lambda item: (-len(item[1]), item[0]))[:most]
    return [{"true": a, "predicted": b, "count": len(texts), "text": texts[0]} for (a, b), texts in ordered]
