"""`sweep: halving` of an experiment: which jobs there are before, between and after the rounds, and what runs again."""

import copy
import os
import re
import shutil
from pathlib import Path

import pytest

from babelmill.config import loading
from babelmill.core.manifest import read_sealed
from babelmill.experiments.halving import standing
from conftest import ROOT, SMALL, Workspace, write_texts
from helpers.programs.prepared import run_module
from helpers.results.finished import decide_round, finish, finish_trial

pytestmark = pytest.mark.slow

RATES = {
    "base": "eng",
    "vary": {"train.learning_rate": [0.001, 0.002, 0.003, 0.004, 0.005]},
    "seeds": 2,
    "compare_with": {"train.learning_rate": 0.001},
    "sweep": "halving",
}
BITS = {1: 2.5, 2: 2.4, 3: 2.3, 4: 2.2, 5: 2.1}  # bits per byte of the cells: the reference is the worst
VALUES = copy.deepcopy(SMALL) | {"languages": {"eng": SMALL["languages"]["eng"]}}


def cell(number: int, seed: int = 1) -> str:
    return f"rates_rate0p00{number}_s{seed}"


def configure(workspace: Workspace, **experiment) -> None:
    workspace.configure(VALUES | {"targets": ["rates"], "experiments": {"rates": RATES | experiment}})


@pytest.fixture
def sweep(folder) -> Workspace:
    """A workspace with a sweep that has not begun."""
    write_texts(folder / "texts/eng", "eng", documents=3)
    configure(workspace := Workspace(folder))
    return workspace


@pytest.fixture
def decided(sweep) -> Workspace:
    """A sweep with two decided rounds: after the first one, cells 1, 4 and 5 are left; after the second one, 1 and 5."""
    configuration = loading.load()
    for number in BITS:
        finish_trial(configuration, cell(number), "1", BITS[number])
    decide_round(configuration, "rates", "1")
    for number in (1, 4, 5):
        finish_trial(configuration, cell(number), "2", BITS[number] - 0.5)
    decide_round(configuration, "rates", "2")
    return sweep


def jobs(workspace: Workspace, *targets: str) -> dict[str, set[str]]:
    """Return {rule: what its jobs are of} of a dry run."""
    found: dict[str, set[str]] = {}
    for rule, name in workspace.would_run(targets=targets or ["experiments/rates"]):
        found.setdefault(rule, set()).add(name)
    return found


def test_a_dry_run_shows_the_first_round_and_says_so(sweep):
    found = jobs(sweep)
    assert found["trial"] == {cell(number) for number in BITS} and found["sweep"] == {"rates"}
    assert found.keys() == {"corpus", "tokenizer", "shards", "trial", "sweep", "experiment"}
    for targets in (["rates"], [], ["reports/rates.html"]):
        assert jobs(sweep, *targets)["trial"] == found["trial"]
    plain = sweep.snakemake("experiments/rates", "--dry-run").stdout
    assert "experiments.rates: a sweep: round 1 of 3; the later jobs follow from its results" in plain
    pretty = sweep.snakemake("experiments/rates", "--dry-run", "--logger", "babelmill").stdout
    line = "^experiments.rates: a sweep: this shows round 1 of 3; the later jobs follow from its results"
    assert len(re.findall(line, pretty, re.MULTILINE)) == 1


def test_trials_have_the_resources_of_trainings(sweep):
    """A profile need not know them."""
    options = ("--set-resources", "train:mem_mb=4321", "--set-threads", "train=1")
    output = sweep.snakemake("experiments/rates", "--dry-run", *options).stdout
    trials = re.findall(r"^rule trial:(?:\n    .*)*?mem_mb=(\d+)", output, re.MULTILINE)
    assert trials == ["4321"] * 5


def test_after_its_rounds_only_what_is_left_is_trained_with_further_seeds(decided):
    left = {cell(number, seed) for number in (1, 5) for seed in (1, 2)}
    found = jobs(decided)
    assert found["train"] == found["convert"] == left and not found.keys() & {"trial", "sweep"}
    assert jobs(decided, "rates")["convert"] == jobs(decided)["convert"] == left
    assert jobs(decided, "reports/rates.html")["convert"] == left
    finish(loading.load(), *left)
    assert jobs(decided) == {"experiment": {"rates"}}


def test_a_round_that_is_decided_is_shown_and_the_next_one_follows(decided):
    Path("results/sweeps/rates/round2.json").unlink()
    shutil.rmtree(f"results/trials/{cell(4)}/2")
    assert jobs(decided) == {"trial": {cell(4)}, "sweep": {"rates"}, "experiment": {"rates"}}


def test_a_cell_more_has_its_trial_and_the_round_is_decided_again(decided):
    configure(decided, vary={"train.learning_rate": [0.001, 0.002, 0.003, 0.004, 0.005, 0.006]})
    found = jobs(decided)
    assert found["trial"] == found["tokenizer"] == {cell(6)} and "train" not in found
    assert found["sweep"] == {"rates"}
    finish_trial(configuration := loading.load(), cell(6), "1", 1.9)
    decide_round(configuration, "rates", "1")
    assert standing(configuration, "rates").alive == [cell(number) for number in (1, 4, 5, 6)]
    assert jobs(decided)["trial"] == {cell(6)}  # its second one
    configure(decided)
    assert jobs(decided)["sweep"] == {"rates"} and "trial" not in jobs(decided)


def test_another_value_of_a_cell_runs_only_its_trial(decided):
    cells = [{"train.learning_rate": number / 1000} for number in BITS]
    configure(decided, vary=[cells[0], cells[1] | {"train.warmup": 0.1}, *cells[2:]])
    assert jobs(decided)["trial"] == {"rates_rate0p002_warmup0p1_s1"}


def test_file_times_decide_nothing(decided):
    before = jobs(decided)
    for number, path in enumerate(sorted(path for path in Path("results").rglob("*") if path.is_file())):
        os.utime(path, (1_700_000_000 + 86_400 * (number % 7),) * 2)
    assert jobs(decided) == before
    shutil.rmtree(".snakemake")
    assert jobs(decided) == before


def test_other_text_repeats_everything(decided):
    write_texts(decided.path / "texts/eng", "eng", documents=4)
    found = jobs(decided)
    assert found["trial"] == {cell(number) for number in BITS} and "train" not in found


def test_a_training_waits_for_the_trials_of_its_run(sweep):
    """Two processes cannot write to one run."""
    found = jobs(sweep, "experiments/rates", f"converted/{cell(2)}")
    assert found["train"] == {cell(2)}
    output = sweep.snakemake("experiments/rates", f"converted/{cell(2)}", "--dry-run").stdout
    train = re.search(r"^rule train:\n    input: (.*)", output, re.MULTILINE)
    assert train and f"results/trials/{cell(2)}/2/manifest.json" in train[1]
    for model in (cell(2, 2), "eng"):  # further seeds and other models have none
        assert jobs(sweep, f"converted/{model}").keys() & {"trial", "sweep"} == set()


def test_what_is_trained_is_not_trained_again_for_the_sake_of_its_trials(sweep):
    """As where an experiment gets `sweep: halving` later."""
    finish(loading.load(), cell(2))
    found = jobs(sweep, "experiments/rates", f"converted/{cell(2)}")
    assert cell(2) in found["trial"] and "train" not in found and "convert" not in found


def test_the_commands_know_what_was_dropped(decided):
    status = decided.babelmill("status", "rates")
    assert re.search(rf"^{cell(2)} +train +dropped +dropped in round 1 \(2\.400 bits per byte\)$", status, re.MULTILINE)
    assert re.search(rf"^{cell(4, 2)} +train +dropped +dropped in round 2 \(1\.700 bits", status, re.MULTILINE)
    assert re.search(rf"^{cell(5)} +train +waiting *$", status, re.MULTILINE)
    assert "dropped in round 1 (2.400 bits per byte)" in decided.why(cell(2))["train"]
    for number in (2, 5):
        run = decided.path / f"results/checkpoints/{cell(number)}/0123"
        run.mkdir(parents=True)
        (run / "identity.json").write_text('{"settings": {}, "data": {}}')
    kept = decided.babelmill("clean")
    assert re.search(rf"unused +results/checkpoints/{cell(2)}/0123  dropped in round 1", kept)
    assert not re.search(rf"{cell(5)}/0123  dropped", kept)
    for folder in ("corpora", "shards"):  # so that the text is estimated
        shutil.rmtree(f"results/{folder}")
    plan = decided.babelmill("plan", "rates")
    assert re.search(r"^experiments.rates: a sweep: 5 cells .* 3 to 2/3, 2 to the end", plan, re.MULTILINE)


def test_plan_estimates_the_cost_before(sweep):
    note = re.search(r"^experiments.rates: a sweep: .*", sweep.babelmill("plan", "rates"), re.MULTILINE)
    assert (
        note and "5 cells are trained to 1/3 of their steps, about 3 to 2/3, about 2 to the end with 2 seeds" in note[0]
    )
    assert "an estimate: which cells go on follows from the results" in note[0]


def test_the_decision_says_why(decided):
    race = read_sealed(Path("results/sweeps/rates/round1.json"))["races"][0]
    assert {each["label"]: each["goes_on"] for each in race} == {
        f"rate0p00{number}": number in (1, 4, 5) for number in BITS
    }


def test_in_the_module_of_another_workflow(sweep):
    module = 'import yaml\nmodule ours:\n    snakefile: "{}"\n    config: yaml.safe_load(open("config/config.yaml"))\n'
    Path("Snakefile").write_text(module.format(ROOT / "Snakefile") + "use rule * from ours as ours_*\n")
    shown = run_module("snakemake", "--dry-run", "--cores", "1", "experiments/rates", check=True).stdout
    assert dict(re.findall(r"^ours_(trial|sweep|train) +(\d)$", shown, re.MULTILINE)) == {"trial": "5", "sweep": "1"}
