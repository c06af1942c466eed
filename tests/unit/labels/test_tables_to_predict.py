"""Tables with predictions: what is written, and which tables and options are refused (`unit/tables` has the reader)."""

import csv
from argparse import Namespace
from pathlib import Path

import pytest

from babelmill.commands.predict import section_of
from babelmill.config.resolve import Configuration
from babelmill.config.schema import Predict
from babelmill.core.files import UserError
from babelmill.labels import prediction
from babelmill.labels.card import completed
from babelmill.labels.prediction import check_threshold, columns_of, labels_of, write_table
from babelmill.tables.rows import Table
from babelmill.tables.text import Form
from helpers.stages import settings_of


def test_what_is_written_is_what_was_read(tmp_path):
    """Ends of lines inside a value are no ends of rows, and a value may be longer than Python's csv thinks."""
    rows = [["a\rb", "yes"], ["a\r", "yes"], ["\r\na", 'say "no"'], ["a\nb", ""], ["", ""], ["a" * 200_000, "yes"]]
    csv.field_size_limit(1 << 17)  # as it is where no .csv was read
    for name in ("out.csv", "out.tsv"):
        write_table(tmp_path / name, ["text", "predicted"], rows)
        assert list(Table(tmp_path / name, form=Form(quoting="csv"))) == rows
    assert (tmp_path / "out.csv").read_bytes().startswith(b'text,predicted\n"a\rb","yes"\n')


def test_no_spreadsheet_runs_what_is_written(tmp_path):
    """A cell that begins like a formula gets one `'`; codes such as -1 and texts with lines stay."""
    rows = [["=HYPERLINK(1)", "-1", "two\nlines"], ["+cmd|x", "+", "a\x1b[2J"], ["'=1", "E11.0", "'quoted'"]]
    write_table(tmp_path / "out.csv", ["@text", "predicted", "more"], rows)
    columns, *written = csv.reader((tmp_path / "out.csv").read_text().splitlines(keepends=True))
    assert columns == ["'@text", "predicted", "more"]
    assert written == [
        ["'=HYPERLINK(1)", "-1", "two\nlines"],
        ["'+cmd|x", "+", "a\\x1b[2J"],
        ["''=1", "E11.0", "'quoted'"],
    ]


def test_names_that_the_predictions_need():
    names = "predicted code_1 probability_1 code_2 probability_2 likeliest_1 likeliest_probability_1"
    assert columns_of(2, 1, False) == names.split()


def test_the_least_probable_code_of_a_row_decides_whether_to_look_at_it(tmp_path):
    columns = ["probability_3", *columns_of(2, 1, False)]
    one, two = ["0", "yes", "a", "0.5", "", "", "a", "0.5"], ["0", "yes", "a", "0.9", "b", "0.0004", "a", "0.9"]
    rows = [one, two, ["0", "yes", "", "", "", "", "a", "0.1"], ["0", "no text", *[""] * 6]]
    prediction.write_review(tmp_path / "review.csv", 3, columns, rows)
    assert [row[0] for row in Table(tmp_path / "review.csv")] == ["4", "2", "3", "1"]


def test_a_folder_that_is_no_converted_model_of_labels_is_one_line(folder):
    Path("converted/eng").mkdir(parents=True)
    Path("models/occ").mkdir(parents=True)
    with pytest.raises(UserError, match=r"models/occ: no model is here .*; there are converted/eng"):
        labels_of(Path("models/occ"))
    for config in ("{}", '{"labels": {"codes": ["1"]}, "class": "BertModel"}'):
        Path("models/occ/config.json").write_text(config)
        with pytest.raises(UserError, match=r"models/occ is not a converted label model .* such as converted/occ"):
            labels_of(Path("models/occ"))


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("delimiter", ";;", "predict.delimiter = ';;': one character that can separate fields"),
        ("threshold", 2.0, "predict.threshold = 2.0: "),
        ("top", 0, "predict.top = 0: "),
        ("method", "magic", "predict.method = 'magic': .*'blocks' or 'linear'"),
        ("review", ["all", "review.csv"], "predict.review = 'all': "),
        ("context", "x", "predict.context_column = 'b', predict.context = 'x': one of the two"),
    ],
)
def test_options_have_the_types_and_bounds_of_the_keys(key, value, message):
    given = {"text_column": "a", "context_column": "b", "review": None} | {key: value}
    with pytest.raises(UserError, match=f"^{message}"):
        section_of(Namespace(**given))


def test_a_threshold_that_decides_nothing_is_refused():
    labels = {"exclusive": False, "decoder_layers": 0}
    for allowed in (Predict(), Predict(threshold=0.3), Predict(method="linear", threshold=0.3)):
        check_threshold(Path("occ"), labels, allowed)
    with pytest.raises(UserError, match=r"predict\.threshold = 0\.3: only for .*; occ gives one$"):
        check_threshold(Path("occ"), labels | {"exclusive": True}, Predict(method="linear", threshold=0.3))
    with pytest.raises(UserError, match=r"only for predict\.method: linear of .* as many as its decoder says"):
        check_threshold(Path("occ"), labels | {"decoder_layers": 3}, Predict(threshold=0.3))


PREDICT = {"census": "census.csv", "letters": "letters.csv"}
TRAIN = {"objective": "labels", "sequence_lengths": [128], "phase_starts": [0.0]}
OCC = {"languages": ["eng", "deu"], "train": TRAIN, "predict": {"inputs": PREDICT}}


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
    assert settings("predict.census", top=3) != one
    assert settings("predict.census", method="linear") != one
    more = {"inputs": PREDICT | {"letters": "else.csv", "third": "third.csv"}}
    assert settings("predict.census", **more) == one, "another table is no reason to predict this one again"
    assert settings("train", top=3, inputs={}) == settings("train") and settings("convert", top=3) == settings(
        "convert"
    )
    Path("census.csv").write_text("text\nfarmer\n")
    assert settings("predict.census") != one
    with pytest.raises(UserError, match=r"model occ: predict.inputs has no table 'censu'; did you mean census"):
        settings("predict.censu")


@pytest.mark.parametrize(
    ("corpus", "there"), [({}, False), ({"context": "da"}, True), ({"context_column": "lang"}, True)]
)
def test_the_folder_says_whether_the_training_had_contexts(corpus, there):
    found = {"codes": [], "figures": {"ema": {"linear": {"threshold": None}}}}
    languages = {"deu": {"corpus": {"label_columns": ["code1"], **corpus}}}
    configuration = Configuration([("test", {"languages": languages, "corpus": {"label_columns": ["code1"]}})])
    sections = [configuration.corpus(code).corpus for code in ("eng", "deu")]
    assert completed({"labels": {}}, {"labels": found}, "ema", sections)["labels"] == {"contexts": there}


def test_contexts_that_the_training_had_are_missed():
    none, some = Predict(), Predict(context="da")
    assert "trained with contexts" in prediction.about_contexts(True, none)
    assert "trained without contexts" in prediction.about_contexts(False, some)
    fine = [(True, some), (True, Predict(context_column="lang")), (False, none), (None, none), (None, some)]
    assert [prediction.about_contexts(*each) for each in fine] == [""] * 5


def test_the_name_of_a_corpus_is_no_language_of_the_card():
    languages = {"occ_uk": {"name": "Occupations"}, "fao": {"name": "Faroese"}, "yrke": {"name": "Yrker", "tag": "no"}}
    configuration = Configuration([("test", {"languages": languages})])
    assert [configuration.table[code].tag for code in languages] == ["", "fao", "no"]
