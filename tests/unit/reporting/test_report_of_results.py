"""What a report shows of results, also of those that are odd: without phenomena, hostile, of another model."""

import csv
import io
import random
import re
import shutil
from pathlib import Path

import pytest
import yaml

from babelmill.config import loading
from babelmill.core.files import UserError, read_json, write_json
from babelmill.graph import Graph
from babelmill.reporting.asked import asked_of
from babelmill.reporting.figures import Strips, overlaid, training_picture
from babelmill.reporting.page import page
from babelmill.reporting.results import ModelResults, read_all
from babelmill.reporting.table import frame_of, rows_of, score_table, write_csv
from helpers.results import report_results


@pytest.fixture
def asked(folder):
    """The results of a model, in this folder."""
    graph = graph_of()
    report_results.make(graph, "eng", {"blimp": ["eng"]})
    return asked_of(graph, "eng")


def graph_of(*suites: str, **models) -> Graph:
    """Return the graph of a configuration in this folder; `models`: {name: its languages, or its entry}."""
    entries = {name: entry if isinstance(entry, dict) else {"languages": entry} for name, entry in models.items()}
    values = {"preset": "tiny", "evaluation": {"suites": ["blimp", *suites]}, "models": entries}
    Path("config.yaml").write_text(yaml.safe_dump(values))
    return Graph(loading.load(["config.yaml"]))


def there(asked) -> ModelResults:
    (model,) = read_all(asked, {"eng": ("stopped (train)", "")})
    return model


def csv_of(models) -> list[dict[str, str]]:
    file = io.StringIO()
    write_csv(score_table(models), file)
    return list(csv.DictReader(io.StringIO(file.getvalue())))


def section(text: str, title: str) -> str:
    """A section of a page, without marks."""
    found = re.search(rf"<h2>{title}</h2>(.*?)</section>", text, re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", found[1])) if found else ""


def test_the_headline_is_that_of_the_scores_where_pairs_have_no_phenomenon(asked):
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


def test_each_score_has_its_own_number_of_pairs_and_the_most_precise_is_the_headline(tmp_path, asked):
    """Of a hybrid model whose masked scores are a sample: the causal one. A sample is said where its scores stand."""
    report_results.make(graph_of(), "eng", {"blimp": ["eng"]}, masked_pairs=5)
    model = there(asked)
    methods = model.scores["blimp"]["languages"]["eng"]["methods"]
    text = page(asked, [model])
    shares = {name: f"{100 * found['paradigms']['score']:.1f}" for name, found in methods.items()}
    assert re.search(rf"{shares['causal']} [\d.]+ to [\d.]+ causal, n = 1,800", section(text, "Models and languages"))
    assert "sample" not in section(text, "Models and languages"), "the headline is of all pairs"
    by_method = section(text, "BLiMP")
    assert by_method.count("n = 90 sample of 5 pairs of each paradigm") == 2, "the masked and the fused score"
    assert all(share in by_method for share in shares.values()) and "anaphor agreement 1" in by_method
    remarks = {row["method"]: row["remark"] for row in csv_of([model]) if row["suite"] and row["phenomenon"] == "all"}
    sample = "sample of 5 pairs of each paradigm"
    assert remarks == {"causal": "", "masked": sample, "fused": sample}


def test_a_finished_model_is_complete_whatever_its_note_says(asked):
    """Such as that of a model of labels: how many tables are predicted."""
    (model,) = read_all(asked, {"eng": ("converted", "1/2 tables predicted")})
    assert "Not complete" not in page(asked, [model])
    assert "Not complete" in page(asked, [there(asked)])


def test_an_upper_bound_is_called_so_wherever_it_stands(asked):
    model = there(asked)
    model.evaluation["metrics"]["causal"]["bound"] = True
    text = page(asked, [model])
    assert "<h2>causal, bits per byte, upper bound</h2>" in text and "<h2>masked, bits per byte</h2>" in text
    assert "causal bits per byte, upper bound" in section(text, "Models and languages")
    units = {row["method"]: row["unit"] for row in csv_of([model]) if not row["suite"]}
    assert units == {"causal": "bits per byte, upper bound", "masked": "bits per byte"}


def test_machine_code_settings_and_cost_are_said(tmp_path, asked):
    """Settings that differ stand beside the models that have them; a training that two models share counts once."""
    on_cpu = {"processors": "AMD EPYC, 2 threads", "code": "babelmill 1.0.0 at 0123456789ab"}
    on_gpu = {"processors": "4 x NVIDIA H100", "code": "babelmill 1.0.0 at ba9876543210, edited"}
    runs = {"one": [on_cpu], "two": [on_cpu, on_gpu], "three": [on_cpu]}
    trainings = [{"seed": 1}, {"learning_rate": 0.02}, {"seed": 3}]
    entries = [{"languages": ["eng"], "train": {"learning_rate": 0.01} | train} for train in trainings]
    graph = graph_of(**dict(zip(runs, entries, strict=True)))
    for name in runs:
        report_results.make(graph, name, {"blimp": ["eng"]}, trained={"ran_with": runs[name]})
    wanted = asked_of(graph, "one+two+three")
    models = read_all(wanted)
    text = page(wanted, models)
    made = section(text, "Made with")
    assert "trained on AMD EPYC, 2 threads, then 4 x NVIDIA H100 two" in made
    assert "trained by babelmill 1.0.0 at 0123456789ab one, three" in made
    assert "setting train.learning_rate 0.02 two" in made and "setting train.learning_rate 0.01 one, three" in made
    assert "text, English lab/texts-eng at 777777777777 one, two, three" in made
    hours = 2000 * 32768 / 90000 / 3600
    assert f"in all – – 196.6 M – {3 * hours:.4g}" in section(text, "Costs of training")
    models[2].folders = models[2].folders | {("train", ""): models[0].folders["train", ""]}
    assert f"in all 2 trainings – – 131.1 M – {2 * hours:.4g}" in section(page(wanted, models), "Costs of training")
    for model in (models[0], models[2]):
        del model.record[0]["energy"]
    energy = re.findall(
        r"(?:one|two|in all) .*?90,000 (\S+)|in all.*? (\S+) $", section(page(wanted, models), "Costs of training")
    )
    assert energy[0][0] == "–" and energy[1][0] != "–" and energy[-1][1] == "–", "a part of the energy is no energy"


def test_models_stand_in_the_order_of_the_batch(tmp_path, asked):
    """Also where the stage reads it from a file, which has its keys in alphabetical order."""
    names = ["tur", "eng", "deu"]
    for name in ("tur", "deu"):
        report_results.make(graph_of(), name, {})
    write_json("report.json", asked_of(graph_of(), "+".join(names)))
    models = read_all(read_json("report.json"), dict.fromkeys(names, ("stopped (score)", "")))
    assert [model.name for model in models] == names == [*dict.fromkeys(row["model"] for row in csv_of(models))]


def test_what_is_not_there_is_not_shown(asked):
    model = there(asked)
    text = page(asked, [model])
    assert "validation, averaged weights" in text and "BLiMP" in text
    model.record = [{k: v for k, v in line.items() if not k.startswith("ema")} for line in model.record]
    model.scores.clear()
    text = page(asked, [model]).partition("</style>")[2]
    assert "averaged" not in text and "BLiMP" not in text and "Learning in time" not in text
    asked["suites"]["blimp"]["covers"] = []
    model = there(asked)
    model.scores["blimp"]["languages"]["eng"]["methods"] = {}
    assert csv_of([model])


def test_equal_names_are_told_apart(tmp_path, asked):
    """Of two texts of one language, and of two suites."""
    graph = graph_of("english_basics", both=["eng", "deu"])
    report_results.make(graph, "both", {"blimp": ["eng"], "english_basics": ["eng"]})
    wanted = asked_of(graph, "both")
    wanted["languages"]["deu"] = "English"
    wanted["suites"]["english_basics"]["title"] = "BLiMP"
    text = page(wanted, read_all(wanted))
    assert (
        "both English (eng)" in (overview := section(text, "Models and languages")) and "both English (deu)" in overview
    )
    assert "<h2>BLiMP (blimp)</h2>" in text and "<h2>BLiMP (english_basics)</h2>" in text


HOSTILE = "=cmd|'/c calc'!A1<b>\x1b[2J\u202e$x$"


def test_hostile_names_reach_neither_the_page_nor_the_table(asked):
    """Of a suite, its phenomena and paradigms, a model: no HTML, no formula, no character that a reader obeys."""
    asked["suites"]["blimp"]["title"] = HOSTILE
    asked["suites"]["blimp"]["note"] = HOSTILE
    asked["suites"]["blimp"]["baselines"] = [{"language": "eng", "model": HOSTILE, "pipeline": HOSTILE, "score": 70.0}]
    shutil.rmtree("results/score")
    model = there(asked)
    made = report_results.scores_of(
        random.Random(1), HOSTILE, ["eng"], (1, 2, 5), phenomena=[HOSTILE, "=1+1", "a\r=1+1"]
    )
    model.scores["blimp"], model.name, model.note = made, HOSTILE, HOSTILE
    model.record = [{key.replace("causal", HOSTILE): value for key, value in line.items()} for line in model.record]
    asked["models"] = {HOSTILE: asked["models"]["eng"]}
    text = page(asked, [model])
    assert text.count("&lt;b&gt;\\x1b[2J\\u202e$x$") > 10
    assert "\x1b" not in text and "\u202e" not in text and "A1<b>" not in text
    file = io.StringIO()
    write_csv(score_table([model]), file)
    cells = [cell for row in csv.reader(io.StringIO(file.getvalue())) for cell in row]
    assert [cell for cell in cells if cell.startswith("'=cmd|")] and {"'=1+1", "a\r=1+1"} <= {*cells}
    assert not [cell for cell in cells if cell.startswith(("=", "+", "@", "\t"))] and "\x1b" not in file.getvalue()


def test_settings_tell_recipes_apart_and_seeds_of_one_do_not(folder):
    rates = {"a1": 0.01, "a2": 0.01, "b1": 0.002}
    trainings = [{"seed": seed, "learning_rate": rate} for seed, rate in enumerate(rates.values())]
    graph = graph_of(
        **{name: {"languages": ["eng"], "train": train} for name, train in zip(rates, trainings, strict=True)}
    )
    for name in rates:
        report_results.make(graph, name, {"blimp": ["eng"]})
    rows = csv_of(read_all(asked_of(graph, "+".join(rates))))
    found = {row["model"]: (row["seed"], row["settings"]) for row in rows if row["method"] == "causal"}
    one, other = (f"train.learning_rate={rate}" for rate in (0.01, 0.002))
    assert found == {"a1": ("0", one), "a2": ("1", one), "b1": ("2", other)}


def test_the_numbers_of_an_axis_have_all_their_digits():
    def axis(*values: float, factor: float = 1) -> list[str]:
        return re.findall(r">([^<>]+)</text>", Strips(values).axis(factor))

    assert axis(2.5, 2.6) == ["2.50", "2.55", "2.60"] and axis(0.5, 0.61, factor=100) == ["50", "55", "60"]
    assert axis(0, 0.0004) == ["0.0000", "0.0001", "0.0002", "0.0003", "0.0004"] and axis(0.7), "one value has room"


def losses(*runs: tuple[str, str, list[tuple[float, float]]]):
    """Validation losses of runs: name, recipe, [(tokens, loss)]."""
    rows = [(name, recipe, "causal", "raw", *point) for name, recipe, points in runs for point in points]
    return frame_of(rows, ["model", "recipe", "kind", "curve", "tokens", "loss"]).astype(
        {"tokens": float, "loss": float}
    )


def lines_of(picture: str, colour: int = 0) -> list[list[list[float]]]:
    """The points of the lines of a colour in a picture."""
    found = re.findall(rf'<path d="M ([^"]*?)"[^>]*style="fill: none; stroke: var\(--c{colour}\)', picture)
    return [[[float(n) for n in point.split()] for point in line.split(" L ")] for line in found]


def test_the_mean_of_a_recipe_is_over_runs_at_the_same_moment():
    """A run that was validated at other steps has no loss there."""
    seeds = losses(("a", "x", [(100, 8.0), (200, 6.0), (400, 4.0)]), ("b", "x", [(200, 5.0), (400, 3.0)]))
    alike = losses(("a", "x", [(200, 5.5), (400, 3.5)]))
    narrow, wide = ([len(line) for line in lines_of(overlaid(each))] for each in (seeds, alike))
    assert narrow == wide and min(wide) == 2
    assert overlaid(losses(("a", "x", [(100, 8.0)]), ("b", "x", [(200, 5.0)]))) is None, "no moment in common"


def test_curves_of_a_batch_share_their_axes_and_show_the_first_steps():
    """A run of 60 M tokens beside one of 20 M, whose first loss is higher than all others."""
    runs = [
        (name, "x", [(tokens * i / 10, first - 0.3 * i) for i in range(11)])
        for name, tokens, first in (("a", 60e6, 8.0), ("b", 20e6, 10.0))
    ]
    long, short = (max(lines_of(training_picture(name, losses(*runs)), 1), key=len) for name in "ab")
    assert long[0][0] == short[0][0] and (short[-1][0] - short[0][0]) * 3 == pytest.approx(
        long[-1][0] - long[0][0], rel=0.01
    )
    assert short[0][1] < long[0][1], "its first loss is drawn, above the other's"


def test_a_page_is_the_same_each_time_and_fetches_nothing(asked):
    text = page(asked, [there(asked)])
    assert text == page(asked, [there(asked)])
    assert "<text" in text and not re.search(
        r"<script|https?://|@import|url\((?!#)| on\w+=\"|<metadata|Matplotlib", text
    )


def test_many_damaged_results_are_counted(asked):
    """24 fine-tunings of each of 45 models would be a page of equal lines."""
    model = there(asked)
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
    assert {row["simple"] for row in rows} == {"0.2"} and {row["items"] for row in rows} == {
        "lab/blimp at 555555555555"
    }
    model.scores["blimp"]["measure"] = "Spearman"
    for method in model.scores["blimp"]["languages"]["eng"]["methods"].values():
        for of in ("pairs", "paradigms"):
            method[of] = {"score": -0.25, "n": 200, "interval": [-0.4, -0.1]}
    text = section(page(asked, [model]), "BLiMP")
    assert "Score: Spearman." in text and "-25.0 -40.0 to -10.0" in text and "Spearman x 100" in text


def test_a_model_that_has_learnt_nothing_is_called_so(asked):
    """Its scores after fine-tuning stand with their seeds, protocol and metric. A suite may have the task's name."""
    entry = {"score": 0.532, "n": 100, "interval": [0.43, 0.63], "majority": {"class": "no", "share": 0.532}}
    entry |= {"test_rows_in_train": 0, "rows": {"test": 100}}
    model = there(asked)
    model.tuned["blimp.1"] = {"task": "blimp", "protocol": "sound", "metric": "accuracy", "languages": {"eng": entry}}
    asked["tasks"]["blimp"] = {"title": "RTE", "protocol": "sound", "metric": "accuracy"}
    text = section(page(asked, [model]), "RTE")
    assert "RTE" not in section(page(asked, [model]), "BLiMP")
    assert "accuracy, sound" in text and "majority class &#34;no&#34;, 53.2 %" in text and "1 seed" in text
    assert [row["remark"] for row in csv_of([model]) if row["method"] == "fine-tuned"] == [
        '1 seed; majority class "no", 53.2 %'
    ]
