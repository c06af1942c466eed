"""Compute metrics of predicted codes from the true codes and the predicted codes of each text.

The codes of texts are an indicator matrix, [texts, codes] bool in compressed rows, as scikit-learn reads them. A code
that the model does not know has a column, too. It is never predicted, so it counts as missed.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from sklearn.metrics import accuracy_score, precision_recall_fscore_support

RATES = ("precision", "recall", "f1")


def indicator(lists: Sequence[Sequence[int]], codes: int) -> csr_array:
    """Return the codes of texts as a matrix, from a list of codes per text, none of which has a code twice."""
    columns = np.array([code for each in lists for code in each], np.int64)
    return csr_array(
        (np.ones(len(columns), bool), columns, np.cumsum([0, *map(len, lists)])), shape=(len(lists), codes)
    )


def sizes(codes: csr_array) -> np.ndarray:
    """Return how many codes each text has, [texts]."""
    return np.diff(codes.indptr)


def figures(truth: csr_array, predicted: csr_array) -> dict[str, Any]:
    """Return the figures of some texts, each of which has a true code.

    `exact`: the share of texts for which exactly the true codes are predicted. `micro`: precision, recall and F1 over
    all codes together. `macro`: their means over the codes that occur here, as true or as predicted codes. A figure
    that would be 0 / 0 is 0.
    """
    options: dict[str, Any] = {"labels": np.flatnonzero((truth + predicted).sum(0)), "zero_division": 0}
    rates = {
        average: precision_recall_fscore_support(truth, predicted, average=average, **options)
        for average in ("micro", "macro")
    }
    return {
        "texts": len(sizes(truth)),
        "exact": float(accuracy_score(truth, predicted)),
        **{name: dict(zip(RATES, map(float, values[:3]), strict=True)) for name, values in rates.items()},
    }


def headline(truth: csr_array, predicted: csr_array) -> dict[str, dict[str, Any]]:
    """Return the scores `exact` and `f1` (micro), each with its standard error over texts, and with its counts."""
    texts = len(sizes(truth))
    hits, both = sizes(truth.multiply(predicted)), sizes(truth) + sizes(predicted)
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
            "predicted": predicted.nnz,
            "of": truth.nnz,
        },
    }
