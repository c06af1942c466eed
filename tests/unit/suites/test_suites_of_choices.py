"""Suites of choices: the files, the points, the shares, and what is refused in one line."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from babelmill.config.resolve import Configuration
from babelmill.core.files import UserError
from babelmill.core.templates import columns_of, fill
from babelmill.evaluation.suite_scores import chance, unit_of_scores
from babelmill.stages import ScoreStage
from babelmill.suites.kinds import KINDS, Choices
from babelmill.suites.readers import READERS
from babelmill.suites.texts import texts_of
from conftest import ROOT, SMALL
from helpers import DATA
from helpers.stages import settings_of
from helpers.suite_files import read_items

pytestmark = pytest.mark.usefixtures("folder")

ROWS = [
    {"text": "Ann fell.", "ends": ["She cried.", "It rained.", "No."], "answer": 0, "kind": "a", "number": 2},
    {"text": "Bob ran.", "ends": ["It is nothing.", "He won."], "answer": 1, "kind": "b", "number": 3},
    {"text": "Cem sat.", "ends": ["He ate.", "He flew."], "answer": 0, "kind": "a", "number": 2},
]
KEYS = {"prompt": "{text} ", "options": "ends", "right": "answer"}


def write(name: str, rows=ROWS) -> Path:
    path = Path(name)
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        cells = [
            [json.dumps(v) if isinstance(v, list) else str(v) for v in row.values()]
            for row in [dict.fromkeys(rows[0], ""), *rows]
        ]
        cells[0] = list(rows[0])
        quoted = [[f'"{cell.replace(chr(34), 2 * chr(34))}"' for cell in row] for row in cells]
        path.write_text("".join(",".join(row) + "\n" for row in quoted))
    return path


@pytest.mark.parametrize("name", ["ends.jsonl", "ends.parquet", "ends.csv"])
def test_choices_are_read_from_every_format(name):
    found = read_items("choices", [write(name)], {"paradigm": "{kind}{number}_{file}"}, **KEYS).to_pylist()
    assert [row["id"] for row in found] == ["a2_ends_0", "b3_ends_0", "a2_ends_1"], "counted in each paradigm"
    assert found[0] == {
        "id": "a2_ends_0",
        "prompts": ["Ann fell. "] * 3,
        "options": ["She cried.", "It rained.", "No."],
        "right": 0,
        "phenomenon": "all",
        "paradigm": "a2_ends",
    }
    assert [row["right"] for row in found] == [0, 1, 0]


def test_one_option_may_stand_after_two_prompts():
    path = write("two.jsonl", [{"a": "Ann is here.", "b": "Bob is here.", "c": "She {sings}"}])
    table = read_items("choices", [path], {}, prompt=["{a}", "{b}"], options=[" {c}", " {c}"])
    assert texts_of(table) == [["Ann is here. She {sings}", "Bob is here. She {sings}"]]


def test_text_around_a_list_is_put_around_each_option():
    path = write("ends.jsonl")
    rows = read_items("choices", [path], {}, prompt="{text}", options=" {ends}", right="answer").to_pylist()
    assert rows[0]["options"] == [" She cried.", " It rained.", " No."] and rows[0]["prompts"] == ["Ann fell."] * 3
    with pytest.raises(UserError, match=r"line 1: column 'text' holds 'Ann fell.'; a list of two or more options"):
        read_items("choices", [path], {}, options=" {text}")
    write("empty.jsonl", [ROWS[0] | {"ends": ["x", ""]}])
    with pytest.raises(UserError, match=r"line 1: option 1 is empty"):
        read_items("choices", [Path("empty.jsonl")], {}, options=" {ends}")


def test_options_may_have_tabs_between_and_items_may_be_dropped():
    path = write("wug.jsonl", [{"s": "one\ttwo", "r": 0.5}, {"s": "nothing here\ttwo", "r": 1}])
    table = read_items("choices", [path], {"paradigm": "{file}"}, options="s", drop="nothing", ratio="r")
    assert table.to_pylist() == [
        {
            "id": "wug_0",
            "options": ["one", "two"],
            "prompts": ["", ""],
            "right": 0,
            "phenomenon": "wug",
            "paradigm": "wug",
            "ratio": 0.5,
        }
        | {"phenomenon": "all"}
    ]
    with pytest.raises(UserError, match=r"contain no item \(besides those that drop = 'o' leaves out\)$"):
        read_items("choices", [path], {}, options="s", drop="o")


def test_the_names_of_items_in_lm_evaluation_harness():
    """They need the types of all columns, so a .csv file has none. Items that are dropped are counted."""
    keys = {"options": "ends", "harness_ids": True}
    names = [
        read_items("choices", [write(f"ends.{end}"), write(f"more.{end}")], {}, **keys, drop="cried")["harness_id"]
        for end in ("jsonl", "parquet")
    ]
    assert names[0].to_pylist() == names[1].to_pylist()
    assert [name.as_py().split(":")[0] for name in names[0]] == ["1", "2", "4", "5"]
    assert names[0][0].as_py().split(":")[1] == names[0][2].as_py().split(":")[1]
    with pytest.raises(UserError, match=r"ends\.csv: `harness_ids` needs \.jsonl or \.parquet files: columns of"):
        read_items("choices", [write("ends.csv")], {}, **keys)
    Path("mixed.jsonl").write_text('{"ends": ["a", "b"], "x": 1}\n{"ends": ["a", "b"], "x": "one"}\n')
    with pytest.raises(UserError, match=r"mixed\.jsonl: JSON parse error: .*; `harness_ids` needs columns of one type"):
        read_items("choices", [Path("mixed.jsonl")], {}, **keys)


@pytest.mark.parametrize(
    ("changed", "keys", "message"),
    [
        (
            {"answer": 2},
            {},
            r"x.jsonl: line 2: '2' is not the number of an option \(`right`\); there are 2, and the first",
        ),
        ({"answer": "one"}, {}, r"line 2: 'one' is not the number of an option"),
        ({"ends": ["x", " "]}, {}, r"line 2: option 1 is empty; correct the file"),
        ({"ends": ["x"]}, {}, r"line 2: column 'ends' holds '\[\"x\"\]'; a list of two or more options is expected"),
        ({"ends": None}, {}, r"line 2: column 'ends' holds ''; a list of two or more"),
        ({"ends": [1, 2]}, {}, r"line 2: column 'ends' holds '\[1, 2\]'; a list of two or more"),
        ({}, {"options": "endings"}, r"x.jsonl: no column 'endings'; there are .*; set suites.mine.options$"),
        ({}, {"prompt": "{story}"}, r"no column 'story'; there are .*; set suites.mine.prompt and options$"),
        ({}, {"options": ["{kind}", "{knd}"]}, r"no column 'knd'; there are "),
        ({}, {"ratio": "kind"}, r"line 1: column 'kind' holds 'a'; a number is expected$"),
    ],
)
def test_bad_items_are_one_line(changed, keys, message):
    path = write("x.jsonl", [ROWS[0], ROWS[1] | changed])
    with pytest.raises(UserError, match=message) as error:
        read_items("choices", [path], {}, **KEYS | keys)
    assert "\n" not in str(error.value)


def configuration(**own) -> Configuration:
    values = dict(SMALL) | {"suites": {"mine": {"files": ["x.jsonl"], "language": "eng"} | own}}
    values["models"] = {"eng": {"evaluation": {"suites": ["mine"]}}}
    return Configuration([("config/config.yaml", values)])


CHOICES = {"kind": "choices", "options": ["{a}", "{b}"], "scored": "whole"}


@pytest.mark.parametrize(
    ("own", "message"),
    [
        (
            {"kind": "choices", "options": ["{a}", "{b}"]},
            r"suites.mine.scored = None, .*: a suite of this kind has scored",
        ),
        ({"kind": "choices", "scored": "whole"}, r"suites.mine.options = None, .*: a suite of this kind has options"),
        ({}, r"suites.mine.good = None, suites.mine.kind = 'pairs': a suite of this kind has good"),
        (CHOICES | {"good": "g"}, r"suites.mine.good = .*: only suites of the kind pairs have good"),
        (
            {"good": "g", "bad": "b", "ties": "first"},
            r"suites.mine.ties = .*: only suites of the kind choices have ties",
        ),
        (CHOICES | {"prompt": ["{a}"]}, r"suites.mine.prompt = .*: a list of prompts has one for each option"),
        (
            CHOICES | {"prompt": ["{a}"], "options": "o"},
            r"suites.mine.prompt = .*: a list of prompts has one for each option",
        ),
        (CHOICES | {"right": 2}, r"suites.mine.right = 2, .*: the number of an option, from 0"),
        (CHOICES | {"options": ["{a}"]}, r"options"),
        (CHOICES | {"options": "{a}{b}"}, r"suites.mine.options = '{a}{b}': a template with one column"),
        (CHOICES | {"prompt": "{a"}, r"the template '{a' has a single '{'; write it twice"),
        (CHOICES | {"kind": "chioces"}, r"suites.mine.kind"),
    ],
)
def test_errors_of_a_suite_of_choices(own, message):
    with pytest.raises(UserError, match=message):
        configuration(**own)


CHALLENGED = ["comps", "blimp_filtered", "global_piqa_parallel"]


def challenge(**top) -> Configuration:
    values = {"models": {"eng": {"evaluation": {"suites": CHALLENGED, "tasks": ["rte"]}}}} | top
    return Configuration([("config/config.yaml", values)])


def test_files_of_the_challenge_are_those_of_its_folder():
    data = DATA / "official/evaluation_data"
    found = settings_of(challenge(evaluation_data=str(data)), "eng", "suite.comps")
    assert list(found["sources"]) == [f"{data}/full_eval/comps/*.jsonl"] and found["kind"] == "choices"
    assert "source" not in settings_of(challenge(evaluation_data=str(data)), "eng", "suite.blimp_filtered")
    assert "source" in settings_of(challenge(), "eng", "suite.blimp_filtered"), "it is on the Hub, too"
    with pytest.raises(UserError, match=r"evaluation_data = '': .*: the suite comps needs it"):
        settings_of(challenge(), "eng", "suite.comps")
    with pytest.raises(
        UserError, match=r"config/config.yaml: evaluation_data = '\.': a folder with full_eval or fast_eval or mul"
    ):
        settings_of(challenge(evaluation_data="."), "eng", "suite.comps")
    with pytest.raises(UserError, match=r"evaluation_data = '\.': a folder with full_eval or"):
        settings_of(challenge(evaluation_data="."), "eng", "task.rte")
    Path("[of Ann]/multilingual").mkdir(parents=True)
    found = settings_of(challenge(evaluation_data="[of Ann]/"), "eng", "suite.global_piqa_parallel")
    assert "source" in found, "the folder of the multilingual track alone: what it lacks is on the Hub"
    Path("full_eval").mkdir()
    message = r"config/config.yaml: evaluation_data: comps: suite file \./full_eval/comps/\*\.jsonl: no such file"
    with pytest.raises(UserError, match=message):
        settings_of(challenge(evaluation_data="."), "eng", "suite.comps")

    message = r"config/config.yaml: evaluation_data: rte: task file \./full_eval/glue_filtered/rte\..*: no such file"
    with pytest.raises(UserError, match=message):
        settings_of(challenge(evaluation_data="."), "eng", "task.rte")


def test_the_settings_of_pairs_have_no_key_of_choices():
    configured = challenge(languages={"eng": {"corpus": {"builtin": "python-docs"}}})
    found = [settings_of(configured, "eng", f"{stage}.blimp_filtered") for stage in ("suite", "score")]
    assert not {"kind", "items", "scored", "score", "ties"} & {key for each in found for key in each}


def test_templates():
    assert columns_of("{a} {{b}} {file}{c d}{a}") == ["a", "c d"]
    assert fill("{a} {{b}} {file}", {"a": "{file}", "file": "f"}) == "{file} {b} f"


def settings(**values) -> ScoreStage:
    return ScoreStage(**{"languages": ["eng"], "methods": ["causal"], "kind": "choices"} | values)


def table_of(right, paradigms=None, **more) -> pa.Table:
    paradigms = paradigms or ["p"] * len(right)
    options = [["x", "y", "z"]] * len(right)
    columns = {"options": options, "right": right, "phenomenon": [name[0] for name in paradigms], "paradigm": paradigms}
    return pa.table(columns | more)


def test_options_with_equal_scores_share_the_point_or_the_first_or_none_gets_it():
    scores = np.array([[-1.0, -1, -2, 0], [-1, -1, -1, 0], [-3, -1, -1, 0], [-1, -2, -2, 0], [np.nan] * 4])
    table = table_of([0, 1, 0, 0, 0])
    for ties, expected in (("half", [0.5, 1 / 3, 0, 1]), ("first", [1, 0, 0, 1]), ("wrong", [0, 0, 0, 1])):
        found = Choices().with_scores(table, "causal", scores, settings(ties=ties))
        points = Choices().points(found, "causal")
        assert points[:4] == pytest.approx(expected) and np.isnan(points[4])
        assert found["causal"].to_pylist()[4] is None


def test_the_mean_of_phenomena_is_the_mean_of_the_means_of_their_paradigms():
    points = [1.0, 1, 0, 0, 0, 1]
    table = table_of([0] * 6, ["a1", "a1", "a2", "b1", "b1", "b1"], causal_points=points)
    entry = KINDS["choices"].summary(table, "causal", settings(headline="phenomena"))
    assert entry["phenomena"]["score"] == pytest.approx((0.5 * (1 + 0) + 1 / 3) / 2)
    assert entry["pairs"]["score"] == pytest.approx(0.5) and entry["by_paradigm"]["b1"]["n"] == 3
    assert "phenomena" not in KINDS["choices"].summary(table, "causal", settings(headline="paradigms"))


def test_the_rank_correlation_of_a_ratio():
    """The probability of the first option against the share of people who prefer it."""
    scores = np.array([[-1.0, -2, 0], [-2, -1, 0], [-1, -1, 0], [-5, -1, 0], [-1, -9, 0], [np.nan] * 3])
    table = pa.table({"options": [["x", "y"]] * 6, "right": [0] * 6, "phenomenon": ["all"] * 6, "paradigm": ["p"] * 6})
    table = table.append_column("ratio", pa.array([0.8, 0.3, 0.5, 0.2, 0.9, 1.0]))
    found = Choices().with_scores(table, "causal", scores, settings())
    assert Choices().points(found, "causal")[0] == pytest.approx(1 / (1 + np.exp(-1)))
    entry = Choices().summary(found, "causal", settings())
    assert entry["pairs"]["score"] == pytest.approx(1) and entry["pairs"]["n"] == 5
    assert Choices().measure(found) == "Spearman"
    turned = found.set_column(found.column_names.index("ratio"), "ratio", pa.array([0.2, 0.7, 0.9, 0.8, 0.1, 0.0]))
    low, high = Choices().summary(turned, "causal", settings())["pairs"]["interval"]
    score = Choices().summary(turned, "causal", settings())["pairs"]["score"]
    assert score == pytest.approx(-0.7) and -1 <= low < score < high <= 1


def test_chance_and_the_unit_of_a_score():
    figures = READERS["choices"].figures(read_items("choices", [write("x.jsonl")], {}, **KEYS))
    assert figures["pairs"] == 3 and figures["chance"] == pytest.approx((1 / 3 + 1 / 2 + 1 / 2) / 3)
    scores = {"kind": "choices", "languages": {"eng": {"pairs": figures}}}
    assert chance(scores) == figures["chance"] and unit_of_scores(scores) == "% right"
    assert chance(scores | {"measure": "Spearman"}) == 0
    assert chance({"languages": {"eng": {"pairs": {"pairs": 3}}}}) == 0.5


def test_shipped_suites_of_choices_say_what_is_scored():
    configured = Configuration([])
    for path in (ROOT / "config/suites").glob("*.yaml"):
        suite = configured.suite(path.stem)
        assert suite.kind != "choices" or suite.scored, path.name
        for code in suite.covered:
            assert all("{" not in file for file in (*suite.files_of(code), *suite.challenge_files_of(code)))
