"""Which cells of a sweep go on: halves, the reference, ties, losses that are not finite; and mistakes."""

import pytest

from babelmill.config.resolve import Configuration
from babelmill.core.files import UserError
from babelmill.experiments.asked import asked_of
from babelmill.experiments.halving import decide, entrants, expected, standing
from helpers.results.finished import decide_round, finish_trial

TEXT = {"preset": "tiny", "languages": {"eng": {"corpus": {"builtin": "python-docs"}}}}
RATES = [0.001, 0.002, 0.003, 0.004, 0.005]
SWEEP = {"base": "eng", "vary": {"train.learning_rate": RATES}, "sweep": "halving", "seeds": 3}


def configuration(**change) -> Configuration:
    return Configuration([("config.yaml", TEXT | {"experiments": {"rates": SWEEP | change}})])


def race(*values: float | None, reference: int | None = None) -> tuple[dict, dict]:
    """Return what is asked of a race with these bits per byte, and its trials."""
    cells = [{"model": f"m{i}", "label": f"c{i}", "reference": i == reference} for i in range(len(values))]
    trials = {f"m{i}": {"bits_per_byte": value} for i, value in enumerate(values)}
    return {"experiment": "rates", "races": [cells]}, trials


def goes_on(monkeypatch, *values: float | None, reference: int | None = None) -> str:
    """Return the numbers of the cells that go on."""
    asked, trials = race(*values, reference=reference)
    monkeypatch.setattr("babelmill.experiments.halving.trial_of", lambda model, _number: trials[model])
    decision = decide(asked, "1", None)
    left = [cell["model"] for cell in entrants(asked, decision)[0]]
    return "".join(model.removeprefix("m") for model in left)


@pytest.mark.parametrize(
    ("values", "reference", "left"),
    [
        ((4, 3, 2, 1), None, "23"),
        ((1, 5, 2, 4, 3), None, "024"),  # the half is rounded up
        ((2, 1), None, "1"),
        ((1, 9), None, "0"),
        ((5,), None, "0"),
        ((4, 3, 2, 1), 0, "023"),  # the reference goes on and does not count: two of the other three
        ((1, 2, 3, 4), 0, "012"),
        ((3, 1, 2), 0, "01"),
        ((3, 2, 2, 1), None, "123"),  # ties go on
        ((2, 2, 2, 2), None, "0123"),
        ((2, 3, 3, None), 0, "012"),
        ((None, None, None, 1), None, "3"),  # what is not finite does not go on, even as a half
        ((None, 3, 2, 1), 0, "023"),  # but the reference does
    ],
)
def test_the_better_half_goes_on(monkeypatch, values, reference, left):
    assert goes_on(monkeypatch, *values, reference=reference) == left
    again = goes_on(monkeypatch, *values, reference=reference)
    assert again == left


def test_a_race_without_a_finite_loss_is_an_error(monkeypatch):
    with pytest.raises(UserError, match=r"the loss of no cell is finite \(c0, c1\); lower train.learning_rate"):
        goes_on(monkeypatch, None, None)


def test_each_base_has_a_race_of_its_own_and_nothing_counts_that_was_decided_from_something_else(folder):
    made = configuration(base=["eng", "deu"], vary={"train.learning_rate": RATES[:3]})
    names = {base: [f"rates_{base}_rate0p00{i}_s1" for i in (1, 2, 3)] for base in ("eng", "deu")}
    for base, bits in (("eng", (3, 2, 1)), ("deu", (11, 12, 13))):
        for name, value in zip(names[base], bits, strict=True):
            (folder / "texts").mkdir(exist_ok=True)
            finish_trial(made, name, "1", value)
    decide_round(made, "rates", "1")
    now = standing(made, "rates")
    assert (now.decided, now.is_over) == (1, False)
    assert now.alive == [*names["eng"][1:], *names["deu"][:2]]
    assert now.says(names["eng"][0]) == "dropped in round 1 (3.000 bits per byte)" and now.says(names["eng"][1]) is None
    finish_trial(made, names["eng"][0], "1", 0.5)  # it was run again, with another result
    assert standing(made, "rates").decided == 0


def test_how_many_cells_are_expected():
    assert [expected(race(*range(count))[0]["races"][0], count) for count in (2, 3, 4, 5, 8)] == [1, 2, 2, 3, 4]
    assert [expected(race(*range(count), reference=0)[0]["races"][0], count) for count in (3, 4, 5, 9)] == [2, 3, 3, 5]


def refused(**change) -> str:
    with pytest.raises(UserError) as error:
        asked_of(configuration(**change), "rates")
    assert "\n" not in str(error.value) and str(error.value).startswith("config.yaml: "), error.value
    return str(error.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sweep": "half"}, "experiments.rates.sweep = 'half'"),
        ({"vary": {}}, "sweep: halving drops the worse half of several cells, and there is only base; let more vary"),
        (
            {"vary": {"train.learning_rate": RATES[:2]}, "compare_with": {"train.learning_rate": 0.001}},
            "there is only rate0p002 besides that of compare_with",
        ),
        (
            {"vary": {"train.objective": ["hybrid", "causal", "masked"]}},
            "hybrid (causal and masked) and causal (causal) learn from different kinds of rows (train.objective)",
        ),
        (
            {"vary": [{"train.max_steps": 30}, {"train.max_steps": 2}]},
            "sweep: halving stops after a third of the steps, and steps2 has only 2 (train.max_steps)",
        ),
        (
            {"vary": [{}, {"train.objective": "labels", "train.sequence_lengths": [64], "train.phase_starts": [0]}]},
            "sweep: halving compares bits per byte, and rates_labels_lengths64_starts0_s1 is a label model, which has none",
        ),
    ],
)
def test_a_sweep_that_cannot_be_decided_is_refused_in_one_line(change, words):
    assert words in refused(**change)
