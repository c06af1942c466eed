"""Score the predictions of a task: accuracy, F1, Matthews correlation, with intervals, and the truth about noise.

A model that gives nearly all rows the same class has learnt nothing, whatever its accuracy: it is named (`majority`).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from babelmill.suites.results import wilson
from babelmill.tasks import spans

DRAWS = 2_000  # resamples of the bootstrap
ONE_CLASS = 0.99  # share of the rows from which a model is said to answer with one class


def value(metric: str, labels: np.ndarray, predictions: np.ndarray, classes: int) -> float:
    """Return a metric of predicted class numbers, both [rows], of a task with so many classes: accuracy, f1 or mcc.

    f1 is that of class 1 if there are two classes, as GLUE reports it, and the mean over classes (macro) otherwise.
    """
    from sklearn.metrics import accuracy_score, f1_score  # imports scipy's statistics: a second

    if metric == "accuracy":
        return float(accuracy_score(labels, predictions))
    if metric == "mcc":
        return _quick(metric, labels, predictions, classes)  # scikit-learn's needs gigabytes for 10,000 classes
    average = "binary" if classes == 2 else "macro"
    return float(f1_score(labels, predictions, average=average, zero_division=0))  # pyright: ignore[reportArgumentType]


def entry(metric: str, labels: np.ndarray, predictions: np.ndarray, classes: int) -> dict[str, Any]:
    """Return a score as scores.json holds it: {"score", "n", "interval"}.

    The interval of an accuracy is Wilson's; that of other metrics is the bootstrap's over rows.
    """
    score = value(metric, labels, predictions, classes)
    if metric == "accuracy":
        return {"score": score, "n": len(labels), "interval": wilson(score, len(labels))}
    random = np.random.default_rng(0)
    values = []
    for _ in range(DRAWS):
        rows = random.integers(len(labels), size=len(labels))
        values.append(_quick(metric, labels[rows], predictions[rows], classes))
    return {"score": score, "n": len(labels), "interval": [float(end) for end in np.quantile(values, (0.025, 0.975))]}


def _quick(metric: str, labels: np.ndarray, predictions: np.ndarray, classes: int) -> float:
    """Return f1 or mcc as `value` does, from counts of classes: scikit-learn would take seconds for all draws."""
    of_each = (labels[labels == predictions], labels, predictions)
    right, true, told = (np.bincount(numbers, minlength=classes) for numbers in of_each)
    return float(from_counts(metric, right, true, told))


def from_counts(metric: str, right: np.ndarray, true: np.ndarray, told: np.ndarray) -> np.ndarray:
    """Return a metric (accuracy, f1 or mcc) as `value` does, from the numbers of rows of each class, [..., classes].

    `right`: how many are predicted rightly; `true`: how many there are; `told`: how many are predicted.
    """
    n = true.sum(-1)
    if metric == "accuracy":
        return right.sum(-1) / n
    if metric == "f1":
        each = 2 * right / np.maximum(true + told, 1)
        there = true + told > 0
        return each[..., 1] if right.shape[-1] == 2 else (each * there).sum(-1) / there.sum(-1)
    covariance = right.sum(-1) * n - (true * told).sum(-1)
    spread = np.sqrt((n * n - (told**2).sum(-1)).astype(float) * (n * n - (true**2).sum(-1)))
    return np.where(spread > 0, covariance / np.where(spread > 0, spread, 1), 0.0)


def counts_of_words(
    metric: str, labels: Sequence[np.ndarray], predictions: Sequence[np.ndarray], classes: list[str]
) -> np.ndarray:
    """Return how much of each sentence is right, how much is predicted, and how much there is, [sentences, 3].

    The metric `accuracy` counts words, `span_f1` counts spans. Labels and predictions are the class numbers of the
    words of each sentence; -1 is a word without a prediction, which is in no span.
    """
    pairs = [*zip(labels, predictions, strict=True)]
    if metric == "accuracy":
        return np.array([((true == told).sum(), len(true), len(true)) for true, told in pairs])
    names = np.array([*classes, spans.OUTSIDE])  # the last one is that of -1
    return np.array([spans.counts(names[true].tolist(), names[told].tolist()) for true, told in pairs])


def of_counts(counts: np.ndarray) -> np.ndarray:
    """Return F1 of sums of what `counts_of_words` returns, [..., 3]. For words it is accuracy: each is predicted."""
    right, both = counts[..., 0], counts[..., 1] + counts[..., 2]
    return np.where(both > 0, 2 * right / np.maximum(both, 1), 0.0)


def entry_of_counts(counts: np.ndarray) -> dict[str, Any]:
    """Return a score as `entry` does. The interval is the bootstrap's over sentences; `n` counts words or spans."""
    draws = np.random.default_rng(0).integers(len(counts), size=(DRAWS, len(counts)))
    values = [of_counts(counts[rows].sum(0)) for rows in draws]
    interval = [float(end) for end in np.quantile(values, (0.025, 0.975))]
    return {"score": float(of_counts(counts.sum(0))), "n": int(counts[:, 2].sum()), "interval": interval}


def majority(predictions: np.ndarray, labels: np.ndarray, classes: list[str]) -> dict[str, Any] | None:
    """Return the class that a model gives nearly all rows, with its shares; None if it tells rows apart, or has none.

    The shares are those of the predictions (`predicted`) and of the labels (`share`), the accuracy that such a model
    has.
    """
    if not len(predictions):
        return None
    counts = np.bincount(predictions, minlength=len(classes))
    most = int(counts.argmax())
    predicted = counts[most] / len(predictions)
    if predicted < ONE_CLASS or len(set(labels.tolist())) < 2:
        return None
    return {"class": classes[most], "predicted": float(predicted), "share": float((labels == most).mean())}
