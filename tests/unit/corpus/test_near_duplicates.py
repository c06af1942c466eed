"""Near copies of documents and paragraphs: found at any place, only where they are, and the same on any machine."""

import contextlib
import itertools
import json
import random
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from test_corpus import build, texts, write_jsonl

from babelmill.corpus import near_copies
from babelmill.corpus.near_copies import NearCopies, bands_of
from babelmill.corpus.shingles import shingles

ALONE = "\u3000-\u9fff\u0e00-\u0fff\u1000-\u107f\u1780-\u17ff\U00020000-\U0002ffff"
WORD = re.compile(rf"[{ALONE}]|[^\x00-/:-@\[-`{{-\x7f{ALONE}]+")
VOCABULARY = [f"word{i}" for i in range(5000)]


def five_words(text) -> set:
    """The five words in a row of a text, found in another way than by bytes."""
    words = WORD.findall(text)
    return {tuple(words[i : i + 5]) for i in range(len(words) - 4)}


def jaccard(one, other) -> float:
    one, other = five_words(one), five_words(other)
    return len(one & other) / len(one | other)


def changed(words, similarity, generator) -> list:
    """A copy in which words are changed until it is as similar as asked."""
    copy = list(words)
    while jaccard(" ".join(words), " ".join(copy)) > similarity:
        copy[generator.randrange(len(copy))] = f"new{generator.randrange(10**9)}"
    return copy


def judged(documents, threshold, files, batch=64) -> dict:
    """The near copies among documents, by their index."""
    parts = [pa.array(documents[i : i + batch]) for i in range(0, len(documents), batch)]
    near, found = NearCopies(threshold, None, files), {}
    for part in parts:
        near.add(bands_of(part, threshold))
    near.group()
    for i, part in enumerate(parts):
        copies = near.judge(part, np.zeros(len(part)))
        found |= {i * batch + row: copy for row, copy in copies.items()}
    return found


def groups_among(documents) -> list[bytes]:
    """The texts with equal bands, as they are on disk."""
    with contextlib.ExitStack() as files:
        near = NearCopies(0.8, None, files)
        near.add(bands_of(pa.array(documents), 0.8))
        near.group()
        return [file.seek(0) or file.read() for file in near._ranges]


def test_shingles_are_five_words_in_a_row(monkeypatch):
    documents = [
        "One two, three four five; six-seven eight.",
        "",
        "four words of text",
        "这是一个测试。这是一个测试",
        "ไทย text ខ្មែរ and 日本語が混ざる 𠀀𠀁𠀂 rest",
        "naïve Zürich “quoted” words\n\nin two paragraphs",
        "x" * 600_000 + " a b c d e f",
        "one two three four five " * 100_000,
    ]
    whole, bounds = shingles(pa.array(documents))
    known = {}
    for i, document in enumerate(documents):
        words = WORD.findall(document)
        expected = [tuple(words[k : k + 5]) for k in range(len(words) - 4)]
        if i == 6:  # the long word is cut
            expected, found = expected[-2:], whole[bounds[i] : bounds[i + 1]][-2:]
        else:
            found = whole[bounds[i] : bounds[i + 1]]
        assert len(found) == len(expected)
        for shingle, number in zip(expected, found.tolist(), strict=True):
            assert known.setdefault(shingle, number) == number
    assert len(set(known.values())) == len(known), "different words have different shingles"
    part, _ = shingles(pa.array(documents).slice(3, 2))
    assert (part == whole[bounds[3] : bounds[5]]).all(), "a text has the same shingles among any others"
    monkeypatch.setattr("babelmill.tokens.hashed_words.PIECE", 40)
    assert (shingles(pa.array(documents[:6]))[0] == whole[: bounds[6]]).all(), "pieces change nothing"


def test_signatures_are_the_same_on_any_machine():
    text = pa.array(["It is a truth universally acknowledged, that a single man", "这是一个测试。这是一个测试"])
    found, _ = shingles(text)
    assert found[:2].tolist() == [4496021826516172067, 2048509359893132918]
    assert np.frombuffer(bands_of(text, 0.8).buffers()[1], np.uint64)[[0, 15, 16]].tolist() == [
        3607073502689270484,
        9282922396460735104,
        10453483719533548585,
    ]


def test_planted_copies(tmp_path):
    """Of 900 pairs: all that are similar enough are found (1 in 100 may be missed), and no others."""
    generator = random.Random(1)
    documents, similarities = [], []
    for similarity in itertools.islice(itertools.cycle((0.7, 0.8, 0.9)), 900):
        words = generator.choices(VOCABULARY, k=generator.randrange(60, 200))
        documents += [" ".join(words), " ".join(changed(words, similarity + 0.02, generator))]
        similarities.append(jaccard(*documents[-2:]))
    with contextlib.ExitStack() as files:
        found = judged(documents, 0.8, files)
    real = {2 * i + 1 for i, similarity in enumerate(similarities) if similarity >= 0.8}
    assert 300 < len(real) < 700
    assert set(found) <= real
    assert len(set(found)) >= 0.99 * len(real)
    assert all(copy.similarity == pytest.approx(similarities[i // 2]) for i, copy in found.items())
    assert found[min(found)].beginning == documents[min(found) - 1][: len(found[min(found)].beginning)]


def test_the_first_stays_and_whatever_is_dropped_has_a_copy_that_stays(monkeypatch):
    """A chain of copies, each like the one before, and many copies of one text."""
    generator = random.Random(2)
    chain = [generator.choices(VOCABULARY, k=300)]
    for _ in range(20):
        chain.append(changed(chain[-1], 0.88, generator))
    many = [changed(chain[0], 0.95, generator) for _ in range(200)]
    documents = [" ".join(words) for words in chain + many]
    generator.shuffle(documents)
    with contextlib.ExitStack() as files:
        found = judged(documents, 0.8, files)
    stays = [i for i in range(len(documents)) if i not in found]
    for i in range(len(documents)):
        similar = any(jaccard(documents[i], documents[k]) >= 0.8 for k in stays if k < i)
        assert similar == (i in found)
    whole = groups_among(documents)
    monkeypatch.setattr(near_copies, "SORTED", 7)
    assert groups_among(documents) == whole
    monkeypatch.setattr(near_copies, "PARTS", 3)
    with contextlib.ExitStack() as files:
        assert judged(documents, 0.8, files, batch=7) == found


def test_long_texts_are_compared_by_a_sample(monkeypatch):
    monkeypatch.setattr(near_copies, "LARGEST", 2000)
    generator = random.Random(3)
    words = generator.choices(VOCABULARY, k=30_000)
    documents = [" ".join(words), " ".join(words[:27_000]), " ".join(words[10_000:])]
    with contextlib.ExitStack() as files:
        found = judged(documents, 0.8, files)
    assert list(found) == [1]
    assert found[1].similarity == pytest.approx(0.9, abs=0.03)


def page(date) -> str:
    return f"Opening hours of the library. Printed on {date}. " + " ".join(f"Rule {i} is the same." for i in range(40))


@pytest.mark.usefixtures("folder")
class TestStage:
    """The stage, as a user's workflow runs it."""

    def test_of_pages_with_another_date_the_first_stays(self, folder, monkeypatch):
        others = [f"Text {i} has its own words: " + " ".join(map(str, range(i, i + 30))) for i in range(0, 9000, 31)]
        write_jsonl("a.jsonl", [page("1 May"), *others[:150]])
        write_jsonl("b.jsonl", [*others[150:], *(page(f"{day} June") for day in range(1, 30))])
        figures = build(files=["*.jsonl"], near_duplicates=0.8, validation_share=0.2)
        assert figures["dropped"] == {"near_duplicate": 29}
        kept = texts("train") + texts("validation")
        assert [text for text in kept if "library" in text] == [page("1 May")]
        assert 0 < figures["across_splits"] < 29
        (example, *_) = figures["examples"]["near_duplicate"]
        assert "June" in example["text"] and re.match(r"0\.9\d of: Opening hours.* 1 May", example["note"])
        assert build("off", files=["*.jsonl"])["dropped"] == {}
        monkeypatch.setattr("babelmill.corpus.workers.WORTH_IT", 0)
        assert build("four", threads=4, files=["*.jsonl"], near_duplicates=0.8, validation_share=0.2) == figures
        for name in ("train.parquet", "validation.parquet"):
            assert (folder / "four" / name).read_bytes() == (folder / "out" / name).read_bytes()

    def test_a_sample_is_filled_without_near_copies(self):
        others = [f"Text {i} has its own words: " + " ".join(map(str, range(i, i + 30))) for i in range(0, 900, 31)]
        write_jsonl("a.jsonl", [*(page(f"{day} June") for day in range(1, 300)), *others])
        figures = build(files=["a.jsonl"], near_duplicates=0.8, budget="20 documents", validation_share=0)
        assert figures["dropped"] == {"near_duplicate": 298, "over_budget": 11}
        assert figures["budget"]["realised"] == 20

    def test_near_copies_of_the_users_validation_text_are_not_for_training(self):
        write_jsonl("v.jsonl", [page("1 May"), page("2 May")])
        write_jsonl("a.jsonl", ["one document of five words", page("3 May"), page("4 May")])
        figures = build(files=["a.jsonl"], validation_files=["v.jsonl"], near_duplicates=0.8)
        assert texts("train") == ["one document of five words"]
        assert texts("validation") == [page("1 May"), page("2 May")], "the user's own choice stays as it is"
        assert figures["dropped"] == {"near_validation": 2}

    def test_paragraphs(self):
        terms = " ".join(f"Term {i} of this licence holds." for i in range(10))
        documents = [f"Story {i} begins.\n\n{terms} Page {i}.\n\nAnd so on." for i in range(5)]
        write_jsonl("a.jsonl", [*documents, "Stay.\n\nStay.", terms])
        figures = build(files=["a.jsonl"], near_duplicate_paragraphs=0.8, validation_share=0)
        short = [f"Story {i} begins.\n\nAnd so on." for i in range(1, 5)]
        assert texts("train") == [documents[0], *short, "Stay.\n\nStay."]
        assert figures["changed"] == {"near_paragraph": 4}
        assert figures["lines"] == {"near_paragraph": 5}
        assert figures["dropped"] == {"near_paragraph": 1}

    def test_what_is_left_of_documents_is_compared_again(self):
        """Neither split repeats a rest, and none repeats the user's own validation text, which loses no paragraph."""
        one, two = (" ".join(f"Term {i} of this {name} holds." for i in range(10)) for name in ("licence", "contract"))
        tail = "The same tail."
        documents = [one, two, f"{one}\n\n{tail}", f"{two}\n\n{tail}", f"{one}\n\nab"]
        write_jsonl("a.jsonl", documents)
        asked = {"files": ["a.jsonl"], "near_duplicate_paragraphs": 0.8, "min_characters": 3}
        figures = build(validation_share=0, **asked)
        assert texts("train") == [one, two, tail]
        assert figures["dropped"] == {"duplicate": 1, "short": 1}
        write_jsonl("v.jsonl", [tail, f"{one}\n\n{one}"])
        figures = build("own", validation_files=["v.jsonl"], **asked)
        assert texts("train", "own") == [two]
        assert texts("validation", "own") == [tail, f"{one}\n\n{one}"]
        assert figures["dropped"] == {"near_paragraph": 1, "in_validation": 2, "short": 1}
        write_jsonl("many.jsonl", [one, *(f"{one}\n\nTail {i // 2} of {i // 2}." for i in range(100))])
        figures = build("many", **asked | {"files": ["many.jsonl"], "validation_share": 0.4})
        assert set(texts("train", "many")).isdisjoint(texts("validation", "many"))
        assert figures["dropped"] == {"duplicate": 50}

    def test_answers_are_compared_with_their_prompts(self):
        question = "Which of these five books would you take to an island?"
        rows = [{"text": "I would take all of them with me", "prompt": f"{i}: {question}"} for i in range(3)]
        lines = [json.dumps(row) + "\n" for row in [*rows, rows[0] | {"prompt": "Who is there and what is it?"}]]
        Path("a.jsonl").write_text("".join(lines))
        asked = {"files": ["a.jsonl"], "prompt_column": "prompt", "validation_share": 0}
        assert build(near_duplicates=0.6, **asked)["dropped"] == {"near_duplicate": 2}
