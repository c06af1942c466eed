"""The stage `corpus`, run as a user's workflow runs it, on small real files."""

import gzip
import hashlib
import logging
import os
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from babelmill.config.resolve import Configuration
from babelmill.core.bars import Bar
from babelmill.core.files import UserError
from babelmill.graph import Graph, Result
from helpers.stages import run_stage
from helpers.tables import write_table

pytestmark = pytest.mark.usefixtures("folder")

DOCUMENTS = [f"Document number {i} says something of its own." for i in range(1000)]


def configuration_of(**corpus) -> Configuration:
    """The configuration of a corpus of eng with these values of the section `corpus`."""
    return Configuration([("test", {"languages": {"eng": {"corpus": corpus}}})])


def build(out="out", threads=1, **corpus) -> dict:
    """Run the stage with these values of the section `corpus`; its figures."""
    return run_stage("corpus", configuration_of(**corpus), out=out, threads=threads)


def asked(**corpus) -> Result:
    """Write the settings file of the stage, and return what it asks for."""
    graph = Graph(configuration_of(**corpus))
    graph.write(result := graph.result("corpus", "eng"))
    return result


def texts(split, out="out") -> list[str]:
    return pq.read_table(Path(out, f"{split}.parquet"))["text"].to_pylist()


def write_jsonl(name, documents, **metadata) -> None:
    write_table(name, [{"text": text, **metadata} for text in documents])


def test_five_bad_rows_of_each_file_are_named(folder, caplog):
    for name in "ab":
        Path(f"{name}.jsonl").write_text('{"text": "good"}\n' + "[]\n" * 7)
    build(files=["*.jsonl"], on_error="skip", min_characters=2, validation_share=0)
    assert [caplog.text.count(f"{name}.jsonl: line") for name in "ab"] == [5, 5]


def test_every_document_is_kept_or_counted(folder, monkeypatch, caplog):
    """The corpus of every bad thing, and its manifest; how far it is is said."""
    monkeypatch.setattr(Bar, "EVERY", 0.0)
    caplog.set_level(logging.INFO)
    Path("out").mkdir()
    Path("out/.train.parquet.a05aa8di").write_text("left by a run that was killed")
    Path("bad.jsonl").write_bytes(
        b'{"text": "NA"}\n'
        b'{"text": "line\xe2\x80\xa8separator, <s> and \\u0000"}\n'
        b'{"text": "lone \\ud800"}\n'
        b'{"text": "bad \xff byte"}\n'
        b'{"text": "NA"}\n'
        b'{"text": " \\n "}\n'
        b'{"text": null}\n'
        b'{"text": "ab"}\n'
        b'{"text": "a broken last li'
    )
    Path("bad.csv").write_text("text,n\n007,1\nnull,2\ntoo,many,fields\n")
    Path("bad.txt.zst").write_bytes(pa.Codec("zstd").compress(b"whatever " * 1000, asbytes=True)[:-3])
    figures = build(files=["bad.*"], on_error="skip", min_characters=2, validation_share=0)
    assert "reading: 12 documents, 0 MB" in caplog.text and "bad.jsonl: line 4: not UTF-8: byte 0xff" in caplog.text
    assert texts("train") == ["007", "null", "NA", "line\u2028separator, <s> and \0", "lone \ufffd", "ab"]
    assert figures["read"] == 12
    assert figures["dropped"] == {"undecodable": 1, "malformed": 2, "duplicate": 1, "empty": 2}
    assert figures["read"] == figures["documents"]["train"] + sum(figures["dropped"].values())
    assert figures["changed"] == {"lone_surrogates": 1}
    assert list(figures["damaged_files"]) == ["bad.txt.zst"]
    assert figures["bytes"]["train"] == sum(len(text.encode()) for text in texts("train"))
    assert figures["words"]["train"] == sum(len(text.split()) for text in texts("train"))
    digest = hashlib.sha256(Path("bad.csv").read_bytes()).hexdigest()
    assert figures["sources"][0] == {"path": "bad.csv", "bytes": Path("bad.csv").stat().st_size, "sha256": digest}
    assert not list(Path("out").glob(".*")), "what a killed run had left is gone"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"body\nx\n", r"a\.csv: no column 'text'; there are 'body'; set corpus\.text_column"),
        ("a.txt", b" \n", r"the corpus of eng is empty: 1 document in a\.\*; dropped: 1 empty"),
        ("a.jsonl", b"", r"the corpus of eng is empty: 0 documents in a\.\*; dropped: none"),
        (
            "a.txt",
            b"one",
            r"eng has 1 document, and by chance none is .* \(corpus.validation_share = 0.02\); set a larger",
        ),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(folder, name, content, message):
    Path(name).write_bytes(content)
    with pytest.raises(UserError, match=message):
        build(files=["a.*"])
    assert not any(path.is_file() for path in folder.glob("out/**/*"))


def test_documents_come_in_the_order_of_their_files_each_of_which_is_read_once(folder):
    for i in (2, 0, 1, 10):
        write_jsonl(f"part{i}.jsonl", DOCUMENTS[i * 50 : i * 50 + 50], category=f"c{i}")
    build(files=["part*.jsonl", "part2.*"], validation_share=0.1)
    expected = [DOCUMENTS[i * 50 + k] for i in (0, 1, 10, 2) for k in range(50)]
    assert len(texts("train") + texts("validation")) == 200
    assert texts("train") == [text for text in expected if text in set(texts("train"))]
    assert pq.read_table("out/train.parquet")["category"][0].as_py() == "c0"


def test_the_split_is_stable_when_documents_are_added(folder):
    write_jsonl("b.jsonl", DOCUMENTS[:500])
    build(files=["*.jsonl"], validation_share=0.1)
    train, validation = set(texts("train")), set(texts("validation"))
    assert 30 < len(validation) < 75
    assert len(train) + len(validation) == 500
    write_jsonl("a.jsonl", [*DOCUMENTS[500:], *DOCUMENTS[100:200]])
    figures = build(files=["*.jsonl"], validation_share=0.1)
    assert train <= set(texts("train"))
    assert validation <= set(texts("validation"))
    assert not set(texts("train")) & set(texts("validation"))
    assert figures["dropped"] == {"duplicate": 100}
    build(files=["*.jsonl"], deduplicate=False, validation_share=0.1)
    assert len(texts("train")) + len(texts("validation")) == 1100, "duplicates may stay"
    assert not set(texts("train")) & set(texts("validation"))


def test_validation_files_of_ones_own_never_stand_in_training(folder):
    """Texts count as the same after cleaning."""
    write_jsonl("a.jsonl", [*DOCUMENTS, DOCUMENTS[500], "caf\u0065\u0301"])
    write_jsonl("held_out.jsonl", [*DOCUMENTS[100:120], "caf\u00e9", "caf\u00e9"])
    figures = build(files=["a.jsonl"], validation_files=["held_out.jsonl"], normalization="NFC")
    assert texts("validation") == [*DOCUMENTS[100:120], "caf\u00e9"]
    assert texts("train") == DOCUMENTS[:100] + DOCUMENTS[120:]
    assert figures["dropped"] == {"duplicate": 2, "in_validation": 21}
    assert [source["path"] for source in figures["sources"]] == ["a.jsonl", "held_out.jsonl"]


def test_cleaning_is_asked_for_and_counted(folder):
    dirty = ["cafe\u0301", "bell\x07 and\x85next\x9f", "e\x01\u0301", "as it is\r\n\t\x0c", "家", "\x01"]
    write_jsonl("a.jsonl", dirty)
    figures = build(files=["a.jsonl"], validation_share=0)
    assert texts("train") == dirty
    assert figures["changed"] == {}
    figures = build(
        files=["a.jsonl"], validation_share=0, normalization="NFC", control_characters="remove", min_characters=2
    )
    assert texts("train") == ["café", "bell and\x85next", "as it is\r\n\t\x0c"]
    assert figures["changed"] == {"normalized": 2, "control_characters": 3}
    assert figures["dropped"] == {"short": 2, "empty": 1}


def test_metadata_passes_through_and_is_counted(folder):
    write_jsonl("a.jsonl", DOCUMENTS[:10], category="child-books", license="CC0-1.0", **{"data-source": "x", "n": 1})
    Path("c.txt").write_text("no metadata")
    figures = build(files=["*.jsonl", "*.txt"], validation_share=0)
    rows = pq.read_table("out/train.parquet").to_pylist()
    known = {"category": "child-books", "license": "CC0-1.0", "script": None, "data-source": "x", "doc-id": None}
    assert rows[9] == {"text": DOCUMENTS[9], **known} and rows[10] == {"text": "no metadata", **dict.fromkeys(known)}
    assert figures["categories"] == {"child-books": 10} and figures["licenses"] == {"CC0-1.0": 10}


def test_python_docs_is_real_text(folder):
    write_jsonl("a.jsonl", DOCUMENTS)
    figures = build(files=["a.jsonl"], builtin="python-docs", validation_share=0.05)
    assert figures["read"] == sum(figures["documents"].values()) + sum(figures["dropped"].values())
    assert 1_500_000 < sum(figures["bytes"].values()) < 4_000_000
    rows = pq.read_table("out/train.parquet").to_pylist()
    assert rows[0]["text"] in DOCUMENTS
    docs = [row for row in rows if row["license"] == "PSF-2.0"]
    assert len(docs) > 1000 and max(len(row["text"]) for row in docs) < 20_000
    assert any('The "for" statement is used to iterate' in row["text"] for row in docs)
    assert any(row["data-source"].endswith("/json/__init__") for row in docs)
    assert not {"this", "antigravity", "turtle", "idlelib", "tkinter"} & {*sys.modules}, "its modules are not imported"


def test_a_file_that_several_paths_lead_to_is_read_once():
    write_jsonl("a.jsonl", DOCUMENTS[:20])
    Path("b.jsonl").symlink_to("a.jsonl")
    Path("more").mkdir()
    Path("more/up").symlink_to("..")
    globs = ["./**/*.jsonl", "b.jsonl", "more/up/a.jsonl"]
    figures = build(files=globs, deduplicate=False, validation_share=0)
    assert figures["read"] == 20 and texts("train") == DOCUMENTS[:20]


def test_what_is_dropped_is_said_with_its_key(folder, caplog):
    """Short utterances are copies of each other: as lines, a quarter of a dialogue may go."""
    Path("a.txt").write_text("yes\nno\nwell then\nyes\nyes\n\ufeffa bell\0\n")
    figures = build(files=["a.txt"], document="line", validation_share=0, min_characters=3)
    assert (
        "eng: 3 of 6 documents (50.0 %) dropped: 2 with the same text as an earlier one (corpus.deduplicate), 1 too short"
        " (corpus.min_characters, corpus.min_words)"
    ) in caplog.text
    assert "1 document with NUL characters (corpus.control_characters: remove removes them)" in caplog.text
    assert "1 document with U+FEFF, a mark that stands inside the text where files were joined" in caplog.text
    assert figures["contains"] == {"nul_characters": 1, "byte_order_marks": 1}
    caplog.clear()
    build(files=["a.txt"], document="line", validation_share=0, deduplicate=False, control_characters="remove")
    assert "dropped" not in caplog.text and "NUL" not in caplog.text
    assert "1 document lost control characters (corpus.control_characters)" in caplog.text


@pytest.mark.parametrize("name", ["b.jsonl.gz", "b.csv.gz"])
def test_a_file_that_ends_early_is_used_and_named(folder, caplog, name):
    write_jsonl("a.jsonl", DOCUMENTS[:30])
    whole = [hashlib.sha256(str(i).encode()).hexdigest() for i in range(20_000)]
    write_jsonl(name, whole)
    Path(name).write_bytes(Path(name).read_bytes()[:500_000])
    figures = build(files=["*.jsonl", "*.gz"], on_error="skip")
    assert figures["read"] > 5_000, "most of what is readable is used"
    assert {*texts("train"), *texts("validation")} == {*DOCUMENTS[:30], *whole[: figures["read"] - 30]}
    assert figures["summary"].endswith("; 1 file not read to the end")
    what = "1 of 2 files could not be read to the end, and how much is missing is not known: b."
    assert what in caplog.text and f"{name} (damaged, or" in caplog.text


def test_files_of_other_names_and_paragraphs(folder):
    paragraphs = [f"{text}\nSpeaker two: {i}." for i, text in enumerate(DOCUMENTS)]
    Path("switchboard.train").write_text("\n\n".join(paragraphs))
    Path("more.train.gz").write_bytes(gzip.compress("\r\n \r\n".join(paragraphs).encode()))
    asked = {"document": "paragraph", "validation_share": 0, "deduplicate": False}
    assert build(files=["*.train", "*.gz"], format="txt", **asked)["read"] == 2000
    assert texts("train") == [*paragraphs, *paragraphs]
    with pytest.raises(UserError, match=r"switchboard\.train: this file format cannot be read; .*corpus\.format: txt"):
        build(files=["*.train"])


def test_a_name_that_is_not_utf_8_is_refused_before_anything_is_read(folder):
    Path(os.fsdecode(b"caf\xe9.txt")).write_text("x")
    with pytest.raises(UserError, match=r"caf\\udce9\.txt: this name is not UTF-8; rename the file"):
        build(files=["*.txt"])


def test_the_home_folder_and_relative_paths(folder, monkeypatch):
    monkeypatch.setenv("HOME", str(folder / "home"))
    with pytest.raises(UserError, match=rf"texts/\*\.txt: no such file \(relative to {folder}\)"):
        build(files=["texts/*.txt"])
    sections = {"corpus": {"validation_files": ["~/v"]}, "tokenizer": {"source": "~/t"}, "model": {"source": "~/m"}}
    sections |= {"labels": {"codes": "~/codes.csv"}, "predict": {"tables": {"one": "~/in.csv"}}}
    sections |= {"suites": {"mine": {"files": ["~/pairs.tsv"], "language": "eng", "good": "a", "bad": "b"}}}
    made = Configuration([("test", sections)])
    model = made.model("eng")
    paths = [made.corpus("eng").corpus.validation_files[0], model.tokenizer.source, model.labels.codes]
    paths += [model.predict.tables["one"], made.suite("mine").files[0], model.model.source]
    assert [path.startswith(f"{folder}/home/") for path in paths] == [True] * 6
