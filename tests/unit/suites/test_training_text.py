"""Test items in the training text: all that stand there are found, nothing else is, and the score without them."""

import shutil
from pathlib import Path

import pytest

from babelmill.core.files import write_json
from babelmill.evaluation.overlaps import in_training_text
from babelmill.score import report
from babelmill.stages import ScoreStage
from babelmill.suites.overlap import overlap
from babelmill.suites.sought import sought, words_of
from helpers.results.fields import undocumented
from helpers.stages import write_corpus
from helpers.suite_files import pairs_of

LONG = " ".join(f"w{number}" for number in range(20))
FILLER = " ".join(f"filler{number}" for number in range(3000))


@pytest.mark.parametrize(
    ("item", "document"),
    [
        ("The dog sees it.", "THE DOG\u2014\u201csees\u201d,\n\u3000it!"),
        ("Ein caf\u00e9, \u0434\u043e\u043c, Stra\u00dfe", "ein CAFE\u0301 \u0434\u043e\u043c stra\u00dfe"),
        ("one two three four", f"{FILLER}. One two. Three four{FILLER[:6]} one two three four {FILLER}"),
        (LONG, f"w6 {LONG[:-4]}"),
        (LONG, " ".join(f"w{number}" for number in range(7, 20))),
        ("one two three four", None),
        *((f"The magni{mark}ficent elephant sees", "the magnificent elephant sees") for mark in "\u00ad\u200c\u200d\u2060"),
        *(("the magnificent elephant sees", f"the magni{mark}ficent elephant sees") for mark in "\ufe0f\U000e0100"),
        ("the magnificent elephant sees", "the\u200bmagnificent\u200belephant sees"),
        ("\u6211\u4eec\u4eca\u5929\u53bb\u770b\u5927\u72d7", "\u6211\u4eec\u4eca\u5929\uff0c\u53bb\u770b\u5927\u72d7\u3002"),
        ("\u72d7" * 30, "\u72d7" * 26),
    ],
)  # fmt: skip
def test_items_are_found_whatever_the_clothes_of_their_words(item, document):
    """A text of 4 words or more, or any 13 words of a longer one; two characters of Chinese count as a word."""
    asked = sought([["otherwise it is not here"], [item, "nor is this one there"]])
    (found,) = asked.found_in([document or item])
    assert [*asked.items_of(found)] == [1] and not asked.short
    assert f" {asked.items_of(found)[1]} " in f" {' '.join(words_of(document or item))} "


@pytest.mark.parametrize(
    ("item", "document"),
    [
        ("one two three four", "one two three. fours"),
        ("one two three four", "one two three"),
        ("one two three four", "xone two three four"),
        (LONG, " ".join(f"w{number}" for number in range(8, 20))),
        ("the magnificent elephant sees", "the magni\u200bficent elephant sees"),
        ("\u72d7" * 30, "\u72d7" * 25),
    ],
)
def test_nothing_else_is_found(item, document):
    asked = sought([[item], ["no more words"], ["\u6211\u4eec\u770b\u72d7"]])
    assert asked.found_in([document, "no more words", "\u6211\u4eec\u770b\u72d7"]) == [[], [], []]
    assert asked.short == [1, 2], "so few words say nothing"


def test_texts_that_begin_alike_are_told_apart():
    asked = sought([["one two three four five"], ["one two three four"], ["one two three four six"]])
    found = asked.found_in(["one two three four six", "one two three four", "one two three four five"])
    assert [[*asked.items_of(each)] for each in found] == [[1, 2], [1], [0, 1]]


PAIRS = [
    ("The dog sees the old tree.", "The dog see the old tree."),
    ("All cats sleep in the sun.", "All cats sleeps in the sun."),
    ("She has never seen it.", "She has ever seen it."),
    ("Dogs bark.", "Dogs barks."),
    ("He went home with his friend.", "He went home with hers friend."),
]
POINTS = [1.0, 1.0, 0.0, 1.0, 0.0]
TEXTS = {
    "eng": ["He said:\nTHE DOG SEES\n\u201cthe old tree\u201d and more.", "Dogs bark. Dogs bark."],
    "deu": ["Nichts."],
}


def write_text(code: str, texts: list[str]) -> Path:
    """Write a corpus with these texts for training."""
    folder = Path("corpora", code)
    shutil.rmtree(folder, ignore_errors=True)
    return write_corpus(folder, {"text": texts}, {"text": []})


@pytest.fixture
def corpora(folder) -> dict[str, Path]:
    """The corpora of a model of two languages."""
    return {
        code: write_text(code, [*texts, *(f"filler number {i}" for i in range(40))]) for code, texts in TEXTS.items()
    }


def looked(corpora: dict[str, Path], threads: int = 1) -> dict:
    """What is found, as the stage writes it."""
    settings = ScoreStage(languages=["eng", "deu"], suite="mine", covered=["eng"], methods=["causal"])
    scored = pairs_of(*zip(*PAIRS, strict=True), language=["eng"] * len(PAIRS), causal_points=POINTS)
    found = overlap(scored, report(scored, settings), settings, corpora, threads)
    assert found is not None
    return found


def test_the_score_without_the_items_that_stand_in_the_text(corpora, monkeypatch):
    found = looked(corpora)
    assert found["rows"] == [0]
    write_json("overlap.json", found)
    assert not undocumented(Path("overlap.json"))
    eng = found["languages"]["eng"]
    assert (eng["items"], eng["found"], eng["short"]) == (5, 1, 1)
    assert eng["without"]["score"] == 2 / 4 and eng["without"]["n"] == 4
    assert found["examples"] == [{"row": 0, "language": "eng", "words": "the dog sees the old tree"}]
    assert found["looked_in"]["eng"]["documents"] == 42 and found["looked_in"].keys() == {"eng", "deu"}
    text = "1 of 5 pairs stands in the training text (1 is too short to tell); without it 50.0 (15.0 to 85.0, n = 4)"
    assert in_training_text(found, "eng") == text
    monkeypatch.setattr("babelmill.suites.overlap.DOCUMENTS", 5)
    monkeypatch.setattr("babelmill.suites.overlap.WORTH_IT", 0)
    assert looked(corpora, 2) == found, "a few documents at a time, by several processes"


def test_a_sentence_may_stand_in_the_text_of_another_language(corpora):
    write_text("deu", ["Er sagt: she has never seen it"])
    assert looked(corpora)["rows"] == [0, 2]
