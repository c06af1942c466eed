"""Test items in the training text: all that stand there are found, nothing else is, and the score without them."""

import random
import re
import shutil
import unicodedata
from pathlib import Path

import pytest

from babelmill.core import manifest
from babelmill.core.files import write_json
from babelmill.evaluation.overlaps import in_training_text
from babelmill.score import report
from babelmill.stages import ScoreStage
from babelmill.suites.overlap import overlap
from babelmill.suites.sought import Sought, sought
from helpers.results.fields import undocumented
from helpers.stages import any_settings, write_corpus
from helpers.suite_files import pairs_of

CHINESE = re.compile("[\u3000-\u9fff]")


def words_of(text: str) -> list[str]:
    """The words of a text, found in another way than by bytes."""
    text = unicodedata.normalize("NFC", text).lower()
    kept = "".join(" " if unicodedata.category(each)[0] in "PSZC" else each for each in text)
    return CHINESE.sub(lambda match: f" {match[0]} ", kept).split()


def by_hand(items: list[list[str]], documents: list[str]) -> set[int]:
    """The items that stand in documents."""
    whole = "\n".join(f" {' '.join(words_of(document))} " for document in documents)
    found = set()
    for i, texts in enumerate(items):
        for words in map(words_of, texts):
            unit = 2 if 2 * sum(bool(CHINESE.match(word)) for word in words) > len(words) else 1
            size = min(len(words), 13 * unit)
            parts = (" ".join(words[k : k + size]) for k in range(len(words) - size + 1))
            if len(words) >= 4 * unit and any(f" {part} " in whole for part in parts):
                found.add(i)
    return found


def disguised(text: str, generator: random.Random) -> str:
    """The words of a text in other clothes."""
    marks = ["\n", ", ", "\u2026 ", " \u201c", "\u201d\u3000", "! ", "\t\u2014 ", "\u00a0"]
    words = [generator.choice([str.upper, str.lower, str.title])(word) for word in text.split(" ")]
    text = "".join(word + generator.choice([" ", *marks]) for word in words)
    return unicodedata.normalize(generator.choice(["NFC", "NFD"]), text)


def pairs(asked: Sought, texts: list[str]) -> list[tuple[int, int]]:
    """Which texts hold which sequences."""
    return [(i, sequence) for i, found in enumerate(asked.found_in(texts)) for sequence in found]


def test_all_that_stands_in_the_text_is_found_and_nothing_else():
    """With few words, so that many sequences are nearly there; in a long document, too."""
    generator = random.Random(0)
    vocabulary = ["the", "dog", "caf\u00e9", "\u0434\u043e\u043c", "Stra\u00dfe", "na\u00efve", "a", "one"]
    vocabulary += [f"word{i}" for i in range(200)]

    def words(count: int) -> str:
        return " ".join(generator.choices(vocabulary, k=count))

    items = [[words(generator.randint(1, 30)) for _ in range(2)] for _ in range(600)]
    documents = [words(generator.randint(0, 40)) for _ in range(200)] + [words(3000)]
    for item in generator.sample(items, 150):
        text = generator.choice(item).split(" ")
        some = generator.randint(0, max(0, len(text) - 13))
        planted = disguised(" ".join(text[some : some + 13] if len(text) > 13 else text), generator)
        if generator.random() < 0.5:
            documents.append(f"{words(3)}\n{planted} {words(3)}.")
        else:
            at = generator.randrange(15_000)  # in the middle of a word
            documents[200] = f"{documents[200][:at]}. {planted}{documents[200][at:]}"
    for item in generator.sample(items, 50):  # all but the last word, or cut by the end of a document
        text = item[0].rpartition(" ")[0]
        documents += [f"{text} otherwise", text, item[0].rpartition(" ")[2]]
    expected = by_hand(items, documents)
    assert 100 < len(expected) < 300
    asked = sought(items)
    found = pairs(asked, documents)
    assert set(asked.items_of({sequence for _, sequence in found})) == expected
    for text, sequence in found:
        assert f" {asked.words_of(sequence)} " in f" {' '.join(words_of(documents[text]))} "
    short = [i for i, item in enumerate(items) if max(len(words_of(text)) for text in item) < 4]
    assert asked.short == short and short


def test_two_characters_of_chinese_count_as_a_word():
    items = [["\u6211\u4eec\u770b\u72d7"], ["\u6211\u4eec\u4eca\u5929\u53bb\u770b\u5927\u72d7"], ["\u72d7" * 30]]
    asked = sought(items)
    assert asked.short == [0], "four characters say nothing"
    documents = [
        "\u4ed6\u8bf4\uff1a\u6211\u4eec\u4eca\u5929\uff0c\u53bb\u770b\u5927\u72d7\u3002\u6211\u4eec\u770b\u72d7",
        "\u72d7" * 25,
        "\u72d7" * 26,
    ]
    texts, sequences = zip(*pairs(asked, documents), strict=True)
    assert texts == (0, 2) and asked.items_of(sequences) == [1, 2]


@pytest.mark.parametrize("mark", ["\u00ad", "\u200c", "\u200d", "\u2060", "\ufe0f", "\U000e0100"])
def test_characters_inside_words_that_nobody_sees_do_not_matter(mark):
    asked = sought([["The magnificent elephant sees it."]])
    assert asked.found_in([f"the magni{mark}ficent ele{mark}phant sees it"])[0]
    assert not asked.found_in(["the magni\u200bficent elephant"])[0]
    assert asked.found_in(["the\u200bmagnificent\u200belephant sees it"])[0], "this one is a space"


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


def test_text_that_cannot_be_looked_through_is_said_shortly(corpora):
    about = any_settings("corpus")
    manifest.write(corpora["eng"], about, ["train.parquet"], figures={"bytes": {"train": 30_000_000_000}})
    found = looked(corpora)
    assert found["looked_in"].keys() == {"deu"}
    assert in_training_text(found, "eng").endswith("; not looked at: corpora/eng is too large (more than 20 GB)")
    manifest.write(corpora["deu"], about, ["train.parquet"], figures={"bytes": {"train": 30_000_000_000}})
    found = looked(corpora)
    assert found["looked_in"] == {} and "languages" not in found
    assert in_training_text(found, "eng").startswith("not looked for in the training text: corpora/eng is too large (m")
