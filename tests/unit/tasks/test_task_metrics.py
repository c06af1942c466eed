"""The scores of predictions: those of scikit-learn, their intervals, and models that always give one answer."""

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

from babelmill.tasks import metrics


@pytest.mark.parametrize("classes", [2, 4])
def test_metrics_are_those_of_scikit_learn(classes):
    random = np.random.default_rng(classes)
    labels, predicted = random.integers(classes, size=(2, 300))
    predicted = np.where(random.random(300) < 0.6, labels, predicted)
    average = "binary" if classes == 2 else "macro"
    expected = {
        "accuracy": accuracy_score(labels, predicted),
        "f1": f1_score(labels, predicted, average=average),
        "mcc": matthews_corrcoef(labels, predicted),
    }
    for metric, score in expected.items():
        entry = metrics.entry(metric, labels, predicted, classes)
        assert entry["score"] == pytest.approx(score, abs=1e-12)
        if metric != "accuracy":
            assert metrics._quick(metric, labels, predicted, classes) == pytest.approx(score, abs=1e-12)
        low, high = entry["interval"]
        assert low < score < high and high - low < 0.2


def test_f1_of_three_classes_is_a_mean_even_if_a_class_is_rare():
    """Rows and resamples that lack a class are scored like the others: their F1 is not that of class 1 alone."""
    labels, predicted = np.array([0, 0, 0, 1]), np.array([0, 0, 1, 1])
    macro = f1_score(labels, predicted, average="macro")
    for score in (metrics.entry("f1", labels, predicted, 3)["score"], metrics._quick("f1", labels, predicted, 3)):
        assert score == pytest.approx(macro) and score != f1_score(labels, predicted)
    assert metrics.entry("f1", labels, predicted, 2)["score"] == f1_score(labels, predicted)


def test_many_classes():
    """Counts of pairs of classes would take 800 MB in each of thousands of resamples."""
    labels = np.arange(5000) * 2
    found = {metric: metrics.entry(metric, labels, labels % 9000, 10_000) for metric in ("f1", "mcc")}
    assert all(0.8 < each["score"] < 0.95 and each["interval"][0] < each["interval"][1] for each in found.values())


def test_a_model_that_gives_one_answer_is_named():
    labels = np.array([0] * 785 + [1] * 215)
    found = metrics.majority(np.ones(1000, int), labels, ["no", "yes"])
    assert found == {"class": "yes", "predicted": 1.0, "share": 0.215}
    almost = np.ones(1000, int)
    almost[:9] = 0
    assert metrics.majority(almost, labels, ["no", "yes"])
    almost[:20] = 0
    assert metrics.majority(almost, labels, ["no", "yes"]) is None
    assert metrics.majority(np.zeros(5, int), np.zeros(5, int), ["no", "yes"]) is None, "all rows are of one class"
    assert metrics.majority(np.zeros(0, int), np.zeros(0, int), ["no", "yes"]) is None, "no word has a token"
