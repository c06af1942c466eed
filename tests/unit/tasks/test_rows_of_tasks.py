"""Where the rows of a task come from, what is counted of them, and what is refused in a line."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from babelmill.config.datasets import rows_of_task, task_note
from babelmill.config.resolve import Configuration
from babelmill.core import manifest
from babelmill.core.files import UserError
from babelmill.graph import Graph
from babelmill.stages import TaskStage
from babelmill.task import figures, read
from babelmill.tasks import conll, rows
from babelmill.tasks.rows import read_rows, resplit
from helpers.programs.prepared import run_module

MINE = {"train": ["own.tsv"], "test": ["test.tsv"], "language": "eng", "text": "{a}", "label": "b"}
WORDS = {"kind": "tagging", "train": ["own.conll"], "test": ["test.conll"], "language": "eng", "label": 2}
UD = {"kind": "tagging", "train": ["own.conllu"], "test": ["own.conllu"], "language": "eng", "resplit": {"rows": 10}}


def rows_of(name: str, **top) -> dict:
    values = {"models": {"eng": {"evaluation": {"tasks": [name]}}}} | top
    return rows_of_task(Configuration([("config/config.yaml", values)]), "eng", name)


def test_a_missing_file_is_named_with_the_task_and_the_key(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for top, text in (
        ({}, r"evaluation_data = '': the task rte needs the BabyLM challenge's folder"),
        ({"evaluation_data": "data"}, r"config/config.yaml: evaluation_data = 'data': no such folder; docs/challenge"),
    ):
        with pytest.raises(UserError, match=text):
            rows_of("rte", **top)
    Path("data [1]/full_eval/glue_filtered").mkdir(parents=True)
    message = r"config/config.yaml: evaluation_data: rte: task file .*/rte\.train\.jsonl: no such file"
    with pytest.raises(UserError, match=message):
        rows_of("rte", evaluation_data="data [1]")
    for split in ("train", "valid"):
        row = '{"sentence1": "a", "sentence2": "b", "label": 0}\n'
        Path(f"data [1]/full_eval/glue_filtered/rte.{split}.jsonl").write_text(row)
    assert len(rows_of("rte", evaluation_data="data [1]")["sources"]) == 2
    with pytest.raises(UserError, match=r"config/config.yaml: tasks.mine: task file own.tsv: no such file"):
        rows_of("mine", tasks={"mine": MINE})
    Path("config/tasks").mkdir(parents=True)  # the user's own file
    Path("test.tsv").write_text("a\tb\nx\ty\n")
    Path("own.tsv").write_text("a\tb\nx\ty\n")
    for more, said in (
        ({"train": ["none.tsv"]}, "task file none.tsv: no such file"),
        ({"test": ["own.tsv"], "repository": "org/rows"}, "test = own.tsv: another file than those of `train`"),
    ):
        Path("config/tasks/filed.yaml").write_text(json.dumps(MINE | more))
        with pytest.raises(UserError, match=f"^config/tasks/filed.yaml: {said}"):
            rows_of("filed")


@pytest.mark.parametrize(
    "more", [{"test": ["own.tsv"]}, {"test": ["link.tsv"]}, {"test": ["own.tsv"], "repository": "a/b"}]
)
def test_a_file_that_is_trained_and_tested_on_is_refused(folder, more):
    Path("own.tsv").write_text("a\tb\nx\ty\n")
    if "link.tsv" in more["test"]:
        Path("link.tsv").symlink_to("own.tsv")
    with pytest.raises(UserError, match=r"^config/config.yaml: tasks\.mine\.test = .*\.tsv: another file"):
        rows_of("mine", tasks={"mine": MINE | more})


COLUMNS = {"text": "{a}", "label": "b"}


def asked(**more) -> TaskStage:
    return TaskStage(languages=["eng"], task="mine", columns=COLUMNS, **more)


def rows_in(labels: str | list[str], texts: list[str] | None = None) -> pa.Table:
    found = zip(texts or [f"text {number}" for number in range(len(labels))], labels, strict=True)
    return pa.Table.from_pylist(
        [{"text": text, "label": label, "whole": bool(text)} for text, label in found], rows.SCHEMA
    )


def sentences_in(*labels: str) -> pa.Table:
    """Sentences with a label, of one letter, for each word."""
    return pa.Table.from_pylist([{"words": [*each.lower()], "labels": [*each]} for each in labels], conll.SCHEMA)


@pytest.mark.parametrize(
    ("train", "test", "line"),
    [
        ("ab", "abc", "the test rows have labels that no training row has: c; the classes are a, b"),
        ("aa", "a", "all training rows have the label 'a'; add others"),
        (["0", "1", "-1"], "0", "1 row have the label -1, which stands for no label; leave them out, or write names"),
        (["0", "1.5"], "0", r"labels are decimals \(0, 1.5\), as of a regression; write names if they are"),
    ],
)
def test_labels_that_no_classification_has(train, test, line):
    with pytest.raises(UserError, match=f"^tasks.mine, eng: {line}"):
        figures({"train": rows_in(train), "test": rows_in(test)}, asked())
    assert figures({"train": rows_in(["-1", "1"]), "test": rows_in("1", ["x"])}, asked())["classes"] == ["-1", "1"]
    assert figures({"train": rows_in(["0.0", "1.0"]), "test": rows_in(["1.0"], ["x"])}, asked())["rows"]["test"] == 1


def test_labels_that_only_the_test_words_have(caplog):
    """A rare one is a class that counts as wrong; many are a mistake. Names need labels that mark them."""
    tagging, train = asked(kind="tagging"), sentences_in("ABA")
    found = figures({"train": train, "test": sentences_in("A" * 99 + "C")}, tagging)
    assert found["classes"] == ["A", "B", "C"] and found["words"] == {"train": 3, "test": 100}
    assert "labels that no training row has: C; 1 such word count" in caplog.text
    for test, spans, line in (
        ("A" * 98 + "CC", False, "tasks.mine, eng: the test rows have labels that no training row has: C"),
        ("AB", True, "metric = span_f1: labels such as B-PER, I-PER and O are expected; these files"),
    ):
        with pytest.raises(UserError, match=line):
            figures({"train": train, "test": sentences_in(test)}, asked(kind="tagging", spans=spans))


def test_rows_that_are_trained_on_or_lack_a_text_are_counted():
    """Rows that differ in case or blanks alone are copies, too; if all are, the task is refused."""
    train = rows_in("abab", ["It rains.", "No", "x y", "z"])
    found = figures({"train": train, "test": rows_in("abb", ["it  rains.", "", "Yes"])}, asked())
    assert found["test_rows_in_train"] == 1 and found["test_rows_without_text"] == 1
    with pytest.raises(UserError, match="mine, eng: all 2 test rows are training rows, too"):
        figures({"train": train, "test": rows_in("ab", ["IT RAINS.", " no"])}, asked())
    tagging = {"train": sentences_in("AB", "BA"), "test": sentences_in("AB", "BB")}
    assert figures(tagging, asked(kind="tagging"))["test_rows_in_train"] == 1


@pytest.mark.parametrize(
    ("row", "line"),
    [
        ('{"a": "x", "b": " "}', r"a\.jsonl: line 1: the label \('b'\) is empty; leave such rows out"),
        ('{"a": "x", "b": null}', "is empty"),
        ('{"a": "x", "b": "NA"}', "is 'NA', which stands for no label; leave such rows out, or give the class a name"),
        ("", r"a\.jsonl: tasks\.mine: these files have no rows"),
    ],
)
def test_rows_without_a_label_are_refused(tmp_path, row, line):
    (tmp_path / "a.jsonl").write_text(row)
    with pytest.raises(UserError, match=line):
        read([tmp_path / "a.jsonl"], asked())


def test_letters_that_are_composed_in_two_ways_are_one_label_and_missing_texts_are_told_apart(tmp_path):
    found = [{"a": "x", "b": "caf\u00e9"}, {"a": None, "b": "cafe\u0301"}, {"a": "", "b": "caf\u00e9"}]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, found)))
    table = read_rows(tmp_path / "a.jsonl", COLUMNS, "mine")
    assert {*table["label"].to_pylist()} == {"caf\u00e9"} and table["whole"].to_pylist() == [True, False, False]


def test_two_versions_of_one_file_are_named(tmp_path):
    """A second download, or a release beside another: its rows would count twice. A few equal rows are none."""
    for name, count in (("a", 4), ("a (1)", 6), ("b", 9)):
        body = [f"{name if name == 'b' and row > 1 else 'a'} {row}\t{row % 2}" for row in range(count)]
        (tmp_path / f"{name}.tsv").write_text("\n".join(["a\tb", *body]) + "\n")
    assert len(read([tmp_path / "a.tsv", tmp_path / "b.tsv"], asked())) == 13
    line = r"a \(1\)\.tsv: tasks\.mine: 4 of its 6 rows are in .*a\.tsv, too; name only one"
    with pytest.raises(UserError, match=line):
        read([tmp_path / "a.tsv", tmp_path / "a (1).tsv"], asked())


def test_rows_are_divided_as_in_the_multilingual_track():
    """The numbers are those of its `make_pos_split` with 50 rows, of which 40 are kept, and the seed 42."""
    parts = resplit(pa.table({"row": [*range(50)]}), 40, 42)
    found = {name: table["row"].to_pylist() for name, table in parts.items()}
    assert found["train"][:8] == [41, 32, 9, 34, 6, 26, 37, 42] and len(found["train"]) == 32
    assert found["test"] == [4, 45, 22, 30] and found["predicted"] == [29, 39, 35, 27]


def test_a_task_of_other_languages_is_an_error_only_where_a_model_names_it():
    tasks = {"tasks": {"mine": MINE | {"language": "deu"}}}
    named = {"models": {"eng": {"evaluation": {"tasks": ["mine"]}}}}
    with pytest.raises(UserError, match=r"models\.eng: evaluation\.tasks = mine: a task with rows of eng is expected"):
        Configuration([("config/config.yaml", tasks | named)]).model("eng")
    everywhere = Configuration([("config/config.yaml", tasks | {"evaluation": {"tasks": ["mine"]}})])
    assert not everywhere.model("eng").tuned and list(everywhere.model("deu").tuned) == ["mine"]
    assert "not fine-tuned for mine" in str(task_note(everywhere, "eng"))


@pytest.mark.parametrize(
    ("task", "line"),
    [
        (MINE | {"train": ["own.conllu"]}, r"tasks.mine.kind = .*own\.conllu.*: tagging: these files have words"),
        (MINE | {"train": ["own.conll.gz"]}, r"tasks.mine.kind = .*own\.conll\.gz.*: tagging: these files have words"),
        (WORDS | {"train": ["own.jsonl"]}, "with tagging, CoNLL-U or CoNLL files, which have a word and its label"),
        (WORDS | {"test": ["own.csv.gz"]}, "with tagging, CoNLL-U or CoNLL files, which have a word and its label"),
        (MINE | {"text": "{a} {b}"}, "tasks.mine.label = 'b', .*: a column that the texts do not show"),
    ],
)
def test_files_of_another_kind_and_labels_in_texts(folder, task, line):
    with pytest.raises(UserError, match=f"^config/config.yaml: .*{line}"):
        rows_of("mine", tasks={"mine": task})


def test_rows_of_the_hub_come_in_the_order_of_the_patterns(hub, folder):
    files = {f"{name}.tsv": f"a\tb\n{name}\tx\n{name} too\ty\n".encode() for name in ("one", "two", "test")}
    commit = hub.commit("datasets/lab/rows", files)
    task = MINE | {"train": ["tw*", "*o*.tsv"], "test": ["test.tsv"], "repository": "lab/rows"}
    values = {"tasks": {"mine": task}, "models": {"eng": {"evaluation": {"tasks": ["mine"]}}}}
    graph = Graph(Configuration([("test", values)]))
    result = graph.result("task", "eng", "mine")
    graph.write(result)
    run_module("babelmill.task", result.settings_file, cwd=Path.cwd(), check=True)
    assert pq.read_table(result.path / "train.parquet")["text"].to_pylist() == ["two", "two too", "one", "one too"]
    found = manifest.verify(result.path)["figures"]
    assert found["hub"] == {"repository": "lab/rows", "revision": "main", "commit": commit} and not found["sources"]


def test_a_template_may_hold_the_name_of_the_file(tmp_path):
    (tmp_path / "news.tsv").write_text("a\tb\nIt rains.\tweather\n")
    (row,) = read_rows(tmp_path / "news.tsv", {"text": "{file}: {a}", "label": "b"}, "mine").to_pylist()
    assert row == {"text": "news: It rains.", "pair": None, "label": "weather", "whole": True}
