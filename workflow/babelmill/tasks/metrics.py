"""Score the predictions of a task: accuracy, F1, Matthews correlation and spans, with intervals, and compare them.

A model that gives nearly all rows the same class has learnt nothing, whatever its accuracy: it is named (`majority`).

Spans are the names, or others, that labels such as B-PER, I-PER and O mark. Their scores are those of the script
conlleval, and of the package seqeval: a span counts if its words and its type are right. A span begins at B- (or S-),
after O, E- or S-, or where the type changes. So labels of the schemes IOB, BIO and BIOES are read alike.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from babelmill.evaluation.statistics import Difference, McNemar, Score, difference, interval, mcnemar, resampled, wilson

DRAWS = 2_000  # resamples for the interval of one score
ONE_CLASS = 0.99  # share of the rows from which a model is said to answer with one class
OUTSIDE = "O"  # the label of words in no span

Labels = Sequence[np.ndarray]  # the class of each text, [1], or those of the words of each sentence, [words]


def from_counts(metric: str, right: np.ndarray, true: np.ndarray, told: np.ndarray) -> np.ndarray:
    """Return accuracy, f1 or mcc, as scikit-learn does, from the numbers of rows of each class, [..., classes].

    `right`: how many are predicted rightly; `true`: how many there are; `told`: how many are predicted. f1 is that of
    class 1 if there are two classes, as GLUE reports it, and the mean over classes (macro) otherwise.
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


def of_rows(metric: str, classes: int) -> Score:
    """Return the function that scores rows of texts: of each, the number of its class, and what each run predicts."""

    def counts(numbers: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Return how many rows have each class, [draws, classes]."""
        rows = csr_array((np.ones(len(numbers)), (np.arange(len(numbers)), numbers)), (len(numbers), classes))
        return np.asarray(weights @ rows)

    def score(weights: np.ndarray, kinds: np.ndarray) -> np.ndarray:
        labels, *runs = kinds.T
        true = counts(labels, weights)
        each = [(counts(labels, weights * (run == labels)), true, counts(run, weights)) for run in runs]
        return np.stack([from_counts(metric, *found) for found in each], 1)

    return score


def of_sentences(weights: np.ndarray, kinds: np.ndarray) -> np.ndarray:
    """Score tagged sentences: of each, what `counts_of_words` returns of each run, one after the other.

    This is F1. For words it is accuracy, since each word is predicted.
    """
    counts = (weights @ kinds).reshape(len(weights), -1, 3)
    right, both = counts[..., 0], counts[..., 1] + counts[..., 2]
    return np.where(both > 0, 2 * right / np.maximum(both, 1), 0.0)


def over_all(score: Score, rows: np.ndarray) -> np.ndarray:
    """Return the scores of all runs over all rows, [runs]."""
    return score(np.ones((1, len(rows)), int), rows)[0]


def table(metric: str, labels: Labels, told: Labels, classes: list[str], tagging: bool) -> tuple[np.ndarray, Score]:
    """Return the rows that a metric is computed from, and the function that does it, of the predictions of one run.

    Labels and predictions are class numbers: one of each text, or those of the words of each sentence.
    """
    if tagging:
        return counts_of_words(metric, labels, told, classes), of_sentences
    return np.stack([np.concatenate(labels), np.concatenate(told)], 1), of_rows(metric, len(classes))


def value(metric: str, labels: Labels, told: Labels, classes: list[str], tagging: bool) -> float:
    """Return a metric of predictions; see `table`."""
    rows, score = table(metric, labels, told, classes, tagging)
    return float(over_all(score, rows)[0])


def entry(metric: str, labels: Labels, told: Labels, classes: list[str], tagging: bool) -> dict[str, Any]:
    """Return a score as scores.json holds it: {"score", "n", "interval"}; `n` counts texts, words or spans.

    The interval of an accuracy of texts is Wilson's; others are the bootstrap's, over texts or sentences.
    """
    rows, score = table(metric, labels, told, classes, tagging)
    found, count = float(over_all(score, rows)[0]), int(rows[:, 2].sum()) if tagging else len(rows)
    if metric == "accuracy" and not tagging:
        return {"score": found, "n": count, "interval": wilson(found, count)}
    ends = interval(resampled(rows, score, draws=DRAWS, width=len(classes)))
    return {"score": found, "n": count, "interval": list(ends)}


def compared(
    metric: str, labels: np.ndarray, sides: tuple[np.ndarray, np.ndarray], classes: int
) -> tuple[Difference, McNemar | None]:
    """Return the difference of two sides that predicted the same texts, each [seeds, rows].

    With one seed on each side, the probability is that of McNemar's exact test, which is returned, too.
    """
    rows, score = np.stack([labels, *sides[0], *sides[1]], 1), of_rows(metric, classes)
    scores = resampled(rows, score, width=classes)
    found = difference(scores, over_all(score, rows), len(sides[0]), 2 if metric == "mcc" else 1)
    if rows.shape[1] > 3:
        return found, None
    test = mcnemar(*(np.concatenate(sides) == labels).astype(float))
    return found._replace(p=test.p), test


def compared_words(sides: tuple[np.ndarray, np.ndarray]) -> Difference:
    """Return the difference of two sides that tagged the same sentences, each [seeds, sentences, 3].

    The words of a sentence are not independent, so McNemar's test would find differences that are none.
    """
    rows = np.concatenate([run for side in sides for run in side], 1)
    return difference(resampled(rows, of_sentences), over_all(of_sentences, rows), len(sides[0]))


def counts_of_words(metric: str, labels: Labels, predictions: Labels, classes: list[str]) -> np.ndarray:
    """Return how much of each sentence is right, how much is predicted, and how much there is, [sentences, 3].

    The metric `accuracy` counts words, `span_f1` counts spans. Labels and predictions are the class numbers of the
    words of each sentence; -1 is a word without a prediction, which is in no span.
    """
    pairs = [*zip(labels, predictions, strict=True)]
    if metric == "accuracy":
        return np.array([((true == told).sum(), len(true), len(true)) for true, told in pairs])
    names = np.array([*classes, OUTSIDE])  # the last one is that of -1
    spans = [(spans_of(names[true].tolist()), spans_of(names[told].tolist())) for true, told in pairs]
    return np.array([(len(true & told), len(told), len(true)) for true, told in spans])


def are_spans(labels: Iterable[str]) -> bool:
    """Return whether labels mark spans."""
    found = set(labels)
    return found > {OUTSIDE} and all(re.fullmatch(r"O|[BIES]-.+", label) for label in found)


def spans_of(labels: Sequence[str]) -> set[tuple[int, int, str]]:
    """Return the spans of a sentence: the places of the first word and after the last one, and the type."""
    found: set[tuple[int, int, str]] = set()
    start, before = 0, OUTSIDE
    for place, label in enumerate([*labels, OUTSIDE]):
        same = label != OUTSIDE and before != OUTSIDE and label[2:] == before[2:]
        if same and label[0] not in "BS" and before[0] not in "ES":
            before = label
            continue
        if before != OUTSIDE:
            found.add((start, place, before[2:]))
        start, before = place, label
    return found


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
