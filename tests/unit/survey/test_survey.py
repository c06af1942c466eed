"""What `babelmill corpus` finds in planted text: every figure against a plain count of the same documents."""

import itertools
import json
import random
import unicodedata
from collections import Counter
from pathlib import Path

import fontTools.unicodedata
import numpy as np
import pytest
from ftfy.badness import badness

from babelmill.commands import corpus as command
from babelmill.config.resolve import Configuration
from babelmill.corpus import workers
from babelmill.graph import Graph
from babelmill.survey import characters, walk
from babelmill.survey.findings import SHOWN, quantile
from babelmill.survey.measures import language_of
from helpers.stages import write_corpus

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("folder")]

DUTCH = ["de kat zit op de mat en kijkt naar buiten", "het regent al de hele dag", "wij gaan morgen naar de markt"]
GREEK = ["η γάτα κάθεται στο χαλί και κοιτάζει έξω", "βρέχει όλη την ημέρα", "αύριο θα πάμε στην αγορά"]


def planted() -> list[dict]:
    """Documents of two languages, with copies, repeated lines, odd characters and a wrong encoding among them."""
    draw = random.Random(3)
    documents = []
    for i in range(300):
        sentences = GREEK if i % 5 == 0 else DUTCH
        lines = [f"{draw.choice(sentences)}, {draw.randrange(10**6)}" for _ in range(draw.randrange(1, 9))]
        lines += ["  Lees meer » "] * (i % 4 == 0) + ["dubbel", "dubbel"] * (i % 50 == 0)
        documents.append({"text": "\n".join(lines), "category": f"c{i % 3}", "data-source": "a" if i < 100 else None})
    documents[7]["text"] += "\x07\x00 \ufffd\ufffd \ue123 \u0378"
    documents[8]["text"] += " cafÃ© voilÃ\xa0 naÃ¯ve"
    documents[9]["text"] = "1234 !!"
    documents[10]["text"] = "x" * 500 + " y"
    documents[11]["text"] += " " + "мир " * 30
    return [*documents, *documents[20:25]]


def graph_of(**corpus) -> Graph:
    return Graph(Configuration([("test", {"languages": {"nld": {"corpus": corpus}}})]))


def look(documents: list[dict], files: int = 3, threads: int = 1, made: bool = False, **values) -> dict:
    """The numbers of documents, written to so many files."""
    for i in range(files):
        rows = documents[i::files]
        Path(f"{i}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    corpus = {"files": ["*.jsonl"], **values}
    return command.look(graph_of(**corpus), "nld", made, threads)


def script(character: str) -> str | None:
    """The script of a letter, or None."""
    found = fontTools.unicodedata.script(character)
    return found if unicodedata.category(character)[0] in "LM" and found not in ("Zyyy", "Zinh") else None


def test_every_figure_is_that_of_a_plain_count():
    documents = planted()
    texts = [document["text"] for document in documents]
    found = look(documents, min_characters=10**6, categories=["none"], deduplicate=True)
    assert found["documents"] == len(texts) == found["judged"] and found["read"]["dropped"] == {}
    assert found["bytes"] == sum(len(text.encode()) for text in texts)
    assert found["characters"] == sum(map(len, texts)) and found["words"] == sum(len(text.split()) for text in texts)
    for unit, lengths in (("characters", [*map(len, texts)]), ("words", [len(text.split()) for text in texts])):
        for share in walk.QUANTILES:
            expected = np.quantile(lengths, share, method="inverted_cdf")
            assert found["lengths"][unit][f"{share:.0%}"] == expected, (unit, share)
        assert [found["lengths"][unit][key] for key in ("least", "most", "mean")] == [min(lengths), max(lengths), round(np.mean(lengths), 1)]  # fmt: skip
    for column in found["histogram"]:
        assert column["documents"] == sum(column["from"] <= len(text) < column["below"] for text in texts)
    assert sum(column["documents"] for column in found["histogram"]) == len(texts)

    letters = [Counter(filter(None, map(script, text))) for text in texts]
    assert found["letters"] == sum(letters, Counter())
    assert found["scripts"] == Counter(max(each, key=each.__getitem__, default="") for each in letters)
    judged = [language_of(text) if each.total() >= 20 else "too short" for text, each in zip(texts, letters, strict=True)]  # fmt: skip
    assert {code: each["documents"] for code, each in found["languages"].items()} == Counter(judged)
    assert judged.count("nl") > 200 and judged.count("el") > 50
    assert sum(each["bytes"] for each in found["languages"].values()) == found["bytes"]
    counts = {"control": 2, "replacement": 2, "private": 1, "unassigned": 1, "any": 6}
    assert found["odd_characters"] == {kind: {"characters": n, "documents": 1} for kind, n in counts.items()}
    places = [badness(text) for text in texts]
    assert found["mojibake"] == {"places": sum(places), "documents": sum(each > 0 for each in places)}
    assert places[8] >= 3

    assert found["copies"] == len(texts) - len(set(texts)) == 5
    lines = [[line.strip() for line in text.split("\n") if line.strip()] for text in texts]
    holding = Counter(itertools.chain.from_iterable(map(set, lines)))
    assert found["lines"] == {
        "lines": sum(map(len, lines)),
        "repeated_in_document": sum(len(each) - len(set(each)) for each in lines),
        "in_documents": holding.total(),
        "different": len(holding),
        "in_several_documents": sum(number for number in holding.values() if number > 1),
    }
    shown = {each["text"]: each["documents"] for each in found["frequent_lines"]}
    assert [*shown.items()][:2] == holding.most_common(2) == [("Lees meer »", shown["Lees meer »"]), ("dubbel", 6)]
    assert len(shown) == SHOWN and all(holding[text] == number for text, number in shown.items())
    for column, values in (("category", {"c0", "c1", "c2"}), ("data-source", {"a", "(none)"})):
        groups = found["groups"][column]
        assert set(groups) == values and "license" not in found["groups"]
        for value, group in groups.items():
            mine = [each["text"] for each in documents if (each[column] or "(none)") == value]
            assert group == {"documents": len(mine), "bytes": sum(len(text.encode()) for text in mine)}


def test_nothing_depends_on_processes_or_files(monkeypatch):
    monkeypatch.setattr(workers, "WORTH_A_VIEW", 0)
    documents = planted()
    one = look(documents)
    Path("2.jsonl").unlink()
    other = look(documents[::-1], files=2, threads=2)
    assert {**one, "read": {}} == {**other, "read": {}}
    texts = [document["text"] for document in documents]
    assert len({each["text"] for each in one["random"]}) == SHOWN
    assert all(any(text.startswith(each["text"]) for text in texts) for each in one["random"])


def test_a_quantile_is_a_length_that_exists():
    assert [quantile(Counter({1: 2, 5: 2}), share) for share in (0.5, 0.51, 1)] == [1, 5, 5]


def test_near_copies_are_counted_also_across_the_splits():
    draw = random.Random(5)
    words = [[f"w{draw.randrange(10**6)}" for _ in range(200)] for _ in range(40)]
    near = [[*text[:-3], "another", "end", "here"] for text in words[:7]]
    documents = [{"text": " ".join(text)} for text in [*words, *near, words[0]]]
    found = look(documents, files=1)["near_copies"]
    assert (found["documents"], found["validation_like_training"]) == (8, 0)
    assert {each["text"][:50] for each in found["examples"]} == {" ".join(text)[:50] for text in words[:7]}
    assert all(each["of"][:50] == each["text"][:50] and 0.8 <= each["similarity"] < 1 for each in found["examples"])
    of_its_own = " ".join(f"v{i}" for i in range(50))  # a copy, but in the same split
    rows = [json.dumps({"text": text}) + "\n" for text in (" ".join(near[0]), of_its_own, of_its_own)]
    Path("validation.jsonl.x").write_text("".join(rows))
    found = look(documents[:40], files=1, validation_files=["validation.jsonl.x"], format="jsonl")
    counted = {key: found["near_copies"][key] for key in ("documents", "validation_like_training")}
    assert found["documents"] == 43 and counted == {"documents": 2, "validation_like_training": 1}


def test_the_oddest_document_comes_first():
    documents = planted()
    documents[30]["text"] = "\n".join(["alweer dezelfde regel"] * 40)
    found = look(documents)["oddest"]
    first = {kind: entries[0] for kind, entries in found.items()}
    assert first["longest_word"]["text"].startswith("x" * 300) and first["longest_word"]["value"] == 500
    assert "\x07\x00 \ufffd" in first["odd_characters"]["text"] and "cafÃ©" in first["mojibake"]["text"]
    assert first["few_letters"]["text"] == first["shortest"]["text"] == "1234 !!"
    assert first["repeated_lines"]["value"] == pytest.approx(39 / 40)
    assert "мир" in first["mixed_scripts"]["text"]
    assert first["longest"]["characters"] == max(len(each["text"]) for each in documents)
    assert len(found["odd_characters"]) == 1


def test_long_documents_are_counted_in_parts(monkeypatch):
    draw = random.Random(1)
    alphabet = "ab \n\u3000é漢\u200b\0\ue000\ufffd.д"
    texts = ["".join(draw.choice(alphabet) for _ in range(draw.randrange(60))) for _ in range(500)]
    monkeypatch.setattr(characters, "CHUNK", 17)
    found = characters.count(texts)
    for i, text in enumerate(texts):
        words = text.split()
        assert found.words[i] == len(words)
        assert found.longest[i] == max(map(len, words), default=0)
        longest = text[found.longest_at[i] :][: found.longest[i]]
        assert not words or longest == max(words, key=len)
        assert found.letters[i, characters.SCRIPTS.index("Hani")] == text.count("漢")
        assert found.odd[i].tolist() == [text.count("\0"), text.count("\ufffd"), text.count("\ue000"), 0]


def test_a_sample_is_judged_of_much_text(monkeypatch):
    documents = planted()
    monkeypatch.setattr(walk, "JUDGED", 10_000)
    found = look(documents)
    assert found["judged"] > 0 and "nl" in found["languages"]
    share = 10_000 / sum(Path(f"{i}.jsonl").stat().st_size for i in range(3))
    assert 0.5 * share < found["judged"] / len(documents) < 2 * share
    assert sum(each["documents"] for each in found["languages"].values()) == found["judged"]


def test_a_line_of_many_characters_and_a_document_of_many_lines():
    """Stand-ins for 10^7 characters and 500 MB: what takes the square of the length would never end."""
    documents = [{"text": text} for text in ("x" * 300_000, "é&Ã " * 100_000, "a\n" * 300_000, "\u0301" * 300_000)]
    found = look(documents)
    assert found["characters"] == 300_000 * 2 + 400_000 + 600_000
    assert found["oddest"]["longest_word"][0]["value"] == 300_000


def test_copies_across_the_splits_of_a_corpus_are_counted(folder):
    text = " ".join(f"w{i}" for i in range(200))
    Path("0.jsonl").write_text(json.dumps({"text": text}) + "\n")
    corpus = graph_of(files=["*.jsonl"]).result("corpus", "nld").path
    write_corpus(corpus, {"text": [text, "a b"]}, {"text": [f"{text} end"]})
    found = look([{"text": text}], files=1, made=True)
    assert (found["documents"], found["near_copies"]["validation_like_training"]) == (3, 1)
    assert [path.name for path in Path("reports/corpora").iterdir()] == [], "temporary files are gone"
