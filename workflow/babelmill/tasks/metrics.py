"""Score the predictions of a task: accuracy, F1, Matthews correlation, with intervals, and the truth about noise.

A model that gives nearly all rows the same class has learnt nothing, whatever its accuracy: it is named (`majority`).
"""

from typing import Any

import numpy as np

from babelmill.suites.results import wilson

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
    """Return f1 or mcc as scikit-learn does, from counts of classes: it would take seconds for all draws."""
    of_each = (labels[labels == predictions], labels, predictions)
    right, true, told = (np.bincount(numbers, minlength=classes) for numbers in of_each)
    if metric == "f1":
        each = 2 * right / np.maximum(true + told, 1)
        return float(each[1] if classes == 2 else each[(true + told) > 0].mean())
    n = len(labels)
    covariance = right.sum() * n - (true * told).sum()
    spread = np.sqrt(float(n * n - (told**2).sum()) * float(n * n - (true**2).sum()))
    return float(covariance / spread) if spread else 0.0


def majority(predictions: np.ndarray, labels: np.ndarray, classes: list[str]) -> dict[str, Any] | None:
    """Return the class that a model gives nearly all rows, with its shares; None if it tells rows apart.

    Returns:
        {"class": its label, "predicted": share of the predictions, "share": share of the labels, which is the accuracy
        that such a model has}.
    """
    counts = np.bincount(predictions, minlength=len(classes))
    most = int(counts.argmax())
    predicted = counts[most] / len(predictions)
    if predicted < ONE_CLASS or len(set(labels.tolist())) < 2:
        return None
    return {"class": classes[most], "predicted": float(predicted), "share": float((labels == most).mean())}
