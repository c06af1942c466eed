"""The command `babelmill corpus`: its sample, its page in a real browser, its summary and its errors."""

from collections import Counter
from pathlib import Path

import pandas as pd
import pytest
import yaml

from babelmill import cli
from babelmill.corpus.record_batches import batch_of
from babelmill.survey import sample
from helpers.browser import Browser
from helpers.tables import write_table

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("folder")]

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>"
PAGE = Path("reports/corpora/nld.html")


def configured(**corpus) -> None:
    Path("config").mkdir(exist_ok=True)
    values = {"languages": {"nld": {"corpus": corpus}}}
    Path("config/config.yaml").write_text(yaml.safe_dump(values))


def write(texts: list[str], name: str = "a.jsonl", **metadata) -> None:
    write_table(name, [{"text": text, **metadata} for text in texts])


def look(capsys) -> list[str]:
    """Run the command; return the lines that it prints."""
    assert cli.main(["corpus", "nld"]) == 0
    return capsys.readouterr().out.splitlines()


def batches(texts: list[str], file: str = "a") -> list:
    return [(file, batch_of({"text": [text], "category": ["news"]})) for text in texts]


def measured(texts: list[str]) -> pd.DataFrame:
    return sample.measure(sample.sample(batches(texts))[0])


def test_the_page_is_safe_readable_and_fits_any_screen(capsys):
    texts = [f"{HOSTILE} nummer {i}\nEen regel die overal staat: {HOSTILE}\n" + "lang " * i for i in range(60)]
    texts += [
        "w" * 100_000,
        "كلام عربي مع \u202e انقلاب",
        "漢字かな交じり文です。" * 30,
        "cafÃ© \x1b[31m \x00",
        "12 34",
    ]
    write(texts, f"{'s' * 100}<b>.jsonl", category=HOSTILE)
    configured(files=["*.jsonl"])
    lines = look(capsys)
    assert f"a line stands in 92% of the documents: Een regel die overal staat: {HOSTILE}"[:100] in "\n".join(lines)
    html = PAGE.read_text(encoding="utf-8")
    assert "<script" not in html and "<img" not in html and "\x1b" not in html and "\u202e" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html and "<b>" not in html and len(html) < 100_000
    with Browser() as browser:
        for width in (390, 1280):
            browser.open(PAGE, width, dark=width == 390)
            assert browser.value("document.documentElement.scrollWidth") <= width, "it overflows"
            assert {*browser.requests} <= {PAGE.resolve().as_uri(), "data:,"} and browser.errors == []
            assert browser.value("document.querySelectorAll('table').length") == 4
            assert browser.value("document.querySelectorAll('.text').length") >= 30
            assert browser.violations() == []


def test_the_summary_says_what_stands_out(capsys):
    write([f"De kat zit op de mat en kijkt naar buiten, nummer {i}\nLees meer »" for i in range(20)])
    write(["the cat sat on the mat and saw it all"] * 5 + ["ja"], "b.jsonl", category="news")
    Path("c.jsonl").write_bytes(b'{"text": "bad \xff"}\n{"text": ')
    configured(files=["*.jsonl"], validation_share=0.01)
    lines = look(capsys)
    assert lines == [
        "26 documents in 2 files, 351 words, 0.0 MB",
        "script: Latin 100.0%",
        "language: nl 76.9%, en 19.2%, too short 3.8%",
        "only 80.0% of the documents that are not too short look like Dutch",
        "exact copies: 15.4% of the documents",
        "a line stands in 91% of the documents: Lees meer »",
        "2 documents without readable text: 1 undecodable, 1 malformed",
        "too few documents to set any aside: corpus.validation_share = 0.01 of 26 documents; set a larger"
        " corpus.validation_share, or corpus.validation_files",
        str(PAGE),
    ]
    html = PAGE.read_text(encoding="utf-8")
    for name, *cells in (("b.jsonl", 6, 51, "Latin 100%", "en 83%"), ("(none)", 20, 300, "Latin 100%", "nl 100%")):
        row = html[html.index(f"<th>{name}</th>") :].partition("</tr>")[0]
        assert all(f"<td>{cell}</td>" in row for cell in cells), row


def test_the_sample_is_the_same_in_any_order_and_no_larger_than_asked(monkeypatch):
    texts = [f"document {i % 900}" for i in range(1000)]
    whole, read = sample.sample(batches(texts))
    assert len(whole) == 1000 and read == {"a": 1000}
    monkeypatch.setattr(sample, "DOCUMENTS", 100)
    some, read = sample.sample([*batches(texts[:500], "b"), *batches(texts[500:])])
    other, _ = sample.sample(batches(texts[::-1]))
    assert 25 < len(some) <= 100 and read == {"b": 500, "a": 500}
    assert some["text"].tolist() == other["text"].tolist() == whole["text"].tolist()[: len(some)]
    assert all(number == texts.count(text) for text, number in Counter(some["text"]).items()), "copies stay together"
    monkeypatch.setattr(sample, "CHARACTERS", 300)
    assert sum(map(len, sample.sample(batches(texts))[0]["text"])) <= 300


def test_the_oddest_documents_and_the_lines_of_many():
    plain = [f"Een gewone zin met een nummer {i}.\nDezelfde regel." for i in range(50)]
    odd = {
        "broken": "cafÃ© wasâ€™t Ã©Ã©n keer, en nog Ã©Ã©n",
        "others": "12 34 #### !!!! ____",
        "again": "\n".join(["alweer dezelfde"] * 40),
        "characters": "lang " * 1000,
    }
    found = measured([*plain, *odd.values()])
    oddest = sample.oddest(found)
    for kind, text in odd.items():
        assert oddest[oddest["why"] == sample.ODD[kind]]["text"].iloc[0] == text
    assert len(oddest) <= 20 and oddest["key"].is_unique
    assert sample.frequent_lines(found) == {"Dezelfde regel.": pytest.approx(50 / 54)}


def test_text_that_cannot_be_read_is_one_line_and_an_earlier_page_stays(capsys):
    write(["De kat zit op de mat"])
    configured(files=["a.jsonl"])
    look(capsys)
    before = PAGE.read_bytes()
    Path("a.jsonl").write_text('{"text": null}\n{"text": ""}\n{"text": " "}\n')
    assert cli.main(["corpus", "nld"]) == 1
    assert "the text of nld has no document that can be read" in capsys.readouterr().err.splitlines()[-1]
    configured()
    assert cli.main(["corpus", "nld"]) == 1
    error = capsys.readouterr().err
    assert "`snakemake converted/nld --until download` gets it" in error and error.count("\n") == 1
    configured(files=["nothing/*.txt"])
    assert cli.main(["corpus", "nld"]) == 1 and "nothing/*.txt" in capsys.readouterr().err
    assert PAGE.read_bytes() == before
