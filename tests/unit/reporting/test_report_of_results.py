"""What a report shows of results, also of those that are odd: without phenomena, hostile, of another model."""

import csv
import io
import random
import re
import shutil
from pathlib import Path

import pandas as pd
import pytest
import yaml
from matplotlib.figure import Figure

from babelmill.config import loading
from babelmill.core.files import UserError, read_json, write_json
from babelmill.graph import Graph
from babelmill.release.card.training_history import losses, plot_losses
from babelmill.reporting import figures
from babelmill.reporting.asked import asked_of
from babelmill.reporting.figures import Strips
from babelmill.reporting.page import page, training
from babelmill.reporting.results import ModelResults, read_all
from babelmill.reporting.table import rows_of, score_table, write_csv
from helpers.results import report_results


@pytest.fixture
def asked(folder):
    """The results of a model, in this folder."""
    return made(eng=["eng"])


def graph_of(*suites: str, **models) -> Graph:
    """Return the graph of a configuration in this folder; `models`: {name: its languages, or its entry}."""
    entries = {name: entry if isinstance(entry, dict) else {"languages": entry} for name, entry in models.items()}
    values = {"preset": "tiny", "evaluation": {"suites": ["blimp", *suites]}, "models": entries}
    Path("config.yaml").write_text(yaml.safe_dump(values))
    return Graph(loading.load(["config.yaml"]))


def made(*suites: str, scored: dict | None = None, **models) -> dict:
    """Return what a report of new models is about, with their results; `scored`: {suite: languages}."""
    graph = graph_of(*suites, **models)
    for name in models:
        report_results.make(graph, name, {"blimp": ["eng"]} if scored is None else scored)
    return asked_of(graph, "+".join(models))


def there(asked) -> ModelResults:
    (model,) = read_all(asked, {"eng": ("stopped (train)", "")})
    return model


def csv_of(models) -> list[dict[str, str]]:
    write_csv(score_table(models), file := io.StringIO(newline=""))
    return list(csv.DictReader(io.StringIO(file.getvalue(), newline="")))


def section(text: str, title: str) -> str:
    """A section of a page, without marks."""
    found = re.search(rf"<h2>{title}</h2>(.*?)</section>", text, re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", found[1])) if found else ""


def test_the_headline_is_that_of_the_scores_where_pairs_have_no_phenomenon(asked):
    """An upper bound is called so."""
    model = there(asked)
    of_language = model.scores["blimp"]["languages"]["eng"]["methods"]
    headline = of_language["fused"]["paradigms"]
    rest = {"score": 0.1, "n": 7, "interval": [0.0, 0.4]}
    for groups in ({"all": rest}, {"all": rest, "binding": rest}):
        for method in of_language.values():
            method["by_phenomenon"] = groups
        rows = [row for row in rows_of(model) if (row.suite, row.method) == ("blimp", "fused")]
        assert [row.score for row in rows if row.headline] == [headline["score"]]
    assert [row.phenomenon for row in rows if row.paradigm == "all"] == ["all", "unnamed", "binding"]
    model.evaluation["metrics"]["causal"]["bound"] = True
    text = page(asked, [model])
    assert "<h2>causal, bits per byte, upper bound</h2>" in text and "<h2>masked, bits per byte</h2>" in text


def test_each_score_has_its_own_number_of_pairs_and_the_most_precise_is_the_headline(asked):
    """Of a hybrid model whose masked scores are a sample: the causal one. A sample is said where its scores stand."""
    report_results.make(graph_of(), "eng", {"blimp": ["eng"]}, max_masked_items=5)
    model = there(asked)
    methods = model.scores["blimp"]["languages"]["eng"]["methods"]
    text = page(asked, [model])
    shares = {name: f"{100 * found['paradigms']['score']:.1f}" for name, found in methods.items()}
    assert re.search(rf"{shares['causal']} [\d.]+ to [\d.]+ causal, n = 1,800", section(text, "Models and languages"))
    assert "sample" not in section(text, "Models and languages"), "the headline is of all pairs"
    by_method = section(text, "BLiMP")
    assert by_method.count("n = 90 sample of 5 pairs of each paradigm") == 2, "the masked and the fused score"
    assert all(share in by_method for share in shares.values()) and "anaphor agreement 7" in by_method
    remarks = {row["method"]: row["remark"] for row in csv_of([model]) if row["suite"] and row["phenomenon"] == "all"}
    sample = "sample of 5 pairs of each paradigm"
    assert remarks == {"causal": "", "masked": sample, "fused": sample}


def test_a_training_that_two_models_share_costs_once(asked):
    wanted = made(one={"languages": ["eng"]}, two={"languages": ["eng"], "train": {"seed": 1}})
    models, hours = read_all(wanted), 2000 * 32768 / 90000 / 3600

    def costs() -> str:
        return section(page(wanted, models), "Costs of training")

    assert f"in all – – 131.1 M – {2 * hours:.4g}" in costs()
    models[1].folders = models[1].folders | {("train", ""): models[0].folders["train", ""]}
    assert f"in all – – 65.5 M – {hours:.4g}" in costs()
    del models[0].record[0]["energy"]
    energy = re.search(r"one .*?90,000 (\S+) two .*?90,000 (\S+)", costs())
    assert energy and energy[1] == "–" != energy[2], "a part of the energy is no energy"


def test_each_score_stands_beside_its_baseline_and_none_is_shown_without(asked):
    model = there(asked)
    found = model.evaluation["languages"]["eng"]
    found["unigram"]["value"] = 0.5
    text = section(page(asked, [model]), "Models and languages")
    assert text.count("not better than unigram 0.500") == 2 and "chance 50.0" in text
    del found["unigram"]
    text = section(page(asked, [model]), "Models and languages")
    assert "n = 500" not in text and "chance 50.0" in text
    assert {row["method"] for row in csv_of([model]) if not row["suite"]} == {"causal", "masked"}, "the table has all"
    foreign, model = model, there(asked)
    foreign.name = "gpt2"
    text = section(page(asked, [model, foreign]), "Models and languages")
    unigram = model.evaluation["languages"]["eng"]["unigram"]["value"]
    assert text.count(f"unigram {unigram:.3f}") == 4, "that of the other model on the same text"
    model.scores, model.evaluation = {}, None
    assert "Models and languages" not in page(asked, [model]).partition("<header>")[2]


def test_models_stand_in_the_order_of_the_batch(asked):
    """Also where the stage reads it from a file, which has its keys in alphabetical order."""
    names = ["tur", "eng", "deu"]
    for name in ("tur", "deu"):
        report_results.make(graph_of(), name, {})
    write_json("report.json", asked_of(graph_of(), "+".join(names)))
    models = read_all(read_json("report.json"), dict.fromkeys(names, ("stopped (score)", "")))
    assert names == [*dict.fromkeys(row["model"] for row in csv_of(models))]


def test_what_is_not_there_is_not_shown(asked):
    model = there(asked)
    text = page(asked, [model])
    assert text == page(asked, [there(asked)]), "a page is the same each time"
    assert "validation, averaged weights" in text and "BLiMP" in text
    model.record = [{k: v for k, v in line.items() if not k.startswith("ema")} for line in model.record]
    model.scores.clear()
    text = page(asked, [model]).partition("</style>")[2]
    assert "averaged" not in text and "BLiMP" not in text and "Learning in time" not in text
    assert not re.search("<metadata|Matplotlib", text)


def test_equal_names_are_told_apart(asked):
    """Of two texts of one language, and of two suites."""
    wanted = made("english_basics", scored={"blimp": ["eng"], "english_basics": ["eng"]}, both=["eng", "deu"])
    wanted["languages"]["deu"] = "English"
    wanted["suites"]["english_basics"]["title"] = "BLiMP"
    text = page(wanted, read_all(wanted))
    overview = section(text, "Models and languages")
    assert "both English (eng)" in overview and "both English (deu)" in overview
    assert "<h2>BLiMP (blimp)</h2>" in text and "<h2>BLiMP (english_basics)</h2>" in text


HOSTILE = "=cmd|'/c calc'!A1<b>\x1b[2J\u202e$x$"


def test_hostile_names_reach_neither_the_page_nor_the_table(asked):
    """Of a suite, its phenomena and paradigms, a model: no HTML, no formula, no character that a reader obeys."""
    published = {"language": "eng", "model": HOSTILE, "pipeline": HOSTILE, "score": 70.0}
    asked["suites"]["blimp"] |= {"title": HOSTILE, "note": HOSTILE, "baselines": [published]}
    shutil.rmtree("results/score")
    model = there(asked)
    parts = [HOSTILE, "=1+1", "a\r=1+1"]
    made = report_results.scores_of(random.Random(1), HOSTILE, ["eng"], (1, 2, 5), phenomena=parts)
    model.scores["blimp"], model.name, model.note = made, HOSTILE, HOSTILE
    model.record = [{key.replace("causal", HOSTILE): value for key, value in line.items()} for line in model.record]
    asked["models"] = {HOSTILE: asked["models"]["eng"]}
    text = page(asked, [model])
    assert text.count("&lt;b&gt;\\x1b[2J\\u202e$x$") > 10
    assert "\x1b" not in text and "\u202e" not in text and "A1<b>" not in text
    cells = [cell for row in csv_of([model]) for cell in (*row, *row.values())]
    assert [cell for cell in cells if cell.startswith("'=cmd|")] and {"'=1+1", "a\r=1+1"} <= {*cells}
    assert not [cell for cell in cells if cell.startswith(("=", "+", "@", "\t")) or "\x1b" in cell]


def test_the_numbers_of_an_axis_have_all_their_digits():
    def axis(*values: float, factor: float = 1) -> list[str]:
        return re.findall(r">([^<>]+)</text>", Strips(values).axis(factor))

    assert axis(2.5, 2.6) == ["2.50", "2.55", "2.60"] and axis(0.5, 0.61, factor=100) == ["50", "55", "60"]
    assert axis(0, 0.0004) == ["0.0000", "0.0001", "0.0002", "0.0003", "0.0004"] and axis(0.7), "one value has room"


def test_only_runs_of_the_same_languages_and_tokenizer_have_equal_axes(folder, monkeypatch):
    other = {"languages": ["eng"], "tokenizer": {"vocab_size": 300}}
    wanted, drawn = made(scored={}, a=["eng"], b=["eng"], c=["deu"], d=other), {}
    models = read_all(wanted, dict.fromkeys("abcd", ("stopped (score)", "")))
    for i, model in enumerate(models):
        model.record = model.record[i:]
    monkeypatch.setattr(figures, "training_picture", lambda name, kind, mine, shared: drawn.update({name: len(shared)}))
    training(models)
    of_run = {model.name: len(losses(model.record)) for model in models}
    assert len({*of_run.values()}) == 4
    assert drawn == {"a": of_run["a"] + of_run["b"], "b": of_run["a"] + of_run["b"], "c": of_run["c"], "d": of_run["d"]}
    curve = {"kind": "causal", "curve": "last"}
    one, other = (pd.DataFrame(curve | {"tokens": [1, n], "loss": [n / 2, 2.0]}) for n in (20, 60))
    plot_losses(axes := Figure().subplots(), "causal", one, pd.concat([one, other]))
    assert axes.get_xlim() == (0, 60) and axes.get_ylim()[1] > 30


def test_what_is_not_complete_is_said_once(asked):
    """A finished model is complete whatever its note says. 24 damaged results of 45 models would be too many lines."""
    (model,) = read_all(asked, {"eng": ("converted", "a note")})
    assert "Not complete" not in page(asked, [model])
    model.problems = [f"results/tune/rte_eng-{seed}/scores.json: is damaged" for seed in range(24)]
    text = page(asked, [model])
    assert text.count("is damaged") == 5 and "and 19 more results like these" in text


def test_a_result_that_is_damaged_or_missing_is_one_line(asked):
    (path,) = Path("results/train").glob("eng-*/metrics.jsonl")
    path.write_text("{}")
    with pytest.raises(UserError, match=r"results/train/eng-\w+/metrics.jsonl: "):
        read_all(asked)
    shutil.rmtree("results/score")
    with pytest.raises(UserError, match=r"eng: there is no result of score blimp$"):
        read_all(asked)


def test_chance_and_the_unit_are_those_of_the_suite(asked):
    """Of five options, and of a correlation."""
    model = there(asked)
    model.scores["blimp"] |= {"kind": "choices"}
    model.scores["blimp"]["languages"]["eng"]["pairs"]["chance"] = 0.2
    rows = [row for row in csv_of([model]) if row["suite"] == "blimp"]
    assert {(row["simple"], row["items"]) for row in rows} == {("0.2", "lab/blimp at 555555555555")}
    model.scores["blimp"]["measure"] = "partial R²"
    for method in model.scores["blimp"]["languages"]["eng"]["methods"].values():
        for of in ("pairs", "paradigms"):
            method[of] = {"score": -0.25, "n": 200, "interval": [-0.4, -0.1]}
    text = section(page(asked, [model]), "BLiMP")
    assert "Score: partial R²." in text and "-25.0 -40.0 to -10.0" in text and "partial R² x 100" in text


def test_a_model_that_has_learnt_nothing_is_called_so(asked):
    """Its scores after fine-tuning stand with their seeds, protocol and metric. A suite may have the task's name."""
    entry = {"score": 0.532, "n": 100, "interval": [0.43, 0.63], "majority": {"class": "no", "share": 0.532}}
    entry |= {"rows": {"test": 100}, "test_rows_in_train": 0, "test_rows_without_text": 0}
    entry |= {"most_frequent": 0.532, "steps": 9}
    model = there(asked)
    model.tuned["blimp.1"] = {"task": "blimp", "protocol": "sound", "metric": "accuracy", "languages": {"eng": entry}}
    asked["tasks"]["blimp"] = {"title": "RTE", "protocol": "sound", "metric": "accuracy"}
    text = section(page(asked, [model]), "RTE")
    assert "RTE" not in section(page(asked, [model]), "BLiMP")
    assert "accuracy, sound" in text and "majority class &#34;no&#34;, 53.2 %" in text and "1 seed" in text
    remarks = [row["remark"] for row in csv_of([model]) if row["method"] == "fine-tuned"]
    assert remarks == ['1 seed; majority class "no", 53.2 %']
