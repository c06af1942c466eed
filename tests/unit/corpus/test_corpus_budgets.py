"""`corpus.budget`: how much text of a language is taken, and which."""

import numpy as np
import pytest
from test_corpus import DOCUMENTS, build, texts, write_jsonl

from babelmill.config.resolve import Configuration
from babelmill.core.files import UserError
from babelmill.corpus.choosing import Budget, within
from helpers.stages import run_stage

pytestmark = pytest.mark.usefixtures("folder")


def test_a_budget_is_a_sample_over_everything():
    """Ten categories one after the other, as in the dataset repositories."""
    for i in range(10):
        write_jsonl(f"{i}.jsonl", [f"{i} {text}" for text in DOCUMENTS[:50]], category=f"c{i}")
    figures = build(files=["*.jsonl"], budget=0.01, validation_share=0.1)
    kept = texts("train") + texts("validation")
    size = sum(len(text.encode()) for text in kept)
    assert 9_900 < size <= 10_000
    assert figures["budget"] == {"unit": "bytes", "asked": 10_000, "realised": size}
    assert figures["read"] == 500
    assert figures["dropped"] == {"over_budget": 500 - len(kept)}
    assert min(figures["categories"].get(f"c{i}", 0) for i in range(10)) >= 8
    assert texts("train") == sorted(texts("train"), key=lambda text: int(text.split()[0]))
    build(out="larger", files=["*.jsonl"], budget=0.02, validation_share=0.1)
    assert set(texts("train")) < set(texts("train", "larger"))
    assert set(texts("validation")) < set(texts("validation", "larger"))


def test_a_budget_does_not_depend_on_order_or_repetition():
    write_jsonl("a.jsonl", DOCUMENTS)
    write_jsonl("b.jsonl", [text for text in reversed(DOCUMENTS) for _ in range(3)])
    for name in "ab":
        build(name, files=[f"{name}.jsonl"], budget="100 documents", validation_share=0.1)
    for split in ("train", "validation"):
        assert texts(split, "a") == texts(split, "b")[::-1]
    assert len(texts("train", "a") + texts("validation", "a")) == 100


def test_a_budget_ends_before_the_first_document_that_is_too_much():
    """Also where a later one would still fit: so the sample of a larger budget contains that of a smaller one."""
    keys, sizes = np.array([30, 10, 25, 20, 40], np.uint64), np.array([5, 90, 5, 120, 300])
    kept, size = within(Budget(100, "bytes"), keys, sizes)
    assert kept.tolist() == [False, True, False, False, False] and size == 90
    kept, size = within(Budget(520, "bytes"), keys, sizes)
    assert kept.all() and size == 520


@pytest.mark.parametrize(("budget", "size"), [("1k words", 5430), (0.00543, 5430)])
def test_a_budget_counts_what_says_the_same_in_the_language(budget, size):
    write_jsonl("a.jsonl", DOCUMENTS)
    corpus = {"files": ["a.jsonl"], "budget": budget, "validation_share": 0}
    figures = run_stage("corpus", Configuration([("test", {"languages": {"ukr": {"corpus": corpus}}})]), "ukr")
    assert figures["budget"]["asked"] == round(size * 1.751)


def test_words_are_counted_and_documents_stay_whole():
    """The sample is as large as whole documents allow: the next one would not fit. Scripts without spaces are refused."""
    documents = [" ".join(["word"] * (1 + i % 7)) + f" {i}" for i in range(500)]
    write_jsonl("a.jsonl", documents)
    figures = build(files=["a.jsonl"], budget="1k exact words", validation_share=0.1)
    kept = texts("train") + texts("validation")
    words = sum(len(text.split()) for text in kept)
    assert set(kept) < set(documents) and 1000 - 8 < words <= 1000
    assert figures["budget"] == {"unit": "exact words", "asked": 1000, "realised": words}
    corpus = {"files": ["a.jsonl"], "budget": "1k exact words"}
    with pytest.raises(UserError, match=r"1000 words, in bytes, since Chinese writes no spaces"):
        run_stage("corpus", Configuration([("test", {"languages": {"zho": {"corpus": corpus}}})]), "zho")


def test_a_corpus_smaller_than_its_budget_is_reported(caplog):
    write_jsonl("a.jsonl", DOCUMENTS)
    figures = build(files=["a.jsonl"], budget="5M", validation_share=0.1)
    assert sum(figures["documents"].values()) == 1000
    assert figures["budget"] == {"unit": "bytes", "asked": 27_150_000, "realised": sum(figures["bytes"].values())}
    assert "eng: less text than corpus.budget: " in caplog.text


WRITTEN = {
    **{"54.3": 54.3, "5 MB": 5.0, "500k": "500000 words", "10M words": "10000000 words"},
    **{"1.5k documents": "1500 documents", "10M exact words": "10000000 exact words"},
    **dict.fromkeys(["0", "-1", "many", "5 tokens", "5M MB", "0 words", "nan"]),
}


@pytest.mark.parametrize("written", [54.3, 0, -1, *WRITTEN])
def test_budgets_are_written_in_many_ways_and_others_are_refused(written):
    configuration = Configuration([("test", {"corpus": {"files": ["x"], "budget": written}})])
    if meant := WRITTEN[str(written)]:
        assert configuration.corpus("eng").corpus.budget == meant
    else:
        with pytest.raises(UserError, match=r"corpus\.budget"):
            configuration.corpus("eng")
