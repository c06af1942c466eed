"""`experiments:` and `like:`: the names of cells, what they inherit, and mistakes."""

import itertools
import re

import pytest
import yaml

from babelmill.config.resolve import Configuration
from babelmill.core.files import UserError
from babelmill.graph import Graph
from babelmill.reporting.asked import asked_of_experiment

TEXT = {"preset": "tiny", "languages": {"eng": {"corpus": {"builtin": "python-docs"}}}}
MASKING = {
    "base": "eng",
    "vary": {"train.hybrid_ratio": ["1/4", "1/2"], "train.optimizer": ["lamb", "adamw"]},
    "seeds": 2,
    "compare_with": {"train.hybrid_ratio": "1/2", "train.optimizer": "lamb"},
}


def configuration(experiments: dict | None = None, **more) -> Configuration:
    return Configuration([("config.yaml", TEXT | {"experiments": experiments or {}} | more)])


def refused(experiment: object, **more) -> str:
    """The one line of error about an experiment."""
    with pytest.raises(UserError) as error:
        asked_of_experiment(Graph(configuration({"masking": experiment}, **more)), "masking")
    assert "\n" not in str(error.value) and str(error.value).startswith("config.yaml: "), error.value
    return str(error.value)


def test_cells_are_models_that_inherit_from_the_base():
    """With readable names, in the order of the grid; the seeds follow that of the base."""
    made = configuration({"masking": MASKING}, models={"eng": {"train": {"epochs": 3, "seed": 7}}})
    order = itertools.product(("ratio1o4", "ratio1o2"), ("lamb", "adamw"), ("s1", "s2"))
    assert made.groups["masking"] == ["_".join(["masking", *each]) for each in order]
    cell = made.model("masking_ratio1o4_adamw_s2")
    assert (cell.languages, cell.preset, cell.train.epochs, cell.train.seed) == (("eng",), "tiny", 3, 8)
    assert (cell.train.hybrid_ratio, cell.train.optimizer) == ("1/4", "adamw")
    assert cell.origins["train.hybrid_ratio"] == "config.yaml: experiments.masking, models.masking_ratio1o4_adamw_s2"
    cells = asked_of_experiment(Graph(made), "masking")["cells"]
    assert [each["label"] for each in cells if each["reference"]] == ["ratio1o2_lamb"] * 2


@pytest.mark.parametrize(
    ("vary", "labels"),
    [
        ({"train.learning_rate": [0.001, "1e-3", 0.01]}, ["rate0p001", "rate1em3", "rate0p01"]),
        ({"model.gate": [True, False], "preset": ["tiny"]}, ["gateOn_tiny", "gateOff_tiny"]),
        ({"train.sequence_lengths": [[128, 256], [128]]}, ["lengths128x256", "lengths128"]),
        ([{}, {"train.optimizer": "adamw"}], ["base", "adamw"]),
        ([{"train.warmup": 0.1}, {"train.cooldown": 0.1, "train.epochs": 3}], ["warmup0p1", "cooldown0p1_epochs3"]),
        ([{"train.learning_rate": 0.1}, {"train.learning_rate_floor": 0.1}], ["rate0p1", "floor0p1"]),
        ({"tokenizer.revision": ["a b", "a.b", "c"]}, ["ab", "ab_[0-9a-f]{8}", "c"]),
    ],
)
def test_names_say_what_a_cell_is(vary, labels):
    """A value that looks like an earlier one in a name gets a digest. A cell more renames no other."""
    names = " ".join(configuration({"a": {"base": "eng", "vary": vary}}).groups["a"])
    assert re.fullmatch(" ".join(f"a_{label}_s1" for label in labels), names)


def test_names_that_are_taken_are_refused():
    said, cell = "experiments.masking: {} is a model or group of another entry", "masking_ratio1o4_lamb_s1"
    for taken in ("masking", cell):
        assert said.format(taken) in refused(MASKING, models={taken: {"languages": ["eng"]}})
    with pytest.raises(UserError, match=r"there is no experiment 'maskin'; did you mean masking\?"):
        asked_of_experiment(Graph(configuration({"masking": MASKING})), "maskin")


def test_cells_can_be_bases_and_sources_of_others():
    models = {"t": {"like": "a_adamw_s2"}, "u": {"languages": ["eng"], "model": {"source": "a_adamw_s2"}}}
    grid = {"base": "eng", "vary": {"train.optimizer": ["adamw"]}, "seeds": 2}
    experiments = {"b": grid | {"base": "u"}, "a": grid, "c": grid | {"base": ["eng", "two"]}}
    made = configuration(experiments, models=models, groups={"two": ["deu"]})
    assert made.groups["c"][::2] == ["c_eng_adamw_s1", "c_deu_adamw_s1"], "several bases have all cells each"
    assert (made.model("t").train.optimizer, made.model("t").train.seed) == ("adamw", made.model("eng").train.seed + 1)
    assert made.model("b_adamw_s2").model.source == "a_adamw_s2"


# What is changed in MASKING, and what is said of it.
MISTAKES = """
seeds: 900 => experiments.masking.vary: more than 1,000 models: vary fewer values
base: egn => experiments.masking.base = 'egn': there is no such model; did you mean eng?
base: [eng, eng] => experiments.masking.base: a model appears more than once
vary: {run.log_every: [1, 2]} => vary: run.log_every: keys of preset, tokenizer, mixture, model, train
vary: {trian.optimizer: [lamb]} => vary: trian.optimizer: keys of
vary: {train.seed: [1, 2]} => vary: train.seed: keys of
vary: {train.optimiser: [lamb]} => models.masking_lamb_s1: unknown key train.optimiser; did you mean optimizer
vary: {train.optimizer: []} => experiments.masking.vary
vary: {train.optimizer: [lamb, lamb]} => vary: the cell lamb appears more than once
vary: {train.optimizer: [lamb, sgd]} => experiments.masking, models.masking_sgd_s1: train.optimizer = 'sgd'
compare_with: {train.optimizer: sgd} => compare_with = {'train.optimizer': 'sgd'}: the values of a cell are expected; cells
"""


@pytest.mark.parametrize("mistake", MISTAKES.strip().splitlines())
def test_a_mistake_is_one_line(mistake):
    change, words = mistake.split(" => ")
    changed = yaml.safe_load(change)
    assert words in refused(MASKING | ({"compare_with": None} if "vary" in changed else {}) | changed)


def test_cells_share_all_but_the_training_and_equal_cells_that_too():
    grid = {"base": "eng", "vary": {"train.learning_rate": [0.01, 0.02], "train.max_steps": [8, 9]}, "seeds": 2}
    graph = Graph(made := configuration({"a": grid, "b": grid | {"seeds": 1}}))
    cells = [cell.name for name in "ab" for cell in made.cells[name]]
    paths = {stage: {graph.result(stage, cell).path for cell in cells} for stage in ("tokenizer", "train", "convert")}
    assert {stage: len(found) for stage, found in paths.items()} == {"tokenizer": 1, "train": 8, "convert": 12}


def test_like_inherits_key_by_key():
    """From all layers of the other entry, its preset and its languages; what the entry itself says comes last."""
    file = {"models": {"a": {"languages": ["eng", "deu"], "preset": "small", "train": {"epochs": 3, "warmup": 0.1}}}}
    again = {"models": {"b": {"like": "a", "train": {"epochs": 4}}, "c": {"like": "b", "preset": "tiny"}}}
    made = Configuration([("one.yaml", TEXT | file), ("two.yaml", again)])
    b, c = made.model("b"), made.model("c")
    assert (b.languages, b.preset, b.train.epochs, b.train.warmup) == (("eng", "deu"), "small", 4, 0.1)
    assert (c.languages, c.preset, c.train.epochs) == (("eng", "deu"), "tiny", 4)
    assert b.origins["train.epochs"] == "two.yaml, models.b" and b.origins["train.warmup"] == "one.yaml, models.a"
    only_name = configuration(models={"d": {"like": "eng"}})
    assert only_name.model("d").sections == only_name.model("eng").sections


def test_a_wrong_like_is_one_line():
    for like, words in {
        "egn": "models.b.like = 'egn': there is no such model; did you mean eng?",
        "masking_ratio1o4_lamb_s1": "masking_ratio1o4_lamb_s1 is like b is like masking_ratio1o4_lamb_s1, which is a circle",
    }.items():
        assert words in refused(MASKING | {"base": "b"}, models={"b": {"like": like}})
