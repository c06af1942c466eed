"""Where the rows of a task come from, and what is said if they are not there."""

from pathlib import Path

import pytest

from babelmill.config.resolve import Configuration
from babelmill.config.tasks import rows_of_task
from babelmill.core.files import UserError
from babelmill.tasks.rows import read_rows

MINE = {"train": ["own.tsv"], "test": ["own.tsv"], "language": "eng", "text": "{a}", "label": "b"}


def rows_of(name: str, **top) -> dict:
    values = {"models": {"eng": {"evaluation": {"tasks": [name]}}}} | top
    return rows_of_task(Configuration([("config/config.yaml", values)]), "eng", name)


def test_a_missing_file_is_named_with_the_task_and_the_key(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for top, text in (
        ({}, r"the rows of rte are in the challenge's folder evaluation_data; set `evaluation_data:`"),
        ({"evaluation_data": "data"}, r"config/config.yaml: evaluation_data: data: none of the folders full_eval"),
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
    Path("own.tsv").write_text("a\tc\nx\ty\n")
    with pytest.raises(UserError, match=r"config/config.yaml: tasks.mine.label: own.tsv has no column 'b'"):
        rows_of("mine", tasks={"mine": MINE})


def test_a_template_may_hold_the_name_of_the_file(tmp_path):
    (tmp_path / "news.tsv").write_text("a\tb\nIt rains.\tweather\n")
    (row,) = read_rows([tmp_path / "news.tsv"], {"text": "{file}: {a}", "label": "b"}, "mine").to_pylist()
    assert row == {"text": "news: It rains.", "pair": None, "label": "weather"}
