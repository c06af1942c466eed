"""The command `babelmill corpus`: its page in a real browser, its summary and its errors."""

import json
from pathlib import Path

import pytest
import yaml

from babelmill import cli
from babelmill.config import loading
from babelmill.core.files import read_json
from babelmill.graph import Graph
from babelmill.survey.page import of
from helpers.browser import Browser
from helpers.stages import run_stage

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("folder")]

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>"


def configured(**corpus) -> None:
    Path("config").mkdir(exist_ok=True)
    values = {"languages": {"nld": {"corpus": corpus}}}
    Path("config/config.yaml").write_text(yaml.safe_dump(values))


def write(texts: list[str], **metadata) -> None:
    rows = [json.dumps({"text": text, **metadata}) + "\n" for text in texts]
    Path("a.jsonl").write_text("".join(rows), encoding="utf-8")


def test_the_page_is_safe_readable_and_fits_any_screen():
    texts = [f"{HOSTILE} nummer {i}\nEen regel die overal staat: {HOSTILE}\n" + "lang " * i for i in range(60)]
    texts += [
        "w" * 100_000,
        "كلام عربي مع \u202e انقلاب",
        "漢字かな交じり文です。" * 30,
        "cafÃ© \x1b[31m \x00",
        "x",
        "12 34",
    ]
    write(texts, category=HOSTILE, **{"data-source": "s" * 300})
    configured(files=["a.jsonl"])
    assert cli.main(["corpus", "nld", "--threads", "1"]) == 0
    page = Path("reports/corpora/nld.html")
    html = page.read_text(encoding="utf-8")
    assert "<script" not in html and "<img" not in html and "\x1b" not in html and "\u202e" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html and len(html) < 300_000
    with Browser() as browser:
        for width in (360, 1280):
            browser.open(page, width, dark=width == 360)
            browser.value("document.querySelectorAll('details').forEach(each => each.open = true)")
            assert browser.value("document.documentElement.scrollWidth") <= width, "it overflows"
            assert {*browser.requests} <= {page.resolve().as_uri(), "data:,"} and browser.errors == []
            assert browser.value("document.querySelectorAll('svg rect.bar').length") > 3
            assert width == 360 or browser.violations() == []


def test_the_summary_and_the_numbers(capsys):
    write(
        [f"De kat zit op de mat en kijkt naar buiten, nummer {i}" for i in range(20)]
        + ["the cat sat on the mat and saw it all"] * 5
    )
    configured(files=["a.jsonl"])
    assert cli.main(["corpus", "nld", "--threads", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    html = Path("reports/corpora/nld.html").read_text(encoding="utf-8")
    assert "en <small>English</small>" in html and "nl <small>Dutch</small>" in html, "not a text of a challenge"
    assert lines[0] == "25 documents, 250.0  words, 0.0 MB".replace("250.0  ", f"{20 * 12 + 5 * 10} ")
    assert "script: Latn (100.0 % of the documents)" in lines
    assert "exact copies: 4 of 25 documents (16.0 %)" in lines
    assert "only 80.0 % of the documents that are not too short look like Dutch" in lines
    assert lines[-1] == "reports/corpora/nld.html, reports/corpora/nld.json"
    figures = read_json("reports/corpora/nld.json")
    assert figures["of"] == "source" and figures["copies"] == 4


def test_documents_without_a_category_are_a_part_of_the_whole(monkeypatch):
    """Also where others are read that have none at all."""
    monkeypatch.setattr("babelmill.corpus.pieces.BLOCK", 100)
    texts = [f"De kat zit op de mat en kijkt naar buiten, nummer {i}" for i in range(10, 30)]
    write(texts[10:])
    Path("a.jsonl").rename("b.jsonl")
    write(texts[:10], category="qed")
    configured(files=["*.jsonl"])
    assert cli.main(["corpus", "nld", "--threads", "1"]) == 0
    html = Path("reports/corpora/nld.html").read_text(encoding="utf-8")
    for name in ("qed", "(none)"):
        assert f'<th scope="row">{name}</th><td class="n">0.0 MB</td><td class="n">50.0</td>' in html


def test_text_that_comes_with_python_is_no_file():
    about = {"of": "source", "read": {"files": 0}, "builtin": "python-docs"}
    python = "the documents that come with Python (corpus.builtin)"
    assert of(about) == f"The text of {python}, before anything is cleaned or dropped"
    assert of(about | {"read": {"files": 2}}).startswith(f"The text of 2 files and of {python}")
    assert of(about | {"read": {"files": 2}, "builtin": None}).startswith("The text of 2 files, before")


def test_japanese_is_one_script(capsys):
    write(["日本語の文章とコマンド OK です。" for _ in range(3)] + ["我们今天去看大狗，然后回家。"])
    configured(files=["a.jsonl"])
    assert cli.main(["corpus", "nld", "--threads", "1"]) == 0
    assert "script: Jpan (75.0 % of the documents)" in capsys.readouterr().out
    assert read_json("reports/corpora/nld.json")["scripts"] == {"Hani": 1, "Jpan": 3}


def test_what_the_workflow_made_is_looked_at_if_asked(capsys):
    write([f"De kat zit op de mat, nummer {i % 30}" for i in range(60)])
    configured(files=["a.jsonl"], validation_share=0.3)
    assert cli.main(["corpus", "nld", "--made"]) == 1
    made = Graph(configuration := loading.load(["config/config.yaml"])).result("corpus", "nld")
    error = capsys.readouterr().err
    assert f"{made.record}: no such file" in error
    made.path.parent.mkdir(parents=True)
    run_stage("corpus", configuration, "nld", out=made.path)
    before = made.record.read_bytes()
    assert cli.main(["corpus", "nld", "--made", "--threads", "1"]) == 0
    figures = read_json("reports/corpora/nld.json")
    assert figures["documents"] == 30 and figures["copies"] == 0 and figures["of"] == "corpus"
    assert made.record.read_bytes() == before, "nothing runs again"


def test_texts_too_short_to_tell_a_language_do_not_count_against_it(capsys):
    write([f"De kat zit op de mat en kijkt naar buiten, nummer {i}" for i in range(20)] + ["ja"] * 20)
    configured(files=["a.jsonl"])
    assert cli.main(["corpus", "nld", "--threads", "1"]) == 0
    out = capsys.readouterr().out
    assert "too short 50.0 %" in out and "look like Dutch" not in out


def test_an_empty_text_is_one_line_and_an_earlier_page_stays(capsys):
    write(["De kat zit op de mat"])
    configured(files=["a.jsonl"])
    assert cli.main(["corpus", "nld", "--threads", "1"]) == 0
    pages = {path: path.read_bytes() for path in Path("reports/corpora").iterdir()}
    for nothing in ([], [" ", ""]):
        write(nothing)
        capsys.readouterr()
        assert cli.main(["corpus", "nld", "--threads", "1"]) == 1
        error = capsys.readouterr().err.splitlines()[-1]
        assert "the text of nld has no document that can be read" in error
    assert {path: path.read_bytes() for path in Path("reports/corpora").iterdir()} == pages


def test_text_that_is_not_there_is_one_line(capsys):
    configured()
    assert cli.main(["corpus", "nld"]) == 1
    error = capsys.readouterr().err
    assert "`snakemake converted/nld --until download` gets it" in error and error.count("\n") == 1
    configured(files=["nothing/*.txt"])
    assert cli.main(["corpus", "nld"]) == 1 and "nothing/*.txt" in capsys.readouterr().err


def test_input_that_cannot_be_read_is_said(capsys):
    Path("a.jsonl").write_bytes(b'{"text": "De kat zit op de mat"}\n{"text": "bad \xff"}\n{"text": ')
    configured(files=["a.jsonl"])
    assert cli.main(["corpus", "nld", "--threads", "1"]) == 0
    assert "2 documents without readable text: 1 malformed, 1 undecodable" in capsys.readouterr().out
