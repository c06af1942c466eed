"""What a report reads from results that are odd: without phenomena, of another model."""

import csv
import hashlib
import io
import random
import re
import shutil
from pathlib import Path

import pytest
import yaml

from babelmill.config import loading
from babelmill.core.files import UserError, read_json, write_json
from babelmill.reporting.asked import asked_of, write_settings
from babelmill.reporting.figures import WIDTH, log_ticks, overlaid, tick_labels, training_pictures
from babelmill.reporting.page import page
from babelmill.reporting.results import ReportedModel, read_all
from babelmill.reporting.table import rows_of, write_csv
from helpers.results import report_results


@pytest.fixture
def asked(folder):
    """The results of a model, in this folder."""
    values = {"preset": "tiny", "evaluation": {"suites": ["blimp"]}}
    (folder / "config.yaml").write_text(yaml.safe_dump(values))
    found = asked_of(loading.load(["config.yaml"]), "eng")
    report_results.make(folder, "eng", ["eng"], {"blimp": ["eng"]})
    return found


def there(asked) -> ReportedModel:
    (model,) = read_all(asked, {"eng": ("stopped (train)", "")})
    return model


def test_the_headline_is_that_of_the_scores_where_pairs_have_no_phenomenon(asked):
    model = there(asked)
    of_language = model.scores["blimp"]["languages"]["eng"]["methods"]
    headline = of_language["fused"]["paradigms"]
    rest = {"score": 0.1, "n": 7, "interval": [0.0, 0.4]}
    for groups in ({"all": rest}, {"all": rest, "binding": rest}):
        for method in of_language.values():
            method["by_phenomenon"] = groups
        rows = [row for row in rows_of(model) if (row.suite, row.method) == ("blimp", "fused")]
        assert [row.score for row in rows if row.is_whole] == [headline["score"]]
    assert [row.phenomenon for row in rows if row.paradigm == "all"] == ["all", "unnamed", "binding"]


def test_a_sample_is_said_wherever_its_scores_stand(asked):
    model = there(asked)
    assert "sample" not in page(asked, [model])
    model.scores["blimp"]["masked_pairs"] = 50
    assert "sample" not in page(asked, [model]), "all pairs were scored: the paradigms are small"
    model.scores["blimp"]["languages"]["eng"]["pairs"]["pairs"] = 10_000
    overview, _, rest = page(asked, [model]).partition('id="suites"')
    assert "BLiMP: scores of a sample of at most 50 pairs of each paradigm" in overview
    assert "fused scores (fused: the causal and the masked score of a sentence, added), of a sample of at most" in rest


def test_each_score_has_its_own_number_of_pairs_and_the_most_precise_is_the_headline(tmp_path, monkeypatch, asked):
    """Of a hybrid model whose masked scores are a sample: the causal one."""
    shutil.rmtree("results")
    report_results.make(tmp_path, "eng", ["eng"], {"blimp": ["eng"]}, masked_pairs=5)
    model = there(asked)
    methods = model.scores["blimp"]["languages"]["eng"]["methods"]
    text = page(asked, [model])
    overview = text[text.index('id="overview"') : text.index('id="texts"')]
    shares = {name: f"{100 * found['paradigms']['score']:.1f}" for name, found in methods.items()}
    assert f'<td class="n">{shares["causal"]}<small>' in overview and "<small>causal, n = 1,800</small>" in overview
    assert "sample" not in text, "the headline is of all pairs"
    assert text.count("n = 90<") == 2, "the masked and the fused score"
    assert all(f'<td class="n">{share}<small>' in text for share in shares.values())
    assert '<th scope="row">anaphor agreement 1<small> n = 100</small></th>' in text, "a paradigm"


def test_a_finished_model_is_complete_whatever_its_note_says(asked):
    """Such as that of a model of labels: how many tables are predicted."""
    (model,) = read_all(asked, {"eng": ("converted", "1/2 tables predicted")})
    assert "Not complete" not in page(asked, [model])
    assert "Not complete" in page(asked, [there(asked)])


def test_an_upper_bound_is_called_so_wherever_it_stands(asked):
    model = there(asked)
    assert model.evaluation and "bound" not in page(asked, [model])
    model.evaluation["metrics"]["causal"]["bound"] = True
    text = page(asked, [model])
    assert text.count("<small>bits per byte, upper bound</small>") == 2, "in the overview and above the strips"
    assert "compare it only with other bounds" in text
    units = {row.method: row.unit for row in rows_of(model) if not row.suite}
    assert units == {"causal": "bits per byte, upper bound", "masked": "bits per byte"}


def facts(text: str) -> dict[str, str]:
    """The lines at the top of a page, without marks."""
    found = re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", text.partition("<nav")[0])
    return {name: re.sub(r"\s+", " ", value) for name, value in found}


ON_CPU = {"processors": "AMD EPYC, 2 threads", "code": "babelmill 1.0.0 at 0123456789ab"}
ON_GPU = {"processors": "4 x NVIDIA H100", "code": "babelmill 1.0.0 at ba9876543210, edited"}


def test_machine_commit_and_cost_stand_at_the_top(tmp_path, asked):
    """A training counts once, also if its model has two names here, or the other one is in no report."""
    for name, runs in {"one": [ON_CPU], "two": [ON_CPU, ON_GPU], "three": [ON_CPU]}.items():
        report_results.make(tmp_path, name, ["eng"], {"blimp": ["eng"]}, trained={"ran_with": runs})
    taken = {"ran_with": [ON_CPU], "taken_from": "results/models/one"}
    for name, key in {"again": "of one", "alone": "of another"}.items():
        report_results.make(tmp_path, name, ["eng"], {"blimp": ["eng"]}, trained=taken)
        about = read_json(f"results/models/{name}/manifest.json")
        write_json(tmp_path / f"results/models/{name}/manifest.json", about | {"key": key})
    about = read_json("results/models/one/manifest.json")
    write_json(tmp_path / "results/models/one/manifest.json", about | {"key": "of one"})

    def top(*names: str) -> dict[str, str]:
        wanted = asked | {"models": dict.fromkeys(names, asked["models"]["eng"])}
        return facts(page(wanted, read_all(wanted, dict.fromkeys(names, ("stopped (train)", "")))))

    hours = 2000 * 32768 / 90000 / 3600
    cost = f"{hours:.2f} hours of training, 0.00 kWh, 65.5M tokens"
    assert top("one") == {"Trained on": ON_CPU["processors"], "Trained by": ON_CPU["code"], "Cost in all": cost}
    found = top("one", "two", "three")
    assert found["Trained on"] == "AMD EPYC, 2 threads (2 models); AMD EPYC, 2 threads, then 4 x NVIDIA H100 (1 model)"
    assert found["Trained by"].endswith("1.0.0 at 0123456789ab, then babelmill 1.0.0 at ba9876543210, edited (1 model)")
    assert found["Cost in all"].startswith(f"{3 * hours:.2f} hours")
    once = " (1 training: models that were made alike count once)"
    assert top("again", "one")["Cost in all"] == cost + once
    assert top("alone")["Cost in all"] == cost


def test_models_stand_in_the_order_of_the_batch(tmp_path, asked):
    """Also where the stage reads it from a file, which has its keys in alphabetical order."""
    names = ["tur", "eng", "deu"]
    configuration = loading.load(["config.yaml"])
    for name in ("tur", "deu"):
        report_results.make(tmp_path, name, [name], {})
    path = write_settings(configuration, "+".join(names))
    states = dict.fromkeys(names, ("stopped (score)", ""))
    models = read_all(read_json(path), states)
    assert [model.name for model in models] == names
    table = io.StringIO()
    write_csv(models, table)
    assert [*dict.fromkeys(row["model"] for row in csv.DictReader(io.StringIO(table.getvalue())))] == names
    assert "order" not in read_json(write_settings(configuration, "deu+eng")), "settings files stay as they were"


def test_the_mean_of_a_recipe_is_over_runs_at_the_same_moment():
    """A run that was validated at other steps has no loss there."""

    def run(*points: tuple[float, float]) -> dict:
        return {"tokens": 400, "kinds": {"causal": {"raw": [*points], "averaged": []}}}

    seeds = [run((100, 8.0), (200, 6.0), (400, 4.0)), run((200, 5.0), (400, 3.0))]
    lines = re.findall(r'polyline points="([^"]*)"', overlaid([seeds], WIDTH))
    assert [len(line.split()) for line in lines] == [2]
    alike = re.findall(r'polyline points="([^"]*)"', overlaid([[run((200, 5.5), (400, 3.5))]], WIDTH))
    assert [line.split()[0].split(",")[0] for line in lines] == [line.split()[0].split(",")[0] for line in alike]
    assert overlaid([[run((100, 8.0)), run((200, 5.0))]]) == "", "no moment in common"


def test_what_is_not_there_is_not_explained(asked):
    model = there(asked)
    text = page(asked, [model])
    assert "Energy" in text and "validation, averaged weights" in text and "unigram" in text
    for line in model.record:
        line.pop("energy", None)
    model.record = [{k: v for k, v in line.items() if not k.startswith("ema")} for line in model.record]
    assert model.evaluation
    model.evaluation.pop("unigram")
    model.evaluation["languages"]["eng"].pop("unigram")
    model.scores.clear()
    text = page(asked, [model]).partition("</style>")[2]
    for word in ("nergy", "averaged", "unigram", "not measured", "chance", "Suites"):
        assert word not in text
    assert "covered, no score yet" in text


HOSTILE = "=cmd|'/c calc'!A1<b>\x1b[2J\u202e"


def test_hostile_names_reach_neither_the_page_nor_the_table(asked):
    """Of a suite, its phenomena and paradigms, a model: no HTML, no formula, no character that a reader obeys."""
    asked["suites"]["blimp"]["title"] = HOSTILE
    asked["suites"]["blimp"]["baselines"] = [
        {"language": "eng", "model": HOSTILE, "pipeline": HOSTILE, "score": 70.0, "note": HOSTILE}
    ]
    shutil.rmtree("results/scores")
    model = there(asked)
    made = report_results.scores_of(random.Random(1), HOSTILE, ["eng"], (1, 2, 5), phenomena=[HOSTILE, "=1+1"])
    model.scores["blimp"], model.name, model.note = made, HOSTILE, HOSTILE
    asked["models"] = {HOSTILE: asked["models"]["eng"]}
    text = page(asked, [model])
    assert "&lt;b&gt;\\x1b[2J\\u202e" in text
    assert "<b>\x1b" not in text and "\x1b" not in text and "\u202e" not in text and "A1<b>" not in text
    file = io.StringIO()
    write_csv([model], file)
    cells = [cell for row in csv.reader(io.StringIO(file.getvalue())) for cell in row]
    assert [cell for cell in cells if cell.startswith("'=cmd|")] and "'=1+1" in cells
    assert not [cell for cell in cells if cell.startswith(("=", "+", "@", "\t"))] and "\x1b" not in file.getvalue()


def test_settings_tell_recipes_apart_and_seeds_of_one_do_not(folder):
    names = ["a1", "a2", "b1"]
    models = {name: {"languages": ["eng"]} for name in names}
    (folder / "config.yaml").write_text(yaml.safe_dump({"preset": "tiny", "models": models}))
    asked = asked_of(loading.load(["config.yaml"]), "+".join(names))
    for seed, name in enumerate(names):
        rate = 0.002 if name == "b1" else 0.01
        report_results.make(folder, name, ["eng"], {}, seed=seed, learning_rate=rate)
    file = io.StringIO()
    write_csv(read_all(asked), file)
    rows = list(csv.DictReader(io.StringIO(file.getvalue())))
    found = {row["model"]: (row["seed"], row["settings"]) for row in rows if row["method"] == "causal"}
    one, other = (f"train.learning_rate={rate}" for rate in (0.01, 0.002))
    assert found == {"a1": ("0", one), "a2": ("1", one), "b1": ("2", other)}


def test_ticks_show_all_their_digits():
    assert tick_labels([0, 0.0002, 0.0004]) == ["0", "0.0002", "0.0004"]
    assert tick_labels([2.5, 2.55, 2.6]) == ["2.50", "2.55", "2.60"] and tick_labels([1, 1.5, 2]) == [
        "1.0",
        "1.5",
        "2.0",
    ]
    assert tick_labels([0, 1024]) == ["0", "1.024k"] and tick_labels([50, 60]) == ["50", "60"]
    assert log_ticks(5.3, 7.7, 7) == [5.5, 6, 6.5, 7, 7.5], "one number is no axis"
    assert log_ticks(2.6, 10.9, 7) == [3, 4, 5, 7, 10] and log_ticks(2.5, 2.9, 7) == [2.6, 2.8]


def test_curves_of_a_batch_share_their_axes_and_show_the_first_steps():
    """A run of 60 M tokens beside one of 20 M, whose first loss is higher than all others."""

    def run(tokens: float, first: float) -> dict:
        loss = [(tokens * i / 10, first - 0.3 * i) for i in range(11)]
        curves = {"training": loss, "raw": loss[5:], "averaged": []}
        rates = {"learning_rate": [(0, 0.01), (tokens, 0.001)], "sequence_length": [(0, 128), (tokens, 128)]}
        return {"steps": 100, "tokens": tokens, **rates, "kinds": {"causal": curves}}

    runs = [run(60e6, 8.0), run(20e6, 10.0)]
    pictures = training_pictures([("x", curves) for curves in runs])
    points = [re.findall(r'class="training"><polyline points="([^"]*)"', picture)[0] for picture in pictures]
    first, last = ([[float(n) for n in p.split(",")] for p in (line.split()[0], line.split()[-1])] for line in points)
    assert first[0][0] == last[0][0] == 48 and last[1][0] == pytest.approx(48 + (first[1][0] - 48) / 3, abs=0.1)
    assert last[0][1] < first[0][1], "its first loss is drawn, above the other's"


def test_the_mean_of_seeds_is_over_equal_places():
    """The first seed was validated more often than the other."""

    def run(places: list[int]) -> dict:
        return {"tokens": 6.0, "kinds": {"causal": {"raw": [(at, 9.0 - at) for at in places], "averaged": []}}}

    plain = overlaid([[run([3, 6]), run([3, 6])]])
    assert 'class="c0"' in plain and overlaid([[run([2, 3, 4, 6]), run([3, 6])]]) == plain


def test_scores_of_another_model_are_none_of_this_one(asked):
    about = read_json("results/exports/eng/manifest.json")
    write_json("results/exports/eng/manifest.json", about | {"figures": {"exported": "again"}})
    model = there(asked)
    assert model.evaluation is None and not model.scores and model.record
    assert "results/scores/eng/blimp: was not made from the present results/exports/eng" in model.problems[1]
    with pytest.raises(UserError, match="was not made from the present"):
        read_all(asked)
    shutil.rmtree("results/exports")
    assert there(asked).scores, "where nothing says otherwise"


def test_many_results_of_another_model_are_counted(asked):
    """24 fine-tunings of each of 45 models would be a page of equal lines."""
    model = there(asked)
    model.problems = [f"results/tuned/eng/rte/{seed}: was not made from the present model" for seed in range(24)]
    text = page(asked, [model])
    assert text.count("was not made from") == 5 and "and 19 more results like these" in text
    model.problems = model.problems[:5]
    assert "more results" not in page(asked, [model])


def test_a_result_that_cannot_be_read_is_one_line_also_in_a_complete_report(asked, monkeypatch):
    """A run's record that lacks what its readers need: an error that names the folder, not a KeyError."""
    monkeypatch.setattr("babelmill.reporting.results.read_record", lambda path: {}["step"])
    with pytest.raises(UserError, match=r"results/models/eng: cannot be read \(KeyError: 'step'\)"):
        read_all(asked)


def test_chance_and_the_unit_are_those_of_the_suite(asked):
    """Of five options, of pairs, and of a correlation."""
    model = there(asked)
    assert "Suites of minimal pairs" in page(asked, [model]) and "chance, 50 %" in page(asked, [model])
    model.scores["blimp"] |= {"kind": "choices"}
    model.scores["blimp"]["languages"]["eng"]["pairs"]["chance"] = 0.2
    text = page(asked, [model])
    assert "<h2>Suites</h2>" in text and "The bar is chance, 20 %." in text and "percent of items" in text
    assert 'class="n">1,800 items</td>' in text and "of minimal pairs" not in text
    model.scores["blimp"]["measure"] = "Spearman"
    for method in model.scores["blimp"]["languages"]["eng"]["methods"].values():
        for of in ("pairs", "paradigms"):
            method[of] = {"score": -0.25, "n": 200, "interval": [-0.4, -0.1]}
    text = page(asked, [model])
    assert "Score: Spearman x 100, fused scores" in text and "The bar is 0." in text
    assert '<td class="n">-25.0<small>-40.0 to -10.0</small>' in text and "BLiMP<small>Spearman x 100</small>" in text


def test_a_text_that_was_looked_at_has_a_line(asked):
    model = there(asked)
    assert 'id="looked-at"' not in page(asked, [model])
    figures = {
        "of": "source", "documents": 200, "words": 5000, "judged": 100, "scripts": {"Latn": 150, "<b>": 50},
        "languages": {"en": {"documents": 90}, "sco": {"documents": 10}}, "mojibake": {"documents": 1},
        "lengths": {"characters": {"50%": 77}}, "near_copies": {"documents": 20}, "odd_characters": {"any": {"documents": 4}},
        "lines": {"in_documents": 1000, "in_several_documents": 125},
    }  # fmt: skip
    Path("reports/corpora").mkdir(parents=True)
    write_json("reports/corpora/eng.json", figures)
    section = re.search(r'<section id="looked-at">.*?</section>', page(asked, [model]), re.DOTALL)
    cells = re.findall(r"<td[^>]*>([^<]*)(?:<small>([^<]*))?", section[0])
    assert [first for first, _ in cells] == ["source", "200", "5k", "77", "75.0", "90.0", "10.0", "12.5", "2.0", "1.0"]
    assert [second for _, second in cells if second] == ["Latn", "en"]
    made = Path("results/corpora/eng/manifest.json")
    made.parent.mkdir(parents=True, exist_ok=True)
    for content, of in (("{}", "corpus"), ("{ }", "an earlier corpus")):
        made.write_text(content)
        write_json(
            "reports/corpora/eng.json", figures | {"of": "corpus", "manifest": hashlib.sha256(b"{}").hexdigest()}
        )
        assert f"<td>{of}</td>" in page(asked, [model])
    write_json("reports/corpora/eng.json", [1])
    assert 'id="looked-at"' not in page(asked, [model]), "a damaged file is no number"
