"""The named steps of the stage `corpus` that change text: repair, cleaners by category; and what is said of each."""

import functools
import itertools
from pathlib import Path

import pytest
from test_corpus import build as build_corpus
from test_corpus import texts as texts_of

from babelmill.core.files import UserError
from babelmill.corpus import cleaners
from babelmill.corpus.tally import MOST
from helpers.tables import write_table

pytestmark = pytest.mark.usefixtures("folder")
build, texts = functools.partial(build_corpus, validation_share=0), functools.partial(texts_of, "train")


def write(name, documents, categories=None) -> None:
    """A file of documents with a category each."""
    categories = categories or ["child-books"] * len(documents)
    rows = [{"text": text, "category": category} for text, category in zip(documents, categories, strict=True)]
    write_table(name, rows)


def test_repair_undoes_wrong_encodings_and_leaves_what_is_only_unusual():
    broken = "The cafÃ© isnâ€™t open."
    write("a.jsonl", ["1 < 2\r\nfish &amp; chips&#x81;\n"])
    build(files=["a.jsonl"], repair="ftfy", control_characters="remove")
    assert texts() == ["1 < 2\r\nfish & chips\n"], "repair may find a control character"
    untouched = ["「全角，です」ﬁ “quoted” \u2028", "plain", "Ünïcödé & so on, naïve Übermut"]
    write("a.jsonl", [broken, *untouched])
    assert build(files=["a.jsonl"])["changed"] == {} and texts()[0] == broken
    figures = build(files=["a.jsonl"], repair="ftfy")
    assert texts() == ["The café isn’t open.", *untouched]
    assert figures["changed"] == {"repair": 1}
    assert figures["examples"] == {"repair": [{"text": broken, "after": "The café isn’t open."}]}
    write("a.jsonl", ["a" * 10**6 + "Ã©" + "b" * 10**6])
    [example] = build(files=["a.jsonl"], repair="ftfy")["examples"]["repair"]
    assert "Ã©" in example["text"] and "aéb" in example["after"] and len(example["text"]) == 200


@pytest.mark.parametrize(
    ("kind", "before", "after", "steps"),
    [
        ("speech", "*MOT:\tlook  at it .\n%act: points\n\n*CHI:\tda “ball” .", '*MOT:\tlook at it .\n*CHI:\tda "ball" .', {"annotations", "punctuation", "spaces", "blank_lines"}),
        ("subtitles", "00:01:02,500 --> 00:01:04,000\n- MARY: <i>Run!</i>\n♪ la la ♪\n[Applause]\nHe said: it is 10:30.", "- Run!\nla la\nHe said: it is 10:30.", {"timestamps", "speaker_labels", "tags", "music_notes", "stage_directions", "spaces", "blank_lines"}),
        ("dialogue", "A:\tYeah.\nJohn Smith: No… really", "Yeah.\nNo... really", {"speaker_labels", "punctuation"}),
        ("prose", "See <b>it</b> at https://example.org/x?y and a < b > c.", "See it at and a < b > c.", {"tags", "urls", "spaces"}),
    ],
)  # fmt: skip
def test_each_kind_of_text_has_its_cleaners(kind, before, after, steps):
    write("a.jsonl", [before, "Nothing to do here."])
    figures = build(files=["a.jsonl"], cleaners=kind)
    assert texts() == [after, "Nothing to do here."]
    assert figures["changed"] == dict.fromkeys(steps, 1) and set(figures["examples"]) == steps


@pytest.mark.parametrize(
    ("step", "before", "after"),
    [
        ("urls", "请访问https://x.com，然后点击下面的链接。这是第二句。", "请访问，然后点击下面的链接。这是第二句。"),
        ("urls", "看www.x.com/a-b_c?d=1。好", "看。好"),
        ("urls", "(see https://x.org/a, or https://ru.wikipedia.org/wiki/Москва). More", "(see , or ). More"),
        ("urls", "awww. http://", "awww. http://"),
        ("speaker_labels", "他说: 走吧\nقال أحمد: نعم\nÅsa: ja", "他说: 走吧\nقال أحمد: نعم\nja"),
        ("tags", "one<br>two</p><p class='x'>three", "one\ntwo\nthree"),
        ("tags", "<P>one</P>\n\n<P>two <b>bold</b><BR />\nthree</P>\n", "one\n\ntwo bold\nthree"),
        ("tags", 'a <a href="x" id=y>link</a> <c.colorE5E5E5>hm</c>\n', "a link hm\n"),
        ("tags", "if x <y and z> w, a<b>c", "if x <y and z> w, ac"),
    ],
)  # fmt: skip
def test_cleaners_leave_what_is_text(step, before, after):
    assert cleaners.STEPS[step](before) == after


def test_the_category_of_a_document_decides_on_its_cleaners():
    line = "ANN: hi <b>there</b>"
    write("a.jsonl", [f"{line} {i}" for i in range(4)], ["subtitles", "padding-wikipedia", "something-else", None])
    figures = build(files=["a.jsonl"], cleaners="by_category")
    assert texts() == ["hi there 0", "ANN: hi there 1", f"{line} 2", f"{line} 3"]
    assert figures["changed"] == {"speaker_labels": 1, "tags": 2}


def test_cleaners_take_time_in_proportion_to_the_longest_line():
    """Each of these lines takes hours where a pattern tries every end of every beginning."""
    hostile = [part * 200_000 for part in ("<", "[", "<a", ".", "	 ", "www.", " ", "<a b=", "<p>", "www.!", "\n")]
    hostile += [start + part * 200_000 for start, part in (("<a", " "), ("<a", " b=c"), ("<a b='", "x"), ("<", "a"))]
    for text, step in itertools.product(hostile, cleaners.STEPS.values()):
        step(text + "x")


def test_examples_do_not_depend_on_processes_or_the_order_of_files(monkeypatch):
    monkeypatch.setattr("babelmill.corpus.__main__.WORTH_IT", 0)
    documents = [f"Number {i}: cafÃ© " + "x" * 300 for i in range(600)]
    for order in ("abc", "cba"):
        Path(order).mkdir()
        for i, name in enumerate(order):
            write(f"{order}/{name}.jsonl", documents[i::3])
    found = [build(out=f"out{i}/x", threads=threads, files=[f"{order}/*"], repair="ftfy") for i, (order, threads) in enumerate([("abc", 1), ("abc", 3), ("cba", 1)])]  # fmt: skip
    assert found[0]["examples"] == found[1]["examples"] == found[2]["examples"]
    assert len(found[0]["examples"]["repair"]) == MOST and found[0]["changed"]["repair"] == 600
    assert all(len(example["text"]) <= 200 for example in found[0]["examples"]["repair"])


def test_categories_are_chosen_or_left_out_and_one_that_does_not_exist_is_named(caplog):
    names = ["subtitles", "padding-wikipedia", "padding-x", "child-books", None]
    write("a.jsonl", [f"Text number {i}" for i in range(5)], names)
    figures = build(files=["a.jsonl"], categories=["-padding-*"])
    assert texts() == ["Text number 0", "Text number 3", "Text number 4"]
    assert figures["dropped"] == {"other_category": 2}
    build(files=["a.jsonl"], categories=["subtitles", "padding-x", "-padding-*"])
    assert texts() == ["Text number 0"]
    there = "the text has child-books, padding-wikipedia, padding-x, subtitles"
    build(files=["a.jsonl"], categories=["-paddings"])
    assert f"no document is in -paddings; {there}" in caplog.text
    with pytest.raises(UserError, match=rf"no document is in -paddings\*, books; {there}"):
        build(files=["a.jsonl"], categories=["books", "-paddings*"])
