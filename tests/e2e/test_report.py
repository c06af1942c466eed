"""The report of a group, on made results, in a real browser."""

import csv
import re

import pytest
import yaml

from babelmill import cli
from babelmill.config import loading
from babelmill.config.snapshots import BABYLM
from babelmill.core.files import read_json, write_json
from babelmill.graph import Graph
from babelmill.reporting.asked import asked_of, asked_of_experiment
from helpers.browser import Browser
from helpers.programs.prepared import run_module
from helpers.results import report_results

pytestmark = pytest.mark.slow

SUITES = ("blimp", "multiblimp", "turblimp")
CROWDED = """[...document.querySelectorAll('svg.strip')].some(axis => {
    const places = [...axis.querySelectorAll('text')].filter(text => text.getClientRects().length).map(text => text.getBoundingClientRect());
    return places.some((place, i) => i && place.left < places[i - 1].right);
})"""
NOT_SAFE = "<script>alert(1)</script>"


def configured(folder, monkeypatch, targets: list[str], **top) -> Graph:
    """The graph of a folder, which becomes the working folder."""
    monkeypatch.chdir(folder)
    (folder / "text.txt").write_text("a text\n")
    values = {"targets": targets, "preset": "tiny", "evaluation": {"suites": list(SUITES)}}
    (folder / "config.yaml").write_text(yaml.safe_dump(values | {"corpus": {"files": ["text.txt"]}} | top))
    return Graph(loading.load(["config.yaml"]))


def make(graph: Graph, models: list[str], **more) -> dict:
    """Write the results of models, on the suites that cover them. What a report of them is about."""
    asked = asked_of(graph, "+".join(models))
    for model, about in asked["models"].items():
        covers = {suite: asked["suites"][suite]["covers"] for suite in about["suites"]}
        report_results.make(graph, model, covers, **more)
    return asked


def write(stage: str, name: str, asked: dict) -> None:
    """Run the stage `report` or `experiment` as Snakemake calls it."""
    path = f"results/settings/{stage}/{name}.json"
    write_json(path, asked)
    run_module(f"babelmill.{stage}", path, check=True)


@pytest.fixture(scope="module")
def browser():
    with Browser() as browser:
        yield browser


def table(path) -> list[dict[str, str]]:
    """The lines of a report's table."""
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def looked_at(browser: Browser, path, large: bool = False) -> None:
    """Open a page narrow and wide, light and dark, and assert what every report has to hold.

    `large`: it has too many cells for axe-core, which needs a minute; smaller ones have the same template.
    """
    text = path.read_text()
    assert not re.search(r"<script|https?://|@import|url\((?!#)| on\w+=\"", text), "something to run or to fetch"
    for width, dark in ((390, True), (1280, False)):
        browser.open(path, width, dark)
        assert browser.value("document.documentElement.scrollWidth") <= width, "it overflows"
        assert {*browser.requests} <= {path.resolve().as_uri(), "data:,"} and browser.errors == []
        assert not browser.value(CROWDED), "numbers of an axis reach into each other"
        assert large or browser.violations() == []


def fits_a_page(browser: Browser) -> None:
    """Assert that no table is cut when the open page is printed: A4 leaves 700 pixels."""
    browser.call("Emulation.setDeviceMetricsOverride", width=700, height=1000, deviceScaleFactor=1, mobile=False)
    browser.call("Emulation.setEmulatedMedia", media="print")
    assert browser.value("Math.max(...[...document.querySelectorAll('table')].map(e => e.scrollWidth))") <= 700
    browser.call("Emulation.setEmulatedMedia", media="")


def test_45_models_one_of_them_of_three_languages(browser, tmp_path, monkeypatch):
    """As Snakemake calls the stage; the table holds every score of every result."""
    trio = {"trio": {"languages": ["eng", "deu", "fra"]}}
    first = configured(tmp_path, monkeypatch, ["tier1"], models=trio)
    models = ["trio", *sorted(set(first.configuration.table) - {"kor"})[:44]]
    graph = configured(tmp_path, monkeypatch, ["tier1"], models=trio, groups={"everything": models})
    make(graph, models)
    write("report", "everything", asked_of(graph, "everything"))
    html, rows = tmp_path / "reports/everything.html", table(tmp_path / "reports/everything.csv")
    assert {row["model"] for row in rows} == set(models)
    eng = read_json(graph.result("score", "eng", "blimp").path / "scores.json")["languages"]["eng"]["methods"]["causal"]
    found = next(row for row in rows if (row["model"], row["suite"], row["method"]) == ("eng", "blimp", "causal"))
    assert found["phenomenon"] == "all" and float(found["score"]) == pytest.approx(eng["paradigms"]["score"], rel=1e-5)
    assert [float(found[end]) for end in ("low", "high")] == pytest.approx(eng["paradigms"]["interval"], rel=1e-5)
    blimp = [row for row in rows if (row["model"], row["suite"], row["method"]) == ("eng", "blimp", "fused")]
    assert {row["phenomenon"] for row in blimp} == {"all", "", *report_results.PHENOMENA}
    assert sum(row["paradigm"] != "all" for row in blimp) == 3 * len(report_results.PHENOMENA)
    assert {(row["suite"] == "", row["unit"]) for row in rows} == {(True, "bits per byte"), (False, "share")}
    text = html.read_text()
    assert "not covered" in text and "islands&lt;b&gt;" in text and "lm-evaluation-harness" in text
    assert text.count('<svg class="curves"') == 90 and "<h2>Not complete" not in text
    looked_at(browser, html, large=True)
    rows = browser.value(
        "[...document.querySelector('.strips tbody').rows].map(r => [r.cells[0].innerText, +r.cells[1].firstChild.textContent])"
    )
    english = [bits for name, bits in rows if name in ("eng English", "trio English")]
    assert len(rows) == 47 and english == sorted(english), "bits per byte, the best of a language first"
    assert rows[0][1] == min(bits for _, bits in rows), "the language with the best model first"
    fits_a_page(browser)


def test_one_model_and_published_scores_beside_it(browser, tmp_path, monkeypatch):
    graph = configured(tmp_path, monkeypatch, ["eng"])
    write("report", "eng", make(graph, ["eng"], snapshots=BABYLM[:19], max_masked_items=50))
    path = tmp_path / "reports/eng.html"
    assert path.read_text().count('aria-label="BLiMP, %: 1 million words ') == 1
    looked_at(browser, path)
    rows = browser.value("[...document.querySelectorAll('.strips tr')].map(r => r.innerText)")
    (row,) = [row for row in rows if "73.4" in row]
    assert "BabyLM 2026 GPT-2 98M, 100M words" in row and "lm-evaluation-harness" in row and "published" in row
    fits_a_page(browser)
    rows = [row for row in table(path.with_suffix(".csv")) if (row["suite"], row["phenomenon"]) == ("blimp", "all")]
    points = [float(row["million_words"] or 0) for row in rows if row["method"] == "causal"]
    assert points == [0, *BABYLM[:19]]


def test_what_failed_and_what_is_not_there_yet(browser, tmp_path, monkeypatch, capsys):
    """As the command is called. Nothing at all of one model; of others a failed stage, and a damaged result."""
    models = ["eng", "deu", "fra", "nld"]
    graph = configured(tmp_path, monkeypatch, models)
    make(graph, models[:3])
    (graph.result("score", "deu", "multiblimp").path / "scores.json").write_text("{}")
    for stage in ("train", "evaluate"):
        graph.result(stage, "fra").record.unlink()
    log = tmp_path / "logs/train" / f"{graph.result('train', 'fra').name}.log"
    log.parent.mkdir(parents=True)
    log.write_text(f"2026-01-01 error: out of memory {NOT_SAFE} of s3://me:pw@bucket/a?sig=1f\n")
    assert cli.main(["report", "all", "--configfile", "config.yaml"]) == 0
    assert "reports/all.html, reports/all.csv: 4 models" in capsys.readouterr().out
    path = tmp_path / "reports/all.html"
    text = path.read_text()
    assert "Not complete" in text and NOT_SAFE not in text
    assert "failed (train)" in text and "out of memory &lt;script&gt;" in text
    assert "s3://***@bucket/a?***" in text
    assert "scores.json: 2 bytes, but" in text
    rows = {(row["model"], row["suite"]) for row in table(path.with_suffix(".csv"))}
    assert {model for model, _ in rows} == {"eng", "deu", "fra"} and not {("deu", "multiblimp"), ("fra", "")} & rows
    looked_at(browser, path)
    assert cli.main(["report", "tier9", "--configfile", "config.yaml"]) == 1
    assert "there is no model 'tier9'" in capsys.readouterr().err


def test_an_experiment(browser, tmp_path, monkeypatch):
    """Its page begins with the comparison: a dot per seed, and the differences from the reference."""
    grid = {"base": ["eng", "trio"], "vary": {"train.learning_rate": [0.01, 0.02]}, "seeds": 3}
    more = {"models": {"trio": {"languages": ["eng", "deu", "fra"]}}}
    more["experiments"] = {"masking": grid | {"compare_with": {"train.learning_rate": 0.01}}}
    graph = configured(tmp_path, monkeypatch, ["eng"], **more)
    make(graph, [cell.name for cell in graph.configuration.cells["masking"]])
    write("experiment", "masking", asked_of_experiment(graph, "masking"))
    folder = tmp_path / "experiments/masking"
    assert {path.name for path in folder.iterdir()} == {"results.csv", "table.md", "table.tex", "page.html"}
    looked_at(browser, folder / "page.html")
    fits_a_page(browser)
    browser.open(folder / "page.html", 1280, False)
    strips = "document.querySelectorAll('.strips svg')"
    assert browser.value(f"[...{strips}].filter(e => e.querySelectorAll('.seed').length == 3).length") > 0
    assert browser.value("[...document.querySelectorAll('h2')].map(e => e.innerText)").index("Comparison") == 0
    row = browser.value("[...document.querySelector('tbody').rows].map(r => r.innerText.split('\\t'))[1]")
    assert row[:5] == ["eng, eng, learning rate 0.02", "3", "31.4 M", "2,000", "12,345"] and "\n(" in row[5]
