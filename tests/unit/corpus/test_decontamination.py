"""`corpus.decontaminate` in the stage: which documents it drops, by several processes and of documents with prompts."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_corpus import texts, write_jsonl

from babelmill.config.resolve import Configuration
from babelmill.core import manifest
from babelmill.core.files import write_json
from helpers.results.fields import undocumented
from helpers.stages import any_settings, run_stage
from helpers.tables import write_table

pytestmark = pytest.mark.usefixtures("folder")

LONG = " ".join(f"word{i}" for i in range(20))
SUITES = {
    "mine": {
        "prompts": [["", ""]] * 2,
        "options": [["The cat sees the dog.", "The cat see the dog."], ["Cats run.", "Cats runs."]],
    },
    "choices": {"prompts": [["She asked: ", "She asked: "]], "options": [["why is it red?", LONG]]},
}


def suites() -> list[Path]:
    """The results of the stage `suite`."""
    folders = [Path("results/suite", f"{name}_eng-0123456789") for name in SUITES]
    for folder, (name, columns) in zip(folders, SUITES.items(), strict=True):
        folder.mkdir(parents=True, exist_ok=True)
        Path(f"{name}.tsv").write_text("good\tbad\na\tb\n")
        pq.write_table(pa.table(columns), folder / "items.parquet")
        manifest.write(folder, any_settings("suite", suite=name), ["items.parquet"])
    return folders


def configuration(**corpus) -> Configuration:
    """A corpus that may hold no item of the suites."""
    own = {name: {"files": [f"{name}.tsv"], "language": "eng", "good": "good", "bad": "bad"} for name in SUITES}
    corpus = {"files": ["a.jsonl"], "validation_share": 0, "decontaminate": [*SUITES], **corpus}
    return Configuration([("test", {"suites": own, "languages": {"eng": {"corpus": corpus}}})])


def built(out="out", threads=1, **corpus) -> dict:
    """Its figures."""
    return run_stage("corpus", configuration(**corpus), out=out, threads=threads, suites=suites())


def test_documents_with_items_are_dropped_and_counted(monkeypatch):
    clean = ["The cat sees a dog.", "Cats run.", LONG.rpartition("word12")[0], *(f"filler {i}" for i in range(300))]
    dirty = ["Today THE CAT\nsees the dog!", "word1, word0. " + LONG.upper(), "she asked, why is it red"]
    dirty += ["Why is it red?"]
    write_jsonl("a.jsonl", [text for pair in zip(clean, dirty, strict=False) for text in pair] + clean[4:] + dirty[3:])
    figures = built()
    assert set(texts("train")) == {*clean, dirty[3]}, "an option without its prompt is no item"
    assert figures["dropped"] == {"test_text": 3, "duplicate": 1} and figures["suites"] == {"choices": 2, "mine": 1}
    assert figures["bytes_with_test_texts"] == sum(len(text) for text in dirty[:3])
    notes = {example["text"]: example["note"] for example in figures["examples"]["test_text"]}
    assert notes[dirty[0]] == "mine: the cat sees the dog" and notes[dirty[2]] == "choices: she asked why is it red"
    monkeypatch.setattr("babelmill.corpus.__main__.WORTH_IT", 0)
    assert built("out4", threads=4) == figures
    assert Path("out4/train.parquet").read_bytes() == Path("out/train.parquet").read_bytes()


def test_all_figures_of_a_corpus_are_documented():
    """Every step that has a key of its own is taken, and has something to do."""
    page = " ".join(f"Term {i} of this licence holds for everybody." for i in range(12))
    texts = [f"The small text number {i} has its own words, {i * i} of them." for i in range(60)]
    texts += [*(f"{page} {i}" for i in range(9)), *texts[:2], "", "x", "The cafÃ© is open on all days of the week."]
    texts += ["Today the cat sees the dog!", "Das ist ein deutscher Satz über das Haus."]
    rows = [{"text": text, "question": f"Who {len(text) % 9}?", "category": "qed", "license": "mit"} for text in texts]
    Path("a.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows) + "no JSON\n")
    asked = {"repair": "ftfy", "near_duplicates": 0.8, "min_characters": 3, "validation_share": 0.3}
    asked |= {"language_filter": {"model": "py3langid"}, "budget": "40 documents", "on_error": "skip"}
    for more in {"prompt_column": "question"}, {}:
        figures = built(**asked, **more)
        write_json("figures.json", figures)
        assert not undocumented(Path("figures.json"), "manifest.json of a corpus")
    reasons = "duplicate empty short other_language over_budget near_duplicate test_text malformed"
    assert figures["dropped"].keys() >= {*reasons.split()} and "repair" in figures["changed"]


def test_a_prompt_and_its_answer_are_one_text():
    write_table("a.jsonl", [{"q": f"{who} asked:", "text": "Why is it red?"} for who in ("She", "He")])
    assert built(prompt_column="q")["dropped"] == {"test_text": 1}
    assert pq.ParquetFile("out/train.parquet").read()["prompt"].to_pylist() == ["He asked:"]
