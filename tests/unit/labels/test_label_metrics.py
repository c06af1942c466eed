"""Metrics of predicted codes, against their definitions written out."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from babelmill.labels import metrics

CODES, TEXTS, MOST = 12, 400, 3


@pytest.fixture(scope="module")
def drawn() -> tuple[list[list[int]], list[list[int]]]:
    """True codes, a few of them beyond those that the model knows, and guesses that have to do with them."""
    random = np.random.default_rng(3)
    truth = [random.permutation(CODES + 2)[: random.integers(1, MOST + 1)].tolist() for _ in range(TEXTS)]
    guesses = []
    for codes in truth:
        kept = [code for code in codes if code < CODES and random.random() < 0.7]
        guesses.append(list(dict.fromkeys([*kept, int(random.integers(CODES))]))[: random.integers(1, MOST + 1)])
    return truth, guesses


def sets(lists) -> csr_array:
    return metrics.indicator(lists, CODES + 2)


def test_a_code_that_is_not_known_is_always_missed():
    """It lowers recall, and its text is not exact; whoever predicts all other codes rightly has no more."""
    truth = sets([[0], [1, 9], [9]])
    ours = metrics.figures(truth, sets([[0], [1], [1]]))
    assert ours["exact"] == 1 / 3 and ours["micro"] == {"precision": 2 / 3, "recall": 0.5, "f1": pytest.approx(4 / 7)}
    assert ours["macro"]["recall"] == pytest.approx(2 / 3)
    more = metrics.figures(truth, sets([[0], [1], [5]]))
    assert more["macro"]["recall"] == pytest.approx(1 / 2), "a code that is predicted and never true counts, too"


def test_scores_and_their_standard_errors(drawn):
    """Against the spread over samples of the texts."""
    true, guesses = map(sets, drawn)
    ours, figures = metrics.headline(true, guesses), metrics.figures(true, guesses)
    assert ours["exact"]["value"] == figures["exact"] and ours["f1"]["value"] == figures["micro"]["f1"]
    random, values = np.random.default_rng(0), {"exact": [], "f1": []}
    for _ in range(400):
        rows = random.integers(0, TEXTS, TEXTS)
        for name, score in metrics.headline(true[rows], guesses[rows]).items():
            values[name].append(score["value"])
    assert metrics.headline(true, true)["f1"]["standard_error"] == pytest.approx(0, abs=1e-12)
    for name, score in ours.items():
        assert score["standard_error"] == pytest.approx(np.std(values[name]), rel=0.15)
