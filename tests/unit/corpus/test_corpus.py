"""The stage `corpus`, run as a user's workflow runs it, on small real files."""

import gzip
import hashlib
import json
import logging
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from babelmill.config.resolve import Configuration
from babelmill.core.bars import Bar
from babelmill.core.files import UserError, read_json
from babelmill.corpus import __main__ as corpus_stage
from babelmill.graph import Graph, Result
from helpers.stages import run_stage

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
    lines = [json.dumps({"text": text, **metadata}) + "\n" for text in documents]
    Path(name).write_text("".join(lines), encoding="utf-8")


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
    assert "reading: 12 documents, 0 MB" in caplog.text
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
        ("a.txt", b"bad \xff", r"a\.txt: line 1: not UTF-8: byte 0xff"),
        ("a.txt.gz", gzip.compress(b"text" * 1000, mtime=0)[:-5], r"a\.txt\.gz: damaged, .* Truncated"),
        (
            "a.jsonl.zst",
            pa.Codec("zstd").compress(b"text" * 1000, asbytes=True)[:-5],
            r"a\.jsonl\.zst: damaged, .* Truncated",
        ),
        ("a.csv", b"body\nx\n", r"a\.csv: no column 'text'; there are 'body'; set corpus\.text_column"),
        ("a.txt", b" \n", r"the corpus of eng is empty: 1 document in a\.\*; dropped: 1 empty"),
        ("a.jsonl", b"", r"the corpus of eng is empty: 0 documents in a\.\*; dropped: none"),
        ("a.doc", b"x", r"a\.doc: this file format cannot be read; allowed are "),
        (
            "a.txt",
            b"only one",
            r"eng has 1 document, and by chance none .*set corpus.document: line .*validation_share: 0.5,",
        ),
        (
            "a.jsonl",
            b'{"text": "one"}',
            r"eng has 1 document, and by chance none is in the validation split \(corpus.validation_share = [0-9.]+\); set corpus.validation_share: 0.5, or corpus",
        ),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(folder, name, content, message):
    Path(name).write_bytes(content)
    with pytest.raises(UserError, match=message):
        build(files=["a.*"])
    assert not any(path.is_file() for path in folder.glob("out/**/*"))


def test_a_glob_without_a_file(folder):
    Path("there.txt").write_text("x")
    (folder / "texts").mkdir()
    with pytest.raises(UserError, match=r"corpus\.files: texts/\*\.txt: no such file"):
        corpus_stage.expand(["there.txt", "texts/*.txt"], "files")
    with pytest.raises(UserError, match=r"this is a folder: write texts/\*\.txt"):
        corpus_stage.expand(["texts/"], "files")


def test_the_command_ends_with_one_line(folder):
    Path("a.csv").write_text("body\nx\n")
    result = asked(files=["a.csv"])
    command = [sys.executable, "-m", "babelmill.corpus", result.settings_file]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1 and not result.is_there
    assert "error: a.csv: no column 'text'" in done.stderr
    assert "Traceback" not in done.stderr


def test_order_and_bytes_are_the_same_on_every_run(folder):
    for i in (2, 0, 1, 10):
        write_jsonl(f"part{i}.jsonl", DOCUMENTS[i * 50 : i * 50 + 50], category=f"c{i}")
    build(files=["part*.jsonl", "part2.*"], validation_share=0.1)
    first = [Path("out", name).read_bytes() for name in ("train.parquet", "validation.parquet", "manifest.json")]
    kept = texts("train") + texts("validation")
    expected = [DOCUMENTS[i * 50 + k] for i in (0, 1, 10, 2) for k in range(50)]
    assert len(kept) == 200
    assert texts("train") == [text for text in expected if text in set(texts("train"))]
    assert pq.read_table("out/train.parquet")["category"][0].as_py() == "c0"
    build(files=["part*.jsonl", "part2.*"], validation_share=0.1)
    assert first == [
        Path("out", name).read_bytes() for name in ("train.parquet", "validation.parquet", "manifest.json")
    ]


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


def test_duplicates_may_stay_and_still_never_cross_the_split(folder):
    write_jsonl("a.jsonl", [*DOCUMENTS, *DOCUMENTS])
    build(files=["a.jsonl"], deduplicate=False, validation_share=0.1)
    assert len(texts("train")) + len(texts("validation")) == 2000
    assert not set(texts("train")) & set(texts("validation"))


def test_validation_files_of_ones_own_never_stand_in_training(folder):
    write_jsonl("a.jsonl", DOCUMENTS)
    write_jsonl("held_out.jsonl", [*DOCUMENTS[100:120], "another one", "another one"])
    figures = build(files=["a.jsonl"], validation_files=["held_out.jsonl"])
    assert texts("validation") == [*DOCUMENTS[100:120], "another one"]
    assert texts("train") == DOCUMENTS[:100] + DOCUMENTS[120:]
    assert figures["dropped"] == {"duplicate": 1, "in_validation": 20}
    assert [source["path"] for source in figures["sources"]] == ["a.jsonl", "held_out.jsonl"]


def test_validation_text_counts_as_the_same_after_cleaning(folder):
    write_jsonl("a.jsonl", ["caf\u0065\u0301", "tea"])
    write_jsonl("held_out.jsonl", ["caf\u00e9"])
    build(files=["a.jsonl"], validation_files=["held_out.jsonl"], normalization="NFC")
    assert texts("train") == ["tea"]


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
    write_jsonl("b.jsonl", DOCUMENTS[10:15], category="child-wiki")
    with open("b.jsonl", "a") as file:
        file.write('{"text": "without a category"}\n')
    Path("c.txt").write_text("no metadata")
    figures = build(files=["*.jsonl", "*.txt"], validation_share=0)
    table = pq.read_table("out/train.parquet")
    assert table.column_names == ["text", "category", "license", "script", "data-source", "doc-id"]
    assert table.slice(9, 1).to_pylist()[0] == {
        "text": DOCUMENTS[9],
        "category": "child-books",
        "license": "CC0-1.0",
        "script": None,
        "data-source": "x",
        "doc-id": None,
    }
    assert table["category"].to_pylist()[-3:] == ["child-wiki", None, None]
    assert figures["categories"] == {"child-books": 10, "child-wiki": 5}
    assert figures["licenses"] == {"CC0-1.0": 10}


def test_categories_select_documents(folder, caplog):
    for name in ("child-books", "child-wiki", "qed"):
        write_jsonl(f"{name}.jsonl", [f"{name} {text}" for text in DOCUMENTS[:10]], category=name)
    write_jsonl("none.jsonl", DOCUMENTS[:5])
    figures = build(files=["*.jsonl"], categories=["qed", "child-books"], validation_share=0)
    assert {text.split()[0] for text in texts("train")} == {"qed", "child-books"}
    assert figures["dropped"] == {"other_category": 15}
    build(files=["*.jsonl"], categories=["qed", "subtitles"], validation_share=0)
    assert "no document is in subtitles; the text has child-books, child-wiki, qed" in caplog.text
    with pytest.raises(UserError, match=r"no document is in subtitles; the text has child-books, child-wiki, qed"):
        build(files=["*.jsonl"], categories=["subtitles"])


def test_row_groups_are_bounded(folder):
    write_jsonl("a.jsonl", [f"{i} " * 20_000 for i in range(1000, 1600)])
    build(files=["a.jsonl"], validation_share=0)
    file = pq.ParquetFile("out/train.parquet")
    sizes = [file.metadata.row_group(i).total_byte_size for i in range(file.num_row_groups)]
    assert len(sizes) == 4
    assert max(sizes) < 20 << 20


def test_python_docs_is_real_text(folder):
    write_jsonl("a.jsonl", DOCUMENTS)
    figures = build(files=["a.jsonl"], builtin="python-docs", validation_share=0.05)
    assert figures["read"] == sum(figures["documents"].values()) + sum(figures["dropped"].values())
    assert 1_500_000 < sum(figures["bytes"].values()) < 4_000_000
    rows = pq.read_table("out/train.parquet").to_pylist()
    assert rows[0]["text"] in DOCUMENTS
    docs = [row for row in rows if row["license"] == "PSF-2.0"]
    assert len(docs) > 1000
    assert max(len(row["text"]) for row in docs) < 20_000
    assert any('The "for" statement is used to iterate' in row["text"] for row in docs)
    assert any(row["data-source"].endswith("/json/__init__") for row in docs)


def test_python_docs_is_the_same_on_every_run_and_never_imported(folder, monkeypatch):
    """A part of the library suffices: all modules are read alike, and to read them all takes eight seconds."""
    library = Path(sysconfig.get_paths()["stdlib"])
    for name in ("pydoc_data", "json", "idlelib", "lib2to3", "tkinter"):
        if (library / name).exists():  # later versions of Python lack lib2to3 and telnetlib
            shutil.copytree(library / name, folder / "library" / name)
    for path in library.glob("t*.py"):
        shutil.copy(path, folder / "library")
    shutil.copy(library / "antigravity.py", folder / "library")
    paths = {"stdlib": str(folder / "library")}
    with monkeypatch.context() as patched:
        patched.setattr(sysconfig, "get_paths", lambda: paths)
        build(files=[], builtin="python-docs", validation_share=0.05)
    sources = {row["data-source"].partition("/")[2] for row in pq.read_table("out/train.parquet").to_pylist()}
    assert {"turtle", "tkinter/__init__", "idlelib/run"} <= sources
    program = (
        "import pathlib, sys, sysconfig; from babelmill.corpus import __main__ as stage;"
        "from babelmill.core.stage_entry import Job; from babelmill.stages import CorpusStage;"
        f"sysconfig.get_paths = lambda: {paths};"
        "stage.run(Job(CorpusStage, pathlib.Path('corpus.json'), 1, 0, None));"
        "print({'this', 'antigravity', 'turtle', 'idlelib', 'lib2to3', 'telnetlib', 'tkinter'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
    assert re.fullmatch(
        r"eng: \d+ of \d+ documents \(.* %\) dropped: \d+ with the same text as an earlier one .*\n", done.stderr
    )
    assert Path("results/corpus/corpus/train.parquet").read_bytes() == Path("out/train.parquet").read_bytes()


def test_a_corpus_of_which_chance_sets_nothing_aside_says_what_to_set():
    Path("a.txt").write_text("only one\n")
    none = r"eng has 1 document, and by chance none is in the validation split \(corpus.validation_share = 0.5\); set "
    with pytest.raises(UserError, match=none + "a larger corpus.validation_share, or corpus.validation_files$"):
        build(files=["*.txt"], document="line", validation_share=0.5)


def test_lines_that_end_with_cr_alone_are_named():
    """For the reader of lines they are one line; a CR amid another file's line is none of these."""
    Path("mac.txt").write_bytes(b"one\rtwo\rthree\r")
    for document in ("line", "paragraph"):
        with pytest.raises(UserError, match=r"mac\.txt: this is text whose lines end with CR alone"):
            build(files=["mac.txt"], document=document, validation_share=0)
    Path("fine.txt").write_bytes(b"a\rb\nc\r\n")
    figures = build(files=["*.txt"], document="line", validation_share=0, on_error="skip")
    assert texts("train") == ["a\rb", "c"] and list(figures["damaged_files"]) == ["mac.txt"]


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
    assert figures["contains"] == {"nul_characters": 1, "byte_order_marks": 1} and figures["lost"] == 0
    caplog.clear()
    build(files=["a.txt"], document="line", validation_share=0, deduplicate=False, control_characters="remove")
    assert "dropped" not in caplog.text and "NUL" not in caplog.text
    assert "1 document lost control characters (corpus.control_characters)" in caplog.text


def test_a_corpus_that_loses_more_than_a_tenth_says_so(folder, caplog):
    write_jsonl("a.jsonl", DOCUMENTS[:30])
    with open("a.jsonl", "a") as file:
        file.write('{"text": "bro')
    assert build(files=["a.jsonl"], on_error="skip", validation_share=0)["lost"] == round(1 / 31, 4)
    assert "1 malformed (corpus.on_error)" in caplog.text and "a tenth" not in caplog.text
    with open("a.jsonl", "a") as file:
        file.write("\n{" * 5)
    build(files=["a.jsonl"], on_error="skip", validation_share=0)
    assert "more than a tenth of the input is lost (17 %)" in caplog.text


@pytest.mark.parametrize("kept", [0.5, 0.96])
def test_a_file_that_ends_early_is_no_share_of_the_input(folder, caplog, kept):
    """Nobody knows how much is missing."""
    noise = [f"{i} {hashlib.sha256(str(i).encode()).hexdigest()}" for i in range(20_000)]
    whole = gzip.compress("".join(json.dumps({"text": text}) + "\n" for text in noise).encode())
    Path("b.jsonl.gz").write_bytes(whole[: int(len(whole) * kept)])
    write_jsonl("a.jsonl", DOCUMENTS[:30])
    figures = build(files=["*.jsonl", "*.gz"], on_error="skip", validation_share=0, deduplicate=False)
    readable = figures["documents"]["train"]
    assert 20_000 * kept - 5000 < readable < 20_000 * kept + 80, "most of what is readable is used"
    assert "1 of 2 files could not be read to the end: b.jsonl.gz (damaged, or not what its name says)" in caplog.text
    assert "the rest of 1 file is missing, and it is not known how much that is" in caplog.text
    assert figures["cut_short"] == 1 and figures["lost"] < 0.01 and "a tenth" not in caplog.text


def test_successive_lines_are_a_document(folder):
    """No word is lost, no line is cut, and all but the last of a file have so many words."""
    lines = [" ".join(["word", *["and"] * (i % 7), str(i)]) for i in range(500)]
    Path("talk.txt").write_text("\n".join(lines) + "\n")
    Path("other.txt").write_text("a single line\n\n")
    build(files=["talk.txt", "other.txt"], document="40 words", validation_share=0.0, deduplicate=False)
    *whole, last = [text for text in texts("train") if text != "a single line"]
    assert "\n".join([*whole, last]).split("\n") == lines
    assert all(40 <= len(text.split()) < 40 + 8 for text in whole) and len(last.split()) < 40
    with pytest.raises(UserError, match=r"corpus.document = '0 words': file, paragraph, line or a number of words is"):
        build(files=["talk.txt"], document="0 words")


@pytest.mark.parametrize("threads", [1, 2])
def test_files_of_other_names_and_paragraphs(folder, threads, monkeypatch):
    """Small and large files alike, which are cut into blocks."""
    monkeypatch.setattr("babelmill.corpus.__main__.WORTH_IT", 0)
    paragraphs = [f"{text}\nSpeaker two: {i}." for i, text in enumerate(DOCUMENTS * 50)]
    Path("switchboard.train").write_text("\n\n".join(paragraphs[:1000]))
    Path("more.train.gz").write_bytes(gzip.compress("\r\n \r\n".join(paragraphs).encode()))
    figures = build(
        files=["*.train", "*.gz"],
        format="txt",
        document="paragraph",
        validation_share=0,
        deduplicate=False,
        threads=threads,
    )
    assert sorted(texts("train")) == sorted([*paragraphs[:1000], *paragraphs])
    assert figures["read"] == 51_000
    with pytest.raises(UserError, match=r"switchboard\.train: this file format cannot be read; .*corpus\.format"):
        build(files=["*.train"])


def test_a_name_that_is_not_utf_8_is_refused_before_anything_is_read(folder):
    Path(os.fsdecode(b"caf\xe9.txt")).write_text("x")
    with pytest.raises(UserError, match=r"caf\\udce9\.txt: this name is not UTF-8; rename the file"):
        build(files=["*.txt"])


def test_the_home_folder_and_relative_paths(folder, monkeypatch):
    monkeypatch.setenv("HOME", str(folder / "home"))
    Path("home/texts").mkdir(parents=True)
    Path("home/texts/a.txt").write_text("one")
    assert build(files=["~/texts/*.txt"], validation_share=0)["documents"]["train"] == 1
    assert read_json("corpus.json")["corpus"]["files"] == [f"{folder}/home/texts/*.txt"]
    with pytest.raises(UserError, match=rf"texts/\*\.txt: no such file \(relative to {folder}\)"):
        build(files=["texts/*.txt"])
    sections = {
        "corpus": {"validation_files": ["~/v"]},
        "tokenizer": {"source": "~/t.json"},
        "model": {"source": "~/m"},
        "labels": {"codes": "~/codes.csv"},
        "predict": {"inputs": {"one": "~/in.csv"}},
        "suites": {"mine": {"files": ["~/pairs.tsv"], "language": "eng", "good": "a", "bad": "b"}},
    }
    made = Configuration([("test", sections)])
    model = made.model("eng")
    assert model.source.kind == "folder" and model.source.name == f"{folder}/home/m"
    paths = [made.corpus("eng").corpus.validation_files[0], model.tokenizer.source, model.labels.codes]
    paths += [model.predict.inputs["one"].file, made.suite("mine").files[0]]
    assert [path.startswith(f"{folder}/home/") for path in paths] == [True] * 5


def test_tab_separated_text_of_another_name_is_read_without_quoting(folder):
    Path("a.tab").write_text('id\ttext\n1\t"Hello there\n2\tGoodbye now"\n3\tplain words\n')
    build(files=["a.tab"], format="tsv", validation_share=0)
    assert texts("train") == ['"Hello there', 'Goodbye now"', "plain words"]
