"""Tables with predictions: what is written, and which tables and options are refused (`unit/tables` has the reader)."""

import csv
from argparse import Namespace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from babelmill.commands.predict import run
from babelmill.config.resolve import Configuration
from babelmill.core.files import UserError
from babelmill.labels.card import completed
from babelmill.labels.prediction import certainty, write_table
from babelmill.stages import PredictStage
from babelmill.tables.rows import whole_table
from babelmill.tables.text import Form
from helpers.stages import settings_of


def test_what_is_written_is_what_was_read(tmp_path):
    """Ends of lines inside a value are no ends of rows, and a value may be longer than Python's csv thinks."""
    rows = [["a\rb", "yes"], ["a\r", "yes"], ["\r\na", 'say "no"'], ["a\nb", ""], ["", ""], ["a" * 200_000, "yes"]]
    csv.field_size_limit(1 << 17)  # as it is where no .csv was read
    for name in ("out.csv", "out.tsv"):
        write_table(tmp_path / name, pd.DataFrame(rows, columns=["text", "predicted"]))
        assert whole_table(tmp_path / name, form=Form(quoting="csv")) == (["text", "predicted"], rows)
    assert (tmp_path / "out.csv").read_bytes().startswith(b'text,predicted\n"a\rb","yes"\n')
    write_table(tmp_path / "out.csv", pd.DataFrame([["=HYPERLINK(1)", "-1"]], columns=["@text", "predicted"]))
    assert (tmp_path / "out.csv").read_text() == "'@text,predicted\n'=HYPERLINK(1),-1\n", "no spreadsheet runs it"


def test_the_least_probable_code_decides_how_certain_a_row_is():
    """A row without any code is the least certain one."""
    rows = [[0, 0, -1, 0, 0.5, 0, 0.5], [1, 0, 1, 0, 0.9, 0.0004, 0.9], [0, -1, -1, 1, 0, 0, 0.1]]
    assert certainty(np.array(rows), 2).tolist() == [0.5, 0.0004, 0]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("delimiter=;;", "predict.delimiter = ';;': one character that can separate fields"),
        ("threshold=2.0", "predict.threshold = 2.0: "),
        ("top=0", "predict.top = 0: "),
        ("threshold=0.3", "predict.threshold = 0.3, predict.method = 'blocks': linear, which alone has a threshold"),
        ("method=magic", "predict.method = 'magic': .*'blocks' or 'linear'"),
        ("context=x", "predict.context_column = 'b', predict.context = 'x': one of the two"),
    ],
)
def test_options_have_the_types_and_bounds_of_the_keys(tmp_path, asked, message):
    given = {"model": tmp_path, "table": Path("in.csv"), "out": Path("out.csv"), "text": "a", "context": "b"}
    with pytest.raises(UserError, match=f"^--config: {message}"):
        run(Namespace(**given, config=[asked]))


PREDICT = {"census": "census.csv", "letters": "letters.csv"}
TRAIN = {"objective": "labels", "sequence_lengths": [128], "phase_starts": [0.0]}
OCC = {"languages": ["eng", "deu"], "train": TRAIN, "predict": {"tables": PREDICT}}


def settings(part: str, **predict) -> dict:
    """The settings of a table, where the section says something else."""
    occ = OCC | {"predict": OCC["predict"] | predict}
    return settings_of(Configuration([("test", {"models": {"occ": occ}})]), "occ", part)


def test_each_table_has_settings_of_its_own(folder):
    Path("census.csv").write_text("text\nfisher\n")
    one = settings("predict.census")
    assert one["table"].keys() == {"file", "sha256", "encoding", "quoting", "text_column"}
    assert one["table"]["text_column"] == "text"
    other = settings("predict.letters", text_column="first line", context="da")["table"]
    assert (other["text_column"], other["context"], other["sha256"]) == ("first line", "da", None)
    assert settings("predict.census", method="linear") != one
    assert settings("train", top=3, tables={}) == settings("train")


@pytest.mark.parametrize(
    ("corpus", "there"), [({}, False), ({"context": "da"}, True), ({"context_column": "lang"}, True)]
)
def test_the_folder_says_whether_the_training_had_contexts(corpus, there):
    languages = {"deu": {"corpus": {"label_columns": ["code1"], **corpus}}}
    configuration = Configuration([("test", {"languages": languages, "corpus": {"label_columns": ["code1"]}})])
    sections = [configuration.corpus(code).corpus for code in ("eng", "deu")]
    assert completed({"labels": {}}, {"labels": {"codes": []}}, sections)["labels"] == {"contexts": there}


def test_what_cannot_be_predicted_is_found_before_the_training(folder):
    Path("census.csv").write_text("id,occupation\n1,fisher\n")
    configuration = Configuration([("test", {"models": {"occ": OCC}})])
    column = "text_column = 'text': a column of census.csv is expected: id, occupation"
    for model, table, line in (
        ("eng", "census", r"model eng learns no labels \(train\.objective\)"),
        ("occ", "census", f"predict.tables.census of model occ: {column}"),
        ("occ", "letters", r"predict\.tables\.letters of model occ: letters\.csv: no such file"),
    ):
        with pytest.raises(UserError, match=line):
            PredictStage.refuse(configuration, configuration.model(model), table)
