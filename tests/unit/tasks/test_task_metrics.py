"""The scores of predictions: those of scikit-learn and seqeval, their intervals, differences, and single answers."""

import numpy as np
import pytest
from scipy.stats import binomtest
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

from babelmill.tasks import metrics

CLASSES = 3
SCORES = {
    "accuracy": accuracy_score,
    "mcc": matthews_corrcoef,
    "f1": lambda labels, found: f1_score(labels, found, average="macro", labels=np.unique([*labels, *found])),
}


def predictions(labels, share, seed):
    """Predictions that are right on a share of the rows."""
    random = np.random.default_rng(seed)
    wrong = (labels + random.integers(1, CLASSES, len(labels))) % CLASSES
    return np.where(random.random(len(labels)) < share, labels, wrong)


@pytest.fixture
def labels():
    return np.random.default_rng(0).integers(CLASSES, size=200)


@pytest.mark.parametrize("metric", SCORES)
def test_scores_and_intervals_are_those_of_scikit_learn(labels, metric):
    """Resamples drawn one by one: the interval of a score, and of the difference of two."""
    first, second = predictions(labels, 0.8, 1), predictions(labels, 0.65, 2)
    score, random, draws = SCORES[metric], np.random.default_rng(5), []
    entry = metrics.entry(metric, [labels], [first], [*"abc"], tagging=False)
    found, _ = metrics.compared(metric, labels, (first[None], second[None]), CLASSES)
    assert entry["score"] == pytest.approx(score(labels, first), abs=1e-12) and entry["n"] == 200
    assert found.value == pytest.approx(score(labels, first) - score(labels, second))
    for _ in range(300):
        rows = random.integers(200, size=200)
        draws.append(
            (score(labels[rows], first[rows]), score(labels[rows], first[rows]) - score(labels[rows], second[rows]))
        )
    ends = np.quantile(draws, (0.025, 0.975), axis=0).T
    assert entry["interval"] == pytest.approx(ends[0], abs=0.03) and found[1:3] == pytest.approx(ends[1], abs=0.03)


def test_f1_of_two_classes_and_of_classes_that_are_rare():
    """Of two classes it is that of class 1; rows and resamples that lack a class are scored like the others."""
    labels, predicted = np.array([0, 0, 0, 1]), np.array([0, 0, 1, 1])
    rows = [labels], [predicted]
    assert metrics.value("f1", *rows, [*"ab"], False) == f1_score(labels, predicted)
    macro = f1_score(labels, predicted, average="macro")
    assert metrics.value("f1", *rows, [*"abc"], False) == pytest.approx(macro) != f1_score(labels, predicted)
    assert metrics.value("mcc", [labels], [np.zeros(4, int)], [*"ab"], False) == 0.0, "one answer has no correlation"


def test_one_seed_each_is_tested_by_mcnemar_and_several_by_the_bootstrap(labels):
    first, second = predictions(labels, 0.8, 1), predictions(labels, 0.65, 2)
    found, test = metrics.compared("accuracy", labels, (first[None], second[None]), CLASSES)
    right = first == labels, second == labels
    counts = int((right[0] & ~right[1]).sum()), int((right[1] & ~right[0]).sum())
    assert test and test[:2] == counts and found.p == pytest.approx(binomtest(counts[0], sum(counts)).pvalue)
    two = np.stack([first, predictions(labels, 0.75, 3)])
    found, test = metrics.compared("accuracy", labels, (two, second[None]), CLASSES)
    assert test is None and found.value == pytest.approx((two == labels).mean() - right[1].mean())
    same, _ = metrics.compared("mcc", labels, (two[:1].repeat(2, 0), two[:1]), CLASSES)
    assert same == (0.0, 0.0, 0.0, 1.0), "equal predictions have no difference"


def test_tags_of_words_are_compared_by_sentences():
    """Words of a sentence that are right or wrong together make the interval wide: as that of 40 texts, not of 400."""
    random = np.random.default_rng(3)
    right = np.stack([random.random(40) < share for share in (0.8, 0.6)]).astype(int)
    sides = [np.stack([10 * each, *[np.full(40, 10)] * 2], 1)[None] for each in right]
    texts, _ = metrics.compared("accuracy", np.ones(40, int), tuple(right[:, None]), 2)
    assert metrics.compared_words(sides)[:3] == pytest.approx(texts[:3], abs=0.03)
    assert metrics.compared_words([sides[0], sides[0]]).p == 1


# Labels, predictions and numbers of the package seqeval 1.2.2.
LABELS = ["B-PER I-PER O B-LOC", "O O B-ORG I-ORG O", "B-LOC B-LOC I-PER O", "I-PER I-LOC O"]
PREDICTED = ["B-PER I-PER O O", "O B-ORG I-ORG I-ORG O", "B-LOC I-LOC I-PER O", "I-PER B-LOC B-LOC"]
SEQEVAL = 0.5333333333333333, 0.5714285714285714, 0.5  # F1, precision, recall
ENTITIES = [
    {(0, 2, "PER"), (3, 4, "LOC")},
    {(2, 4, "ORG")},
    {(0, 1, "LOC"), (1, 2, "LOC"), (2, 3, "PER")},
    {(0, 1, "PER"), (1, 2, "LOC")},
]


def test_spans_are_those_of_seqeval():
    assert [metrics.spans_of(labels.split()) for labels in LABELS] == ENTITIES
    classes = sorted({label for each in LABELS + PREDICTED for label in each.split()})
    numbers = [[np.array([*map(classes.index, each.split())]) for each in lines] for lines in (LABELS, PREDICTED)]
    counts = metrics.counts_of_words("span_f1", *numbers, classes)
    right, told, true = counts.sum(0)
    entry = metrics.entry("span_f1", *numbers, classes, tagging=True)
    assert (entry["score"], right / told, right / true) == pytest.approx(SEQEVAL)
    assert entry["n"] == true and entry["interval"][0] < entry["score"] < entry["interval"][1]
    assert metrics.spans_of(["B-A", "E-A", "S-A", "I-B"]) == {(0, 2, "A"), (2, 3, "A"), (3, 4, "B")}
    assert metrics.spans_of(["B-A", "S-A"]) == {(0, 1, "A"), (1, 2, "A")}
    assert metrics.are_spans(["O", "B-A"]) and not metrics.are_spans(["B-A"]) and not metrics.are_spans(["O", "ORG"])
    numbers[1][0][:] = -1
    assert metrics.counts_of_words("span_f1", *numbers, classes)[0].tolist() == [0, 0, 2]
    accuracy = metrics.value("accuracy", *numbers, classes, tagging=True)
    assert accuracy == pytest.approx(np.mean(np.concatenate(numbers[0]) == np.concatenate(numbers[1])))


def test_a_model_that_gives_one_answer_is_named():
    labels = np.array([0] * 785 + [1] * 215)
    found = metrics.majority(np.ones(1000, int), labels, ["no", "yes"])
    assert found == {"class": "yes", "predicted": 1.0, "share": 0.215}
    for others, named in ((9, True), (20, False)):
        almost = np.ones(1000, int)
        almost[:others] = 0
        assert bool(metrics.majority(almost, labels, ["no", "yes"])) == named
    assert metrics.majority(np.zeros(5, int), np.zeros(5, int), ["no", "yes"]) is None, "all rows are of one class"
    assert metrics.majority(np.zeros(0, int), np.zeros(0, int), ["no", "yes"]) is None, "no word has a token"
