"""Where the rows of a task come from, and what is said if they are not there."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

from babelmill.config.datasets import rows_of_task, task_note
from babelmill.config.resolve import Configuration
from babelmill.core.files import UserError
from babelmill.task import figures, rows_trained_on
from babelmill.tasks.rows import read_rows

MINE = {"train": ["own.tsv"], "test": ["test.tsv"], "language": "eng", "text": "{a}", "label": "b"}
WORDS = {"kind": "tagging", "train": ["own.conll"], "test": ["test.conll"], "language": "eng", "label": 2}
UD = {"kind": "tagging", "train": ["own.conllu"], "test": ["own.conllu"], "language": "eng", "resplit": {"rows": 10}}


def rows_of(name: str, **top) -> dict:
    values = {"models": {"eng": {"evaluation": {"tasks": [name]}}}} | top
    return rows_of_task(Configuration([("config/config.yaml", values)]), "eng", name)


def test_a_missing_file_is_named_with_the_task_and_the_key(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for top, text in (
        ({}, r"evaluation_data = '': .* the task rte needs it"),
        ({"evaluation_data": "data"}, r"config/config.yaml: evaluation_data = 'data': a folder with full_eval or"),
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
    Path("test.tsv").write_text("a\tb\nx\ty\n")
    Path("own.tsv").write_text("a\tb\nx\ty\n")
    Path("config/tasks").mkdir(parents=True)  # the user's own file
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


def test_a_split_without_rows_is_refused_by_the_stage(tmp_path):
    (tmp_path / "a.tsv").write_text("a\tb\n")
    with pytest.raises(UserError, match=r"a\.tsv: tasks\.mine: these files have no row"):
        read_rows([tmp_path / "a.tsv"], {"text": "{a}", "label": "b"}, "mine")


def test_labels_of_the_test_rows_that_nobody_has_learnt():
    def table(labels: str) -> pa.Table:
        return pa.table({"text": [*labels], "pair": [None] * len(labels), "label": [*labels]})

    with pytest.raises(UserError, match="test rows have labels that no training row has: c; the classes are a, b"):
        figures({"train": table("ab"), "test": table("abc")})
    with pytest.raises(UserError, match="all training rows have the label 'a': there is nothing to learn"):
        figures({"train": table("aa"), "test": table("a")})


def test_a_task_of_other_languages_is_an_error_only_where_a_model_names_it():
    tasks = {"tasks": {"mine": MINE | {"language": "deu"}}}
    named = {"models": {"eng": {"evaluation": {"tasks": ["mine"]}}}}
    with pytest.raises(UserError, match=r"models\.eng: evaluation\.tasks = mine: a task with rows of eng is expected"):
        Configuration([("config/config.yaml", tasks | named)]).model("eng")
    everywhere = Configuration([("config/config.yaml", tasks | {"evaluation": {"tasks": ["mine"]}})])
    assert not everywhere.model("eng").tuned and list(everywhere.model("deu").tuned) == ["mine"]
    assert "not fine-tuned for mine" in str(task_note(everywhere, "eng"))


def test_a_file_of_words_needs_the_kind_tagging(folder):
    for name in ("own.conllu", "own.conll.gz"):
        with pytest.raises(
            UserError, match=rf"^config/config.yaml: tasks.mine.kind = .*{name}.*: tagging: these files have words"
        ):
            rows_of("mine", tasks={"mine": MINE | {"train": [name]}})


def test_rows_that_are_trained_and_tested_on_are_counted_and_all_of_them_are_refused():
    texts = {"train": ["a", "b", "c"], "test": ["c", "d", "c"]}
    assert rows_trained_on(texts) == 2
    with pytest.raises(UserError, match="all 3 test rows are training rows, too"):
        rows_trained_on(texts | {"test": ["a", "b", "a"]})


def test_a_template_may_hold_the_name_of_the_file(tmp_path):
    (tmp_path / "news.tsv").write_text("a\tb\nIt rains.\tweather\n")
    (row,) = read_rows([tmp_path / "news.tsv"], {"text": "{file}: {a}", "label": "b"}, "mine").to_pylist()
    assert row == {"text": "news: It rains.", "pair": None, "label": "weather"}
