"""Suites of minimal pairs: the files, the shares of right pairs, and which settings they are part of."""

import copy
import gzip
import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from babelmill.config.languages import read_table
from babelmill.config.resolve import Configuration
from babelmill.core import manifest
from babelmill.core.files import UserError
from babelmill.evaluation.statistics import wilson
from babelmill.evaluation.suite_scores import headline, headline_method, most_pairs, sample_of
from babelmill.graph import Graph
from babelmill.suites.kinds import KINDS
from babelmill.suites.partial import Kept, delete
from babelmill.suites.readers import READERS, Pairs
from babelmill.suites.results import mean_of_groups, right, sample, share, summary
from conftest import ROOT, SMALL
from helpers.hub.hub_server import Fault
from helpers.programs.prepared import run_module
from helpers.stages import settings_of
from helpers.suite_files import read_pairs

pytestmark = pytest.mark.usefixtures("folder")

COLUMNS = {"good": "sen", "bad": "wrong_sen", "phenomenon": "phenomenon", "quoting": "csv"}
ROWS = [
    ("She is 5'4\".", "She are 5'4\".", "SV-#"),
    ('He said "no".', 'He say "no".', "SV-P"),
    ("It is.", "It are.", "SV-#"),
]


WITHOUT_TEXT = {key: value for key, value in SMALL.items() if key != "languages"}


def configuration(suites=(), model="eng", **own) -> Configuration:
    values = copy.deepcopy(WITHOUT_TEXT) | {"suites": own}
    values["models"] = {model: {"evaluation": {"suites": list(suites)}}}
    return Configuration([("config/config.yaml", values)])


def write(name: str, rows=ROWS, heading=("sen", "wrong_sen", "phenomenon")) -> Path:
    """Write pairs as a file of the format that its name says."""
    path, objects = Path(name), [dict(zip(heading, row, strict=True)) for row in rows]
    mark = {".tsv": "\t", ".csv": ";"}.get(path.suffix)
    if mark:
        quoted = [[f'"{text.replace(chr(34), 2 * chr(34))}"' for text in row] for row in [heading, *rows]]
        path.write_text("".join(mark.join(row) + "\n" for row in quoted))
    elif path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(objects), path)
    else:
        text = "".join(json.dumps(each) + "\n" for each in objects).encode()
        path.write_bytes(gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)
    return path


@pytest.mark.parametrize("name", ["a.tsv", "a.csv", "a.jsonl", "a.jsonl.gz", "a.parquet"])
def test_pairs_are_read_from_every_format(name):
    columns = COLUMNS | ({"delimiter": ";"} if name == "a.csv" else {})
    table = read_pairs([write(name)], columns)
    assert [tuple(row.values()) for row in table.to_pylist()] == [(*row, row[2]) for row in ROWS]


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet"])
def test_a_phenomenon_may_be_a_truth_value_and_a_sentence_may_not(name):
    rows = [{"good": "x", "bad": "y", "long": value} for value in (True, False)]
    if name == "a.jsonl":
        Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        pq.write_table(pa.Table.from_pylist(rows), name)
    found = read_pairs([Path(name)], {"good": "good", "bad": "bad", "phenomenon": "long"})
    assert found["phenomenon"].to_pylist() == ["true", "false"]
    with pytest.raises(UserError, match=r"'long' is no text: True|column 'long' is bool, not text"):
        read_pairs([Path(name)], {"good": "good", "bad": "long"})


def test_the_name_of_a_file_can_be_the_paradigm():
    files = [write("a.tsv"), write("b.jsonl.gz")]
    table = read_pairs(files, COLUMNS | {"paradigm": "{file}"})
    assert table["paradigm"].to_pylist() == ["a"] * 3 + ["b"] * 3
    plain = {key: COLUMNS[key] for key in ("good", "bad", "quoting")}
    assert set(read_pairs(files, plain)["paradigm"].to_pylist()) == {"all"}
    dots = [write("v1.0_agreement.tsv"), write("v1.0_order.jsonl.gz")]
    named = read_pairs(dots, COLUMNS | {"paradigm": "{file}"})["paradigm"].to_pylist()
    assert list(dict.fromkeys(named)) == ["v1.0_agreement", "v1.0_order"]


def test_a_missing_column_is_named_with_those_there_are():
    with pytest.raises(UserError, match=r"a.tsv: no column 'good'; there are 'sen', .*; set suites\.mine\.good$"):
        read_pairs([write("a.tsv")], COLUMNS | {"good": "good"})


def test_an_empty_sentence_is_refused_with_its_row():
    path = write("a.tsv", [*ROWS, ("Yes.", " ", "SV-#")])
    with pytest.raises(UserError, match=r"a.tsv: line 5: the bad sentence \('wrong_sen'\) is empty"):
        read_pairs([path], COLUMNS)
    with pytest.raises(UserError, match=r"b.tsv: these files contain no pair of sentences"):
        read_pairs([write("b.tsv", [])], COLUMNS)


def test_what_may_be_wrong_is_counted():
    rows = [*ROWS, ROWS[0], ("The same.", "The same.", "x"), ("One word more.", "One more.", "x")]
    found = READERS["pairs"].figures(read_pairs([write("a.tsv", rows)], COLUMNS))
    differences = {"identical": 1, "duplicates": 1, "different_word_counts": 1}
    assert found == {"pairs": 6, "phenomena": 3, "paradigms": 3} | differences


def run_suite(configured: Configuration, code: str, name: str) -> dict:
    """Run the stage in this folder; its manifest."""
    graph = Graph(configured)
    result = graph.result("suite", code, name)
    graph.write(result)
    run_module("babelmill.suite", result.settings_file, cwd=Path.cwd(), check=True)
    return manifest.verify(result.path)


def test_a_suite_of_ones_own():
    write("a.tsv")
    entry = {"files": ["*.tsv"], "language": "eng", "good": "sen", "bad": "wrong_sen", "quoting": "csv"}
    found = run_suite(configuration(["mine"], mine=entry), "eng", "mine")
    assert found["figures"]["pairs"] == 3 and found["figures"]["sources"][0]["path"] == "a.tsv"
    (table,) = Path("results/suite").glob("mine_eng-*/pairs.parquet")
    assert pq.read_table(table).column_names == Pairs.schema.names
    before = settings_of(configuration(["mine"], mine=entry), "eng", "suite.mine")
    write("a.tsv", ROWS[:2])
    configured = configuration(["mine"], mine=entry)
    from babelmill.config import datasets

    datasets._snapshot.cache_clear()
    assert settings_of(configured, "eng", "suite.mine") != before, "an edited file is seen"


def test_a_suite_of_the_hub_fetches_what_the_language_needs(hub):
    content = b"sen\twrong_sen\tphenomenon\nIt is.\tIt are.\tSV-#\n"
    files = {f"{code}/data.tsv": content for code in ("eng", "arb", "deu")} | {"README.md": b"#"}
    commit = hub.commit("datasets/jumelet/multiblimp", files)
    found = run_suite(configuration(["multiblimp"], model="ara"), "ara", "multiblimp")
    assert found["figures"]["hub"] == {"repository": "jumelet/multiblimp", "revision": "main", "commit": commit}
    assert found["figures"]["pairs"] == 1
    asked = [line for line in hub.log if "data.tsv" in str(line)]
    assert asked and all("arb/data.tsv" in str(line) for line in asked), "no other language is fetched"
    hub.commit("datasets/jumelet/multiblimp", files | {"arb/data.tsv": content * 2})
    assert run_suite(configuration(["multiblimp"], model="ara"), "ara", "multiblimp") == found, "it stays at its commit"


def test_a_suite_without_the_files_says_what_there_is(hub):
    hub.commit("datasets/jumelet/multiblimp", {"eng/data.tsv": b"x", "README.md": b"#"})
    with pytest.raises(AssertionError, match=r"has no file arb/data.tsv for ara; it has README.md, eng/data.tsv"):
        run_suite(configuration(["multiblimp"], model="ara"), "ara", "multiblimp")


def test_pairs_that_arrive_changed_or_do_not_fit_the_disk_are_one_line(hub):
    content = b"sen\twrong_sen\tphenomenon\nIt is.\tIt are.\tSV-#\n"
    hub.commit("datasets/jumelet/multiblimp", {"arb/data.tsv": content})
    configured = configuration(["multiblimp"], model="ara")
    hub.faults = [Fault("GET .*data.tsv", garbage=True), Fault("GET .*data.tsv", status=404, times=9)]
    wrong = r"error: arb/data.tsv of the suite jumelet/multiblimp at \w+: the content did not have the right hash"
    with pytest.raises(AssertionError, match=wrong) as error:
        run_suite(configured, "ara", "multiblimp")
    assert "Traceback" not in str(error.value)
    with pytest.raises(AssertionError, match=r"error: the suite jumelet/multiblimp on http.*") as error:
        run_suite(configured, "ara", "multiblimp")
    assert "Traceback" not in str(error.value)
    hub.faults = []
    disk = Graph(configured).result("suite", "ara", "multiblimp").path.resolve()
    disk.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", disk], check=True)
    try:
        with pytest.raises(AssertionError, match=r"error: results/suite/.*: No space left on device") as error:
            run_suite(configured, "ara", "multiblimp")
        assert "Traceback" not in str(error.value)
    finally:
        subprocess.run(["umount", disk], check=True)
    assert run_suite(configured, "ara", "multiblimp")["figures"]["pairs"] == 1


def test_the_suites_that_come_with_the_project():
    names = sorted(path.stem for path in (ROOT / "config/suites").glob("*.yaml"))
    configured = configuration()
    languages = read_table(ROOT / "config/languages.tsv")
    for name in names:
        assert configured.suite(name).covered.keys() <= languages.keys() and configured.suite(name).title
    table = read_pairs([Path(configured.suite("english_basics").files[0])], {key: key for key in Pairs.schema.names})
    found = READERS["pairs"].figures(table)
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


def test_a_model_is_scored_on_the_suites_that_cover_its_languages():
    configured = configuration(["blimp", "multiblimp", "turblimp"])
    assert list(configured.model("eng").scored) == ["blimp", "multiblimp"]
    assert not configured.model("deu").scored
    mixed = copy.deepcopy(WITHOUT_TEXT)
    mixed["models"] = {"duo": {"languages": ["eng", "ace"], "evaluation": {"suites": ["multiblimp"]}}}
    found = Configuration([("config/config.yaml", mixed)])
    assert settings_of(found, "duo", "score.multiblimp")["covered"] == ["eng"], "nobody covers ace, which is no 0"


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ({"files": ["a"]}, "suites.mine.language = None, .*: one of the two"),
        (
            {"files": ["a"], "bad": "g", "language": "eng"},
            "suites.mine.good = 'g', suites.mine.bad = 'g': different columns",
        ),
        ({"files": [], "language": "eng"}, r"suites.mine.files = \[\]: at least one"),
        ({"files": ["a"], "language": "eng", "goood": 1}, "goood"),
        ({"files": ["a"], "languages": {"eng": "en", "deu": "de"}}, "each of the files has {language} in its name"),
        ({"files": ["a"], "language": "english"}, "suites.mine.languages: 'english' is not a language"),
        ({"files": ["a.tsv"], "language": "eng"}, r"suite file a\.tsv: no such file"),
    ],
)
def test_errors_of_a_suite(own, message):
    """Those of the last two are seen when the suite is asked for."""
    with pytest.raises(UserError, match=message):
        settings_of(configuration(["mine"], mine={"good": "g", "bad": "b"} | own), "eng", "suite.mine")


def test_an_unknown_suite_is_refused_with_the_nearest():
    with pytest.raises(UserError, match=r"model eng: these do not exist: evaluation.suites: blmip; did you mean blimp"):
        configuration(["blmip"]).model("eng")


def test_snapshots_that_no_training_keeps_are_refused():
    """A key of the evaluation that would do nothing."""
    values = copy.deepcopy(WITHOUT_TEXT) | {"models": {"eng": {"evaluation": {"snapshots": True}}}}
    with pytest.raises(UserError, match=r"evaluation.snapshots = True of model eng: nothing without run.snapshots"):
        Configuration([("config/config.yaml", values)]).model("eng")


def changed(before: dict, after: dict) -> set[str]:
    """The stages whose own settings differ between two sections `evaluation` of eng."""
    files = []
    for evaluation in (before, after):
        values = copy.deepcopy(WITHOUT_TEXT) | {
            "models": {"eng": {"evaluation": evaluation, "run": {"snapshots": [1]}}}
        }
        found = Configuration([("config/config.yaml", values)])
        names = ["evaluate", "export", "convert", *(f"score.{name}" for name in found.model("eng").scored)]
        files.append({name: settings_of(found, "eng", name) | {"made_from": {}} for name in names})
    return {name for name in files[0].keys() | files[1].keys() if files[0].get(name) != files[1].get(name)}


def test_what_a_key_changes():
    one, two = {"suites": ["english_basics"]}, {"suites": ["english_basics", "blimp"]}
    assert changed({}, one) == {"score.english_basics", "convert"}
    assert changed(one, two) == {"score.blimp", "convert"}, "neither the evaluation nor another suite"
    assert changed(one, one | {"pairs": "all"}) == set(), "settings files are those of before the key existed"
    assert changed(one, one | {"pairs": 10}) == {"score.english_basics"}
    assert changed(one, one | {"masked_pairs": 10}) == {"score.english_basics"}
    assert changed(one, one | {"snapshots": True}) == {"score.english_basics"}
    assert changed(one, one | {"snapshot_suites": ["english_basics"]}) == {"score.english_basics"}, "it is in both"
    assert changed(one, one | {"snapshot_suites": ["blimp"]}) == {"score.blimp", "convert"}
    assert changed(one, one | {"snapshot_suites": []}) == set()
    assert changed(one, one | {"sequence_length": 64}) == {"evaluate"}


def test_intervals():
    """Of Wilson: at 85 %, 50 pairs give 73 to 92, 201 give 79 to 89; at the ends it does not leave 0 and 1."""
    assert np.round(wilson(0.85, 50), 2).tolist() == [0.73, 0.92]
    assert np.round(wilson(0.85, 201), 2).tolist() == [0.79, 0.89]
    assert wilson(1.0, 10)[1] == pytest.approx(1) and wilson(1.0, 10)[0] == pytest.approx(0.7225, abs=1e-4)
    assert share(np.array([1, 0.5, 0]))["score"] == 0.5


def test_the_mean_of_groups_weighs_them_alike():
    found = mean_of_groups([np.ones(1000), np.zeros(10)])
    assert found["score"] == 0.5 and found["groups"] == 2 and found["n"] == 1010
    generator = np.random.default_rng(0)
    truth, inside = [0.6, 0.8, 0.95], 0
    for _ in range(400):
        low, high = mean_of_groups([(generator.random(60) < p).astype(float) for p in truth])["interval"]
        inside += low <= np.mean(truth) <= high
    assert 0.92 < inside / 400 < 0.99


def test_equal_scores_count_half():
    assert right(np.array([-1.0, -2.0, -3.0]), np.array([-2.0, -2.0, -1.0])).tolist() == [1, 0.5, 0]


def test_a_summary_by_phenomenon_and_paradigm():
    table = pa.table({"phenomenon": ["a", "a", "b", "b"], "paradigm": ["p", "q", "r", "r"]})
    found = summary(table, np.array([1.0, 0, 1, np.nan]))
    assert found["pairs"]["score"] == pytest.approx(2 / 3) and found["pairs"]["n"] == 3, "what has no score is left out"
    assert {name: each["score"] for name, each in found["by_phenomenon"].items()} == {"a": 0.5, "b": 1}
    assert {name: each["n"] for name, each in found["by_paradigm"].items()} == {"p": 1, "q": 1, "r": 1}


def test_paradigms_of_a_sample_count_as_they_do_among_all_pairs():
    """900 pairs of which 90 % are right, 100 of which 10 % are: 82 %, and not the 50 % of as many of both."""
    paradigms = np.array(["large"] * 900 + ["small"] * 100)
    table = pa.table({"phenomenon": ["one"] * 1000, "paradigm": paradigms})
    points = np.full(1000, np.nan)
    points[:10], points[900:910] = [1] * 9 + [0], [1] + [0] * 9
    found = summary(table, points, sampled=True)
    assert found["pairs"]["score"] == pytest.approx(0.82) == found["by_phenomenon"]["one"]["score"]
    assert found["pairs"]["n"] == 20 and found["paradigms"]["score"] == pytest.approx(0.5)
    assert found["pairs"]["interval"][0] < 0.7 < 0.9 < found["pairs"]["interval"][1]
    assert summary(table, points)["pairs"]["score"] == 0.5, "what is too long is left out"


def test_a_sample_is_of_each_paradigm_and_the_same_in_any_order():
    rows = [{"good": f"g{i}", "bad": f"b{i}", "paradigm": f"p{i % 3}"} for i in range(60)]
    table, back = pa.Table.from_pylist(rows), pa.Table.from_pylist(rows[::-1])

    def taken_of(table, most):
        return sample(table, KINDS["pairs"].texts(table), most)

    taken = taken_of(table, 7)
    assert np.bincount(np.arange(60)[taken] % 3).tolist() == [7, 7, 7]
    assert taken_of(back, 7)[::-1].tolist() == taken.tolist()
    assert taken_of(table, 100).all() and taken_of(table, None).all()
    languages = ["eng" if i < 30 else "deu" for i in range(60)]
    both = table.add_column(0, "language", pa.array(languages))
    assert taken_of(both, 7).tolist() == [*taken_of(table[:30], 7), *taken_of(table[30:], 7)], (
        "each language has its own"
    )


KEPT = np.arange(12.0).reshape(4, 3)


def scores_in(folder, method="causal", **made_of):
    """What is kept of a method: {pair: scores}."""
    kept = Kept(folder / f"{method}.rows", made_of)
    return dict(zip(kept.items.tolist(), kept.scores.tolist(), strict=True))


def add(folder, pairs, rows, **made_of):
    Kept(folder / "causal.rows", made_of).add(pairs, rows)


def test_scores_are_kept_and_half_a_row_is_cut_off(folder):
    add(folder / "partial", [7, 5], KEPT[:2], a=1)
    add(folder / "partial", [6, 0], KEPT[2:], a=1)
    whole = (folder / "partial/causal.rows").read_bytes()
    (folder / "partial/causal.rows").write_bytes(whole + b"torn")
    assert scores_in(folder / "partial", a=1) == dict(zip((7, 5, 6, 0), KEPT.tolist(), strict=True))
    add(folder / "partial", [1], KEPT[:1], a=1)
    assert list(scores_in(folder / "partial", a=1)) == [7, 5, 6, 0, 1]
    assert scores_in(folder / "partial", a=2) == {}, "another model begins anew"
    add(folder / "partial/chck_1M", [1], KEPT[:1], a=2)
    (folder / "partial/mine.txt").touch()
    delete(folder / "partial")
    assert [path.name for path in (folder / "partial").iterdir()] == ["mine.txt"], "of snapshots neither"
    (folder / "partial/mine.txt").unlink()
    delete(folder / "partial")
    assert not (folder / "partial").exists()


def test_no_flipped_bit_becomes_a_score(folder):
    """Each byte of each row: it and what follows is scored again; what stands before it is kept."""
    add(folder / "partial", [3, 2, 1, 0], KEPT)
    path = folder / "partial/causal.rows"
    whole = path.read_bytes()
    size = (len(whole) - 32) // 4
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 16]) + whole[place + 1 :])
        rows = max(0, place - 32) // size if place >= 32 else 0
        assert scores_in(folder / "partial") == dict(zip([3, 2, 1][:rows], KEPT.tolist(), strict=False))
    path.write_bytes(whole[:32] + whole[32 + size : 32 + 2 * size] + whole[32 : 32 + size])
    assert list(scores_in(folder / "partial")) == [2, 3], "a row names its pair, so its place says nothing"


def test_the_headline_is_the_most_precise_score():
    """Fused where all is scored; where masked scores are a sample, causal; also in files that say otherwise."""

    def scores(fused: int, causal: int, named: str = "fused"):
        methods = {name: {"pairs": {"n": n, "score": n / 100}} for name, n in (("causal", causal), ("fused", fused))}
        return {"headline": {"method": named, "of": "pairs"}, "languages": {"eng": {"methods": methods}}}

    assert headline_method(scores(50, 50)) == "fused" and headline_method(scores(50, 50, "causal")) == "causal"
    assert headline_method(scores(10, 50)) == "causal" and headline(scores(10, 50), "eng") == {"n": 50, "score": 0.5}
    one = scores(10, 50)
    one["languages"]["deu"] = {"methods": {"causal": {"pairs": None}, "fused": {"pairs": {"n": 90}}}}
    assert headline_method(one) == "fused", "one method for all languages"


def test_how_many_pairs_a_method_scores():
    assert most_pairs({"masked_pairs": "all"}, "masked") is None is most_pairs({"masked_pairs": 5}, "causal")
    assert most_pairs({"pairs": 9, "masked_pairs": "all"}, "causal") == 9 == most_pairs({"pairs": 9}, "masked")
    assert [most_pairs({"pairs": 9, "masked_pairs": n}, "fused") for n in (5, 20)] == [5, 9]


def test_all_pairs_are_no_sample():
    """Though there is a limit: paradigms may be smaller than it."""

    def scores(n):
        methods = {"causal": {"pairs": {"n": 30}}, "masked": {"pairs": {"n": n}}}
        return {"masked_pairs": 5, "languages": {"eng": {"pairs": {"pairs": 30}, "methods": methods}}}

    assert sample_of(scores(30), "masked") == "" == sample_of(scores(10), "causal")
    assert sample_of(scores(10), "masked") == "sample of 5 pairs of each paradigm"
