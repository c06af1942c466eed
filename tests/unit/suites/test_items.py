"""Suites of pairs and choices: their files, what is refused in one line, and the settings that they are part of."""

import copy
import json
import shutil
from pathlib import Path

import pytest

from babelmill.config.languages import read_table
from babelmill.config.resolve import Configuration
from babelmill.core import manifest
from babelmill.core.files import UserError
from babelmill.graph import Graph
from babelmill.suites.items import figures, texts_of
from conftest import ROOT, SMALL
from helpers import DATA
from helpers.programs.prepared import run_module
from helpers.stages import run_stage, settings_of
from helpers.suite_files import read_items
from helpers.tables import write_table

pytestmark = pytest.mark.usefixtures("folder")

ROWS = [
    {"text": 'Ann "fell".', "ends": ["She cried.", "It rained.", "No."], "answer": 0, "kind": "a", "number": 2},
    {"text": "Bob ran.", "ends": ["It is nothing.", "He won."], "answer": 1, "kind": "b", "number": 3},
    {"text": "Cem sat.", "ends": ["He ate.", "He flew."], "answer": 0, "kind": "a", "number": 2},
]
KEYS = {"prompt": "{text} ", "options": "ends", "right": "answer"}
WITHOUT_TEXT = {key: value for key, value in SMALL.items() if key != "languages"}


@pytest.mark.parametrize("name", ["ends.jsonl", "ends.jsonl.gz", "ends.parquet", "ends.csv", "ends.tsv"])
def test_items_are_read_from_every_format(name):
    rows = ROWS if "sv" not in name else [row | {"ends": json.dumps(row["ends"])} for row in ROWS]
    form = {"quoting": "csv"} if "sv" in name else {}
    groups = {"phenomenon": "number", "paradigm": "{kind}{number}_{file}"}
    table = read_items("choices", [write_table(name, rows)], form, **groups, **KEYS)
    assert table["right"].to_pylist() == [0, 1, 0]
    assert table["paradigm"].to_pylist() == ["a2_ends", "b3_ends", "a2_ends"]
    assert table.to_pylist()[0] == {
        "prompts": ['Ann "fell". '] * 3,
        "options": ["She cried.", "It rained.", "No."],
        "right": 0,
        "phenomenon": "2",
        "paradigm": "a2_ends",
    }


def test_texts_of_items_may_come_from_columns_templates_and_lists():
    path = write_table("two.jsonl", [{"a": "Ann is here.", "b": "Bob is here.", "c": "She {sings}"}])
    table = read_items("choices", [path], prompt=["{a}", "{b}"], options=[" {c}", " {c}"])
    assert texts_of(table) == [["Ann is here. She {sings}", "Bob is here. She {sings}"]]
    table = read_items("choices", [write_table("v1.0_ends.jsonl", ROWS)], prompt="{text}", options=" {ends}")
    assert texts_of(table)[1] == ["Bob ran. It is nothing.", "Bob ran. He won."]
    rows = [{"s": "one\ttwo"}, {"s": "nothing here\ttwo"}]
    table = read_items("choices", [write_table("v1.0_s.jsonl", rows)], paradigm="{file}", options="s", drop="nothing")
    (row,) = table.to_pylist()
    assert (row["options"], row["paradigm"]) == (["one", "two"], "v1.0_s")


def test_the_names_of_items_in_lm_evaluation_harness():
    """Items that are dropped are counted, over all files (what the names are: test_hanzi_as_official.py)."""
    keys = {"options": "ends", "harness_ids": True, "drop": "cried"}
    paths = [write_table(name, ROWS) for name in ("ends.jsonl", "more.parquet")]
    names = [name.split(":") for name in read_items("choices", paths, **keys)["harness_id"].to_pylist()]
    assert [number for number, _ in names] == ["1", "2", "4", "5"] and names[0][1] == names[2][1]
    mixed = [{"ends": ["a", "b"], "x": 1}, {"ends": ["a", "b"], "x": "one"}]
    for path in (write_table("ends.csv", [{"ends": "a\tb"}]), write_table("mixed.jsonl", mixed)):
        with pytest.raises(UserError, match=rf"{path}: .*; `harness_ids` needs \.jsonl or \.parquet, and columns of o"):
            read_items("choices", [path], **keys)


@pytest.mark.parametrize(
    ("changed", "keys", "message"),
    [
        ({"answer": 2}, {}, r"x.jsonl: line 2: right = '2': the number of an option from 0 to 1 is expected"),
        ({"ends": ["x", " "]}, {}, r"line 2: options\[1\] = ' ': a text is expected"),
        ({"ends": ["x"]}, {}, r"line 2: options = '\[\"x\"\]': a list of two or more texts, or texts with tabs"),
        ({"ends": [1, 2]}, {}, r"line 2: options = '\[1, 2\]': a list of two or more"),
        ({}, {"options": "endings"}, r"x.jsonl: no column 'endings'; there are .*; set suites.mine.options$"),
        ({}, {"drop": "."}, r"contain no item \(besides those that drop = '.' leaves out\)$"),
        ({}, {"options": ["{text}", "{bad}"]}, r"no column 'bad'; there are .*; set suites\.mine\.good and bad$"),
        ({}, {"options": ["{text}", "{number}"]}, r"'number' is no text: 2"),
    ],
)
def test_bad_items_are_one_line(changed, keys, message):
    """The last two are of pairs."""
    path = write_table("x.jsonl", [ROWS[0], ROWS[1] | changed])
    kind, keys = ("pairs", keys) if isinstance(keys.get("options"), list) else ("choices", KEYS | keys)
    with pytest.raises(UserError, match=message):
        read_items(kind, [path], **keys)


def test_a_second_download_of_a_file_gives_no_more_items():
    for name in ("a.tsv", "a (1).tsv"):
        Path(name).write_text("good\tbad\nHe is.\tHe are.\n")
    mine = {"files": ["*.tsv"], "language": "eng", "good": "good", "bad": "bad"}
    with pytest.raises(UserError, match=r"^a\.tsv: suites\.mine: this file is a copy of a \(1\)\.tsv; name only one"):
        run_stage("suite.mine", Configuration([("test", {"suites": {"mine": mine}})]))


def test_what_may_be_wrong_is_counted():
    Path("x.tsv").write_text("good\tbad\nIt is.\tIt are.\nYes.\tYep.\nIt is.\tIt are.\nThe same.\tThe same.\n")
    pairs = read_items("pairs", [Path("x.tsv")], options=["{good}", "{bad}"])
    first = {"prompts": ["", ""], "options": ["It is.", "It are."], "right": 0, "phenomenon": "all", "paradigm": "all"}
    assert pairs.to_pylist()[0] == first
    found = figures("pairs", pairs)
    assert found == {"pairs": 4, "phenomena": 1, "paradigms": 1, "chance": 0.5, "identical": 1, "duplicates": 1}
    choices = read_items("choices", [write_table("x.jsonl", ROWS)], **KEYS)
    assert figures("choices", choices)["chance"] == pytest.approx((1 / 3 + 1 / 2 + 1 / 2) / 3)


# The stage.


def configuration(suites=(), model="eng", **own) -> Configuration:
    values = copy.deepcopy(WITHOUT_TEXT) | {"suites": own}
    values["models"] = {model: {"evaluation": {"suites": list(suites)}}}
    return Configuration([("config/config.yaml", values)])


def run_suite(configured: Configuration, code: str, name: str) -> dict:
    """Run the stage in this folder; its manifest."""
    graph = Graph(configured)
    result = graph.result("suite", code, name)
    graph.write(result)
    run_module("babelmill.suite", result.settings_file, cwd=Path.cwd(), check=True)
    return manifest.verify(result.path)


CONTENT = b"sen\twrong_sen\tphenomenon\nIt is.\tIt are.\tSV-#\n"


def test_a_suite_of_the_hub_fetches_what_the_language_needs_and_stays_at_its_commit(hub):
    files = {f"{code}/data.tsv": CONTENT for code in ("eng", "arb", "deu")} | {"README.md": b"#"}
    commit = hub.commit("datasets/jumelet/multiblimp", files)
    found = run_suite(configuration(["multiblimp"], model="ara"), "ara", "multiblimp")
    assert found["figures"]["hub"] == {"repository": "jumelet/multiblimp", "revision": "main", "commit": commit}
    asked = [line for line in hub.log if "data.tsv" in str(line)]
    assert asked and all("arb/data.tsv" in str(line) for line in asked), "no other language is fetched"
    hub.commit("datasets/jumelet/multiblimp", files | {"arb/data.tsv": CONTENT * 2})
    assert run_suite(configuration(["multiblimp"], model="ara"), "ara", "multiblimp") == found
    hub.commit("datasets/jumelet/multiblimp", {"eng/data.tsv": b"x", "README.md": b"#"})
    shutil.rmtree("results")
    with pytest.raises(AssertionError, match=r"has no file arb/data.tsv for ara; it has README.md, eng/data.tsv"):
        run_suite(configuration(["multiblimp"], model="ara"), "ara", "multiblimp")


# Settings.


def test_the_suites_that_come_with_the_project():
    configured, languages = configuration(), read_table(ROOT / "config/languages.tsv")
    for path in (ROOT / "config/suites").glob("*.yaml"):
        suite = configured.suite(path.stem)
        assert suite.title and suite.covered.keys() <= languages.keys()
        for code in suite.covered:
            assert all("{" not in file for file in suite.of_language(suite.files + suite.challenge_files, code))
    suite = configured.suite("english_basics")
    found = figures("pairs", read_items("pairs", [Path(suite.files[0])], options=suite.pair))
    assert found["pairs"] == 200 and not found["identical"] and not found["duplicates"]


def test_a_suite_of_the_project_is_known_by_its_content_in_every_clone(tmp_path):
    clones = [tmp_path / name for name in ("first [1]", "second {2}")]
    for clone in clones:
        shutil.copytree(ROOT / "config", clone / "config")

    def asked(clone: Path) -> dict:
        return settings_of(Configuration([("test", {})], clone), "eng", "suite.english_basics")

    first = asked(clones[0])
    assert asked(clones[1]) == first
    path = clones[1] / "config/suites/english_basics.tsv"
    path.write_text(path.read_text().replace("a", "e", 1))
    assert asked(clones[1]) != first, "an edited file is seen"


def test_snapshots_that_no_training_keeps_are_not_scored():
    values = copy.deepcopy(WITHOUT_TEXT) | {"models": {"eng": {"evaluation": {"snapshot_suites": ["blimp"]}}}}
    with pytest.raises(UserError, match=r"evaluation.snapshot_suites = .* of model eng: nothing without run.snapshots"):
        Configuration([("config/config.yaml", values)]).model("eng")


def test_a_model_is_scored_on_the_suites_that_cover_its_languages():
    configured = configuration(["blimp", "multiblimp", "turblimp"])
    assert list(configured.model("eng").scored) == ["blimp", "multiblimp"]
    assert not configured.model("deu").scored
    mixed = copy.deepcopy(WITHOUT_TEXT)
    mixed["models"] = {"duo": {"languages": ["eng", "ace"], "evaluation": {"suites": ["multiblimp"]}}}
    found = Configuration([("config/config.yaml", mixed)])
    assert settings_of(found, "duo", "score.multiblimp")["covered"] == ["eng"], "nobody covers ace, which is no 0"


PAIRS = {"files": ["x.jsonl"], "language": "eng", "good": "g", "bad": "b"}
CHOICES = {"files": ["x.jsonl"], "language": "eng", "kind": "choices", "options": ["{a}", "{b}"], "scored": "whole"}


@pytest.mark.parametrize(
    ("own", "message"),
    [
        (PAIRS | {"language": None}, "suites.mine.language = None, .*: one of the two"),
        (PAIRS | {"bad": "g"}, "suites.mine.good = 'g', suites.mine.bad = 'g': names of two columns"),
        (PAIRS | {"language": None, "languages": {"eng": "en", "deu": "de"}}, "each of the files has {language} in"),
        (PAIRS | {"language": "english"}, "suites.mine.languages: 'english' is not a language"),
        (PAIRS, r"suite file x\.jsonl: no such file"),
        (PAIRS | {"good": None}, r"suites.mine.good = None, suites.mine.kind = 'pairs': a suite of this kind has good"),
        (PAIRS | {"ties": "first"}, r"suites.mine.ties = .*: only suites of the kind choices have ties"),
        (CHOICES | {"prompt": ["{a}"]}, r"suites.mine.prompt = .*: a list of prompts has one for each option"),
        (CHOICES | {"right": 2}, r"suites.mine.right = 2, .*: the number of an option, from 0"),
        (CHOICES | {"options": "{a}{b}"}, r"suites.mine.options = '{a}{b}': a template with one column"),
        (CHOICES | {"prompt": "{a"}, r"the template '{a' has a single '{'; write it twice"),
    ],
)
def test_mistakes_in_a_suite(own, message):
    with pytest.raises(UserError, match=message):
        settings_of(configuration(["mine"], mine=own), "eng", "suite.mine")


def test_files_of_the_challenge_are_those_of_its_folder():
    """A suite that the folder lacks is read from the Hub, if it is there. (Tasks: test_rows_of_tasks.py.)"""

    def asked(suite: str, folder: str) -> dict:
        values = {"models": {"eng": {"evaluation": {"suites": [suite]}}}, "evaluation_data": folder}
        return settings_of(Configuration([("config/config.yaml", values)]), "eng", f"suite.{suite}")

    data = str(DATA / "official/evaluation_data")
    assert [*asked("comps", data)["sources"]] == [f"{data}/full_eval/comps/*.jsonl"]
    Path("[of Ann]/multilingual").mkdir(parents=True)
    found = [asked("blimp_filtered", data), asked("blimp_filtered", ""), asked("global_piqa_parallel", "[of Ann]/")]
    assert ["source" in each for each in found] == [False, True, True]
    for folder, message in (
        ("", "'': the suite comps needs the BabyLM challenge's folder"),
        ("[of Ann]", r": comps: suite file .*: no such f"),
    ):
        with pytest.raises(UserError, match=f"evaluation_data( = |){message}"):
            asked("comps", folder)
