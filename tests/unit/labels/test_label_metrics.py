"""Metrics of predicted codes, against their definitions written out."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from babelmill.labels import metrics
from babelmill.labels.metrics import Predictions

CODES, TEXTS, MOST = 12, 400, 3


@pytest.fixture(scope="module")
def drawn() -> tuple[list[list[int]], np.ndarray]:
    """True codes, a few of them beyond those that the model knows, and chances that have to do with them."""
    random = np.random.default_rng(3)
    truth = [random.permutation(CODES + 2)[: random.integers(1, MOST + 1)].tolist() for _ in range(TEXTS)]
    chances = random.random((TEXTS, CODES)) ** 3
    for text, codes in enumerate(truth):
        chances[text, [code for code in codes if code < CODES]] += 0.4 * random.random()
    return truth, chances / 1.4


def found(chances: np.ndarray, least: float = 0.5, top: int = 5) -> Predictions:
    """What `predict` says of them: the likeliest code, and further ones above a half."""
    order = np.argsort(-chances, axis=1, kind="stable")[:, :top]
    best = np.take_along_axis(chances, order, 1)
    codes = [
        [row[0], *(c for c, p in zip(row[1:MOST], mine[1:MOST], strict=True) if p > least)]
        for row, mine in zip(order, best, strict=True)
    ]
    return Predictions(sets(codes), order, best)


def sets(lists) -> csr_array:
    return metrics.indicator(lists, CODES + 2)


def test_figures_are_what_their_definitions_say(drawn):
    truth, chances = drawn
    predicted = found(chances)
    ours = metrics.figures(sets(truth), predicted)
    guesses = [{*codes} for codes in predicted.codes.tolil().rows]
    pairs = [({*codes}, guess) for codes, guess in zip(truth, guesses, strict=True)]
    assert ours["exact"] == pytest.approx(np.mean([true == guess for true, guess in pairs])) and 0 < ours["exact"] < 1
    right, of, said = (sum(map(len, each)) for each in ([a & b for a, b in pairs], truth, guesses))
    micro = {"precision": right / said, "recall": right / of, "f1": 2 * right / (said + of)}
    assert ours["micro"] == pytest.approx(micro)
    by_code = [
        (sum(code in a & b for a, b in pairs), sum(code in b for _, b in pairs), sum(code in a for a, _ in pairs))
        for code in range(CODES + 2)
    ]
    f1 = np.mean([2 * hits / (said + of) for hits, said, of in by_code])
    assert ours["macro"]["f1"] == pytest.approx(f1)
    for k in metrics.TOPS:
        assert ours[f"top_{k}"] == pytest.approx(
            np.mean([bool({*row[:k]} & {*codes}) for row, codes in zip(predicted.likeliest, truth, strict=True)])
        )


def test_a_code_that_is_not_known_is_always_missed():
    """It lowers recall, and its text is not exact; whoever predicts all other codes rightly has no more."""
    truth = sets([[0], [1, 9], [9]])
    predicted = Predictions(sets([[0], [1], [1]]), np.array([[0], [1], [1]]), np.ones((3, 1)))
    ours = metrics.figures(truth, predicted)
    assert ours["exact"] == 1 / 3 and ours["micro"] == {"precision": 2 / 3, "recall": 0.5, "f1": pytest.approx(4 / 7)}
    assert ours["macro"]["recall"] == pytest.approx(2 / 3)
    more = metrics.figures(truth, predicted._replace(codes=sets([[0], [1], [5]])))
    assert more["macro"]["recall"] == pytest.approx(1 / 2), "a code that is predicted and never true counts, too"


def test_scores_and_their_standard_errors(drawn):
    """Against the spread over samples of the texts."""
    truth, chances = drawn
    true, predicted = sets(truth), found(chances)
    ours = metrics.headline(true, predicted)
    assert ours["exact"]["value"] == metrics.figures(true, predicted)["exact"]
    assert ours["f1"]["value"] == metrics.figures(true, predicted)["micro"]["f1"]
    random, values = np.random.default_rng(0), {"exact": [], "f1": []}
    guesses = predicted.codes.tolil().rows
    for _ in range(400):
        rows = random.integers(0, TEXTS, TEXTS)
        again = metrics.headline(
            sets([truth[i] for i in rows]),
            Predictions(sets([guesses[i] for i in rows]), predicted.likeliest[rows], predicted.chances[rows]),
        )
        for name, score in again.items():
            values[name].append(score["value"])
    assert metrics.headline(true, predicted._replace(codes=true))["f1"]["standard_error"] == pytest.approx(0, abs=1e-12)
    for name, score in ours.items():
        assert score["standard_error"] == pytest.approx(np.std(values[name]), rel=0.15)


def test_the_best_threshold_is_the_best_of_all(drawn):
    truth, chances = drawn
    true = sets(truth)
    best = metrics.threshold(true, found(chances), MOST)
    rounded = chances.round(1)  # equal ones are predicted together or not at all
    tied = metrics.threshold(true, found(rounded), MOST)
    assert tied["f1"] == metrics.figures(true, found(rounded, tied["value"]))["micro"]["f1"]

    def f1(least: float) -> float:
        return metrics.figures(true, found(chances, least))["micro"]["f1"]

    assert best["f1"] == pytest.approx(f1(best["value"])) and best["f1"] > f1(0.5)
    others = max(f1(least) for least in np.linspace(0, 1, 501))
    assert others <= best["f1"] == pytest.approx(others, abs=2e-3)


def test_calibration(drawn):
    """Of chances that are what they say, the expected error is small."""
    random = np.random.default_rng(0)
    chance = random.random(30_000)
    right = random.random(30_000) < chance
    truth = sets([[0] if hit else [1] for hit in right])
    predictions = Predictions(sets([[0]] * 30_000), np.zeros((30_000, 1), int), chance[:, None])
    assert metrics.calibration_error(truth, predictions) < 0.01
    halved = predictions._replace(chances=chance[:, None] / 2)
    assert metrics.calibration_error(truth, halved) == pytest.approx(0.25, abs=0.01)
    sure = predictions._replace(chances=np.ones((30_000, 1)))
    assert metrics.calibration_error(truth, sure) == pytest.approx(1 - right.mean())


def test_digits_and_mistakes():
    """Of any true code, as far as the likeliest one begins alike."""
    spelt = np.array([[1, 2, 3], [1, 2, 4], [1, 3, 3], [2, 2, 3]])
    truth = sets([[0], [0, 3], [0], [3]])
    predicted = Predictions(sets([[0], [1, 2], [2], [0]]), np.array([[0], [2], [2], [0]]), np.ones((4, 1)))
    assert metrics.digits(truth, predicted, spelt) == [0.75, 0.25, 0.25]
    assert metrics.mistakes(truth, predicted, 2) == [
        {"true": 0, "predicted": 1, "count": 1, "text": 1},
        {"true": 0, "predicted": 2, "count": 1, "text": 2},
    ]
    same = predicted._replace(codes=sets([[0], [2], [2], [0]]))
    assert metrics.mistakes(truth, same, 1) == [{"true": 0, "predicted": 2, "count": 2, "text": 1}]
    longer = predicted._replace(codes=sets([[0, 1], [0], [0], [3]]))
    assert [(each["true"], each["predicted"]) for each in metrics.mistakes(truth, longer, 9)] == [(-1, 1), (3, -1)]
