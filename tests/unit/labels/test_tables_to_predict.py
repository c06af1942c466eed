"""Tables whose rows are predicted: every column as it stands, whatever the format; errors with file and line."""

import csv
import gzip
from argparse import Namespace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from babelmill.commands.predict import section_of
from babelmill.config.resolve import Configuration
from babelmill.core.files import UserError
from babelmill.labels import prediction
from babelmill.labels.card import completed
from babelmill.labels.prediction import check_threshold, columns_of, write_table
from babelmill.labels.predictor import Wanted, labels_of
from babelmill.stages import PredictStage
from babelmill.tables.rows import Asked, Table
from babelmill.tables.text import Form
from helpers.stages import settings_of
from helpers.tables import table_bytes
from helpers.tables import write_table as write_rows

COLUMNS = ["id", "occ1", "note; more"]
ROWS = [["007", "fisher, and farmer", 'he said "yes"'], ["1.0", "", "NA"], ["x", "bøcker\nand smith", " "]]
DICTIONARIES = [dict(zip(COLUMNS, row, strict=True)) for row in ROWS]


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.tsv", "a.parquet", "a.parquet.gz", "a.jsonl", "a.jsonl.gz"])
def test_every_format_gives_all_columns_as_they_stand(tmp_path, name):
    table = Table(write_rows(tmp_path / name, DICTIONARIES), form=Form(quoting="csv"))
    assert (table.columns, table.rows, list(table)) == (COLUMNS, 3, ROWS)
    assert list(table) == ROWS, "as often as one likes"


def test_delimiter_and_encoding_are_said(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(table_bytes(DICTIONARIES, ".csv", ";", "latin-1"))
    assert list(Table(path, form=Form(delimiter=";", encoding="latin-1"))) == ROWS
    with pytest.raises(UserError, match=r"a\.csv: line 4: not UTF-8: byte 0xf8 \(--encoding latin-1"):
        Table(path, form=Form(delimiter=";"))
    path.write_bytes(table_bytes(DICTIONARIES, ".csv", ";"))
    with pytest.raises(UserError, match=r"a\.csv: line 4: this is UTF-8, .* cp1252 would garble it"):
        Table(path, form=Form(delimiter=";", encoding="cp1252"))
    (tmp_path / "b.csv").write_text("id;occ1\n1;x\n")
    with pytest.raises(
        UserError,
        match=r"b\.csv: no column 'occ1'; there are 'id;occ1'; set --text, or, in a .csv, --delimiter ';'$",
    ):
        Table(tmp_path / "b.csv", [Asked("occ1", "--text")])


def test_values_that_are_no_text(tmp_path):
    values = {"n": [1, None], "x": [1.5, 2.0], "y": [float("nan"), 1.0], "many": [["a"], []], "yes": [True, False]}
    pq.write_table(pa.table(values), tmp_path / "a.parquet")
    assert list(Table(tmp_path / "a.parquet")) == [["1", "1.5", "", '["a"]', "true"], ["", "2.0", "1.0", "[]", "false"]]
    (tmp_path / "a.jsonl").write_text('{"n": 1, "many": ["a"]}\n\n{"x": 2.0, "n": NaN}\n')
    table = Table(tmp_path / "a.jsonl")
    assert table.columns == ["n", "many", "x"] and list(table) == [["1", '["a"]', ""], ["", "", "2.0"]]


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


def test_a_blank_line_of_a_single_column_is_a_row_without_text(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"occ1\r\nfarmer\r\n\r\nfisher\r\n")
    table = Table(tmp_path / "a.csv")
    assert (table.rows, list(table)) == (3, [["farmer"], [""], ["fisher"]])


def test_a_broken_column_of_text_is_found_before_anything_is_predicted(tmp_path):
    offsets = np.array([0, 1, 3], np.int32)
    column = pa.StringArray.from_buffers(2, pa.py_buffer(offsets), pa.py_buffer(b"a\xff\xfe"))
    pq.write_table(pa.table({"occ1": column}), tmp_path / "a.parquet")
    with pytest.raises(UserError, match=r"a\.parquet: row 2: not UTF-8: byte 0xff$"):
        Table(tmp_path / "a.parquet", [Asked("occ1", "--text")])


def test_a_nul_in_a_parquet_file_is_found(tmp_path):
    pq.write_table(pa.table({"occ1": ["a"] * 1500 + ["b\0"], "other": ["a"] * 1501}), tmp_path / "a.parquet")
    with pytest.raises(UserError, match=r"a\.parquet: row 1501: has a NUL"):
        Table(tmp_path / "a.parquet", [Asked("occ1", "--text")])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"a,b\n1,2\n3\n", "line 3: 1 field, but the heading has 2"),
        ("a.csv", b'a,b\n1,"2\n', "line 2: not CSV"),
        ("a.csv", b"", "is empty; a table has the names of its columns"),
        ("a.jsonl", b'{"a": "1"}\n[1]\n', "line 2: not a JSON object"),
        ("a.jsonl", b'{"a": 1\n', "line 1: not JSON"),
        ("a.jsonl", b"\n", "is empty; a table has"),
        ("a.jsonl", b'{"a": "\\ud83d\\ude00"}\n{"a": "b \\ud800"}\n', "line 2: has .*half of a surrogate pair"),
        ("a.jsonl", b'{"a": "b"}\n{"a": "b\\u0000"}\n', "line 2: has a NUL"),
        ("a.jsonl", b'{"a": "b"}\n\xef\xbb\xbf{"a": "c"}\n', "line 2: begins with a byte order mark, as where files"),
        ("a.csv", b"a\nbut one NUL in twenty bytes\0\n", "line 2: has a NUL"),
        (
            "a.csv",
            b"a\n\x93b\x94\n",
            r"line 2: not UTF-8: byte 0x93 \(--encoding latin-1 or cp1252, if it is one of these\)",
        ),
        ("a.csv.gz", gzip.compress(b"a\n" * 1000, mtime=0)[:-9], "damaged, .*: Truncated"),
        ("a.parquet", b"PAR1", "damaged, "),
        ("a.xlsx", b"", r"this file format cannot be read; allowed are \.parquet, \.jsonl"),
        ("a.csv", b"a,b,a\n", r"2 columns are named 'a' \(--text\)"),
    ],
)
def test_what_is_no_table_is_one_line(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=message) as raised:
        Table(tmp_path / name, [Asked("a", "--text")])
    assert str(raised.value).startswith(str(tmp_path / name)) and "\n" not in str(raised.value)
    with pytest.raises(UserError, match="no such file"):
        Table(tmp_path / "gone.csv")


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

    def refused(message: str) -> None:
        with pytest.raises(UserError, match=message):
            labels_of(Path("models/occ"))

    refused("models/occ: no such folder; name one such as converted/occ")
    Path("converted/eng").mkdir(parents=True)
    refused("models/occ: no such folder; there are converted/eng")
    Path("models/occ").mkdir(parents=True)
    refused("models/occ is not a model, since it has no config.json")
    Path("models/occ/config.json").write_text("{}")
    refused("models/occ is not a label model")
    Path("models/occ/config.json").write_text('{"labels": {"codes": ["1"]}, "class": "BertModel"}')
    refused("models/occ is a result of training, which is not converted; name a folder such as converted/occ")


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
    for allowed in (Wanted(), Wanted(threshold=0.3), Wanted(method="linear", threshold=0.3)):
        check_threshold(Path("occ"), labels, allowed)
    with pytest.raises(UserError, match=r"occ gives each text one code, so predict\.threshold has no effect"):
        check_threshold(Path("occ"), labels | {"exclusive": True}, Wanted(method="linear", threshold=0.3))
    with pytest.raises(UserError, match=r"predict\.threshold works only with predict\.method: linear"):
        check_threshold(Path("occ"), labels | {"decoder_layers": 3}, Wanted(threshold=0.3))


PREDICT = {"census": "census.csv", "letters": "letters.csv"}
TRAIN = {"objective": "labels", "sequence_lengths": [128], "phase_starts": [0.0]}
OCC = {"languages": ["eng", "deu"], "train": TRAIN, "predict": {"inputs": PREDICT}}


def settings(part: str, **predict) -> dict:
    """The settings of a table, where the section says something else."""
    occ = OCC | {"predict": OCC["predict"] | predict}
    return settings_of(Configuration([("test", {"models": {"occ": occ}})]), "occ", part)


def test_a_column_that_is_not_there_is_found_before_the_training(folder):
    Path("census.csv").write_text("id,occupation\n1,fisher\n")
    configuration = Configuration([("test", {"models": {"occ": OCC}})])
    line = (
        r"predict.inputs.census of model occ: text_column = 'text': a column of census.csv is expected: id, occupation"
    )
    with pytest.raises(UserError, match=line):
        PredictStage.refuse(configuration, "occ", "census")


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
    none, some = prediction.TextColumns("text"), prediction.TextColumns("text", one_context="da")
    assert "trained with contexts" in prediction.about_contexts(True, none)
    assert "trained without contexts" in prediction.about_contexts(False, some)
    fine = [(True, some), (True, prediction.TextColumns("text", "lang")), (False, none), (None, none), (None, some)]
    assert [prediction.about_contexts(*each) for each in fine] == [""] * 5


def test_the_name_of_a_corpus_is_no_language_of_the_card():
    languages = {"occ_uk": {"name": "Occupations"}, "fao": {"name": "Faroese"}, "yrke": {"name": "Yrker", "tag": "no"}}
    configuration = Configuration([("test", {"languages": languages})])
    assert [configuration.table[code].tag for code in languages] == ["", "fao", "no"]


def test_tables_in_the_configuration():
    def refused(message: str, **predict) -> None:
        with pytest.raises(UserError, match=message):
            settings("predict.census", **predict)

    refused(
        r"predict.context_column = 'lang', predict.context = 'da': one of the two", context="da", context_column="lang"
    )
    refused(r"'a/b': names are letters and digits", inputs={"a/b": "x.csv"})
    refused(r"predict.inputs = 'x.csv': input should be a valid dictionary", inputs="x.csv")
    refused(r"predict.inputs.a = {'file': 'x.csv'}: input should be a valid string", inputs={"a": {"file": "x.csv"}})
