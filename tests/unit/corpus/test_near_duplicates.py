"""Near copies of documents: found at any place, only where they are, and the same on any machine."""

import itertools
import random
import re

import numpy as np
import pyarrow as pa
import pytest
from test_corpus import build, texts, write_jsonl

from babelmill.corpus import near_copies
from babelmill.corpus.cleaning import Steps, prepared
from babelmill.corpus.near_copies import bands_of, shingles
from babelmill.corpus.record_batches import RowGroups, Spool, batch_of
from helpers.tables import write_table
from helpers.training.training_data import section

pytestmark = pytest.mark.usefixtures("folder")

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


def judged(documents, threshold, batch=64) -> dict:
    """The near copies among documents, by their index, as the stage finds them in a spool."""
    steps = Steps(section("corpus", near_duplicates=threshold))
    parts = [prepared(batch_of({"text": documents[i : i + batch]}), steps)[0] for i in range(0, len(documents), batch)]
    with RowGroups("spool.parquet", parts[0].schema, "lz4") as rows:
        for part in parts:
            rows.write(part, part.nbytes)
    spool, among = Spool("spool.parquet"), np.ones(len(documents), bool)
    return {row: copy for row, _, copy in near_copies.near_copies(spool, among, 0, threshold, None)}


def test_shingles_are_five_words_in_a_row(monkeypatch):
    documents = [
        "One two, three four five; six-seven eight.",
        "",
        "four words of text",
        "这是一个测试。这是一个测试",
        "ไทย text ខ្មែរ and 日本語が混ざる 𠀀𠀁𠀂 rest",
        "naïve Zürich “quoted” words\n\nin two paragraphs",
        "one two three four five " * 100_000,
    ]
    whole, bounds = shingles(pa.array(documents))
    known = {}
    for i, document in enumerate(documents):
        words = WORD.findall(document)
        expected = [tuple(words[k : k + 5]) for k in range(len(words) - 4)]
        for shingle, number in zip(expected, whole[bounds[i] : bounds[i + 1]].tolist(), strict=True):
            assert known.setdefault(shingle, number) == number
    assert len(set(known.values())) == len(known), "different words have different shingles"
    part, _ = shingles(pa.array(documents).slice(3, 2))
    assert (part == whole[bounds[3] : bounds[5]]).all(), "a text has the same shingles among any others"
    monkeypatch.setattr("babelmill.corpus.near_copies.PIECE", 40)
    assert (shingles(pa.array(documents[:6]))[0] == whole[: bounds[6]]).all(), "pieces change nothing"


def test_signatures_are_the_same_on_any_machine():
    text = pa.array(["It is a truth universally acknowledged, that a single man", "这是一个测试。这是一个测试"])
    found, _ = shingles(text)
    assert found[:2].tolist() == [4496021826516172067, 2048509359893132918]
    bands = bands_of(text, 0.8).ravel()[[0, 15, 16]].tolist()
    assert bands == [3607073502689270484, 9282922396460735104, 10453483719533548585]


def test_planted_copies():
    """Of 900 pairs: all that are similar enough are found (1 in 100 may be missed), and no others."""
    generator = random.Random(1)
    documents, similarities = [], []
    for similarity in itertools.islice(itertools.cycle((0.7, 0.8, 0.9)), 900):
        words = generator.choices(VOCABULARY, k=generator.randrange(60, 200))
        documents += [" ".join(words), " ".join(changed(words, similarity + 0.02, generator))]
        similarities.append(jaccard(*documents[-2:]))
    found = judged(documents, 0.8)
    real = {2 * i + 1 for i, similarity in enumerate(similarities) if similarity >= 0.8}
    assert 300 < len(real) < 700
    assert set(found) <= real and len(found) >= 0.99 * len(real)
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
    found = judged(documents, 0.8)
    stays = [i for i in range(len(documents)) if i not in found]
    for i in range(len(documents)):
        similar = any(jaccard(documents[i], documents[k]) >= 0.8 for k in stays if k < i)
        assert similar == (i in found)
    monkeypatch.setattr("babelmill.corpus.record_batches.ROW_GROUP", 1 << 16)
    assert judged(documents, 0.8, batch=7) == found


def test_long_texts_are_compared_by_a_sample(monkeypatch):
    monkeypatch.setattr(near_copies, "LARGEST", 2000)
    generator = random.Random(3)
    words = generator.choices(VOCABULARY, k=30_000)
    documents = [" ".join(words), " ".join(words[:27_000]), " ".join(words[10_000:])]
    found = judged(documents, 0.8)
    assert list(found) == [1]
    assert found[1].similarity == pytest.approx(0.9, abs=0.03)


def page(date) -> str:
    return f"Opening hours of the library. Printed on {date}. " + " ".join(f"Rule {i} is the same." for i in range(40))


def test_of_pages_with_another_date_the_first_stays():
    others = [f"Text {i} has its own words: " + " ".join(map(str, range(i, i + 30))) for i in range(0, 9000, 31)]
    write_jsonl("a.jsonl", [page("1 May"), *others[:150]])
    write_jsonl("b.jsonl", [*others[150:], *(page(f"{day} June") for day in range(1, 30))])
    figures = build(files=["*.jsonl"], near_duplicates=0.8, validation_share=0.2)
    assert figures["dropped"] == {"near_duplicate": 29}
    kept = texts("train") + texts("validation")
    assert [text for text in kept if "library" in text] == [page("1 May")]
    (example, *_) = figures["examples"]["near_duplicate"]
    assert "June" in example["text"] and re.match(r"0\.9\d of: Opening hours.* 1 May", example["note"])
    sample = build("sample", files=["*.jsonl"], near_duplicates=0.8, budget="20 documents")
    assert sample["budget"]["realised"] == 20 and sample["dropped"]["near_duplicate"] == 29, "not of the sample"


def test_near_copies_of_the_users_validation_text_are_not_for_training():
    write_jsonl("v.jsonl", [page("1 May"), page("2 May")])
    write_jsonl("a.jsonl", ["one document of five words", page("3 May"), page("4 May")])
    figures = build(files=["a.jsonl"], validation_files=["v.jsonl"], near_duplicates=0.8)
    assert texts("train") == ["one document of five words"]
    assert texts("validation") == [page("1 May"), page("2 May")], "the user's own choice stays as it is"
    assert figures["dropped"] == {"near_validation": 2}


def test_answers_are_compared_with_their_prompts():
    question = "Which of these five books would you take to an island?"
    rows = [{"text": "I would take all of them with me", "prompt": f"{i}: {question}"} for i in range(3)]
    write_table("a.jsonl", [*rows, rows[0] | {"prompt": "Who is there and what is it?"}])
    asked = {"files": ["a.jsonl"], "prompt_column": "prompt", "validation_share": 0}
    assert build(near_duplicates=0.6, **asked)["dropped"] == {"near_duplicate": 2}
