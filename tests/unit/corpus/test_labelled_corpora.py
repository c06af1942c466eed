"""Labelled tables as corpora: what is read of them, what is a label, and on which side of the split a text falls."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from babelmill.core.files import UserError
from babelmill.download import check_columns
from babelmill.tokens.documents import Documents
from babelmill.tokens.label_text import context_text, label_text
from babelmill.tokens.shard_file import ShardFile
from helpers.labelled_texts import COLUMNS, configuration_of, write_csv
from helpers.stages import run_stage, settings_of
from helpers.tables import compress, table_bytes
from helpers.training.training_data import write_tokenizer

pytestmark = pytest.mark.usefixtures("folder")

TABLE = [
    {"occ1": "farmer and fisher", "lang": "eng", "code1": "61110", "code2": "64100"},
    {"occ1": "Bäcker, „alt“", "lang": "deu", "code1": "07761", "code2": None},
    {"occ1": 'two\nlines, "quoted"', "lang": None, "code1": None, "code2": "83110"},
    {"occ1": "at home", "lang": "eng", "code1": "-1", "code2": None},
    {"occ1": "unknown", "lang": "eng", "code1": None, "code2": None},
]
KINDS = (".csv", ".tsv", ".jsonl", ".parquet")


def build(threads: int = 1, **corpus) -> dict:
    """Run the stage; its figures."""
    return run_stage("corpus", configuration_of(**corpus), threads=threads)


def documents(split: str = "train") -> list[dict]:
    return pq.read_table(f"out/{split}.parquet", columns=["text", "context", "labels", "origin"]).to_pylist()


def found(split: str = "train") -> list[tuple]:
    return [(row["text"], row["context"], tuple(row["labels"])) for row in documents(split)]


EXPECTED = [(row["occ1"], row["lang"] or "", (row["code1"], row["code2"])) for row in TABLE]


@pytest.mark.parametrize("compression", ["", ".gz", ".zst"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_table_of_any_format_comes_out_alike(kind, compression):
    """Text, context, labels in the order of the columns, and the line or row that each is from."""
    name = f"a{kind}{compression}"
    Path(name).write_bytes(compress(table_bytes(TABLE, kind), compression))
    figures = build(files=[name], validation_share=0, quoting="csv")
    assert found() == EXPECTED
    unit, numbers = (
        "row" if kind == ".parquet" else "line",
        (2, 3, 4, 6, 7) if kind in (".csv", ".tsv") else range(1, 6),
    )
    assert [row["origin"] for row in documents()] == [f"{name}: {unit} {number}" for number in numbers]
    assert figures["without_labels"] == {"train": 1, "validation": 0} and figures["dropped"] == {}


LABEL_TEXTS = [
    *[("61110.0", "61110.0"), (61110.0, "61110"), (61110, "61110"), ("07", "07"), ("-1.0", "-1.0"), ("NA", "NA")],
    *[(-1, "-1"), (0.5, "0.5"), ("1.50", "1.50"), ("A01.0", "A01.0"), (" farm hand ", "farm hand")],
    ("\ufeffeng\u200b ", "eng"),
    *[(None, None), ("", None), (" \t", None), ("NaN", "NaN"), ("nan", "nan"), ("null", "null"), (float("nan"), None)],
    *[("none", "none"), ("0", "0"), (0, "0")],
]


@pytest.mark.parametrize(("value", "text"), LABEL_TEXTS)
def test_a_label_stays_as_it_stands(value, text):
    """A context is read as a number or nothing where it is one; `nan` and `NA` are names."""
    assert label_text(value) == text
    contexts = {"61110.0": "61110", "-1.0": "-1", "NaN": "", "null": ""}
    assert context_text(value) == contexts.get(value, text or "")


def test_numbers_of_json_and_parquet_are_labels_and_what_is_neither_is_refused():
    columns = {"occ1": ["a", "b", "c"], "lang": [1881, None, 1900], "c": [61110.0, float("nan"), 7.25]}
    pq.write_table(pa.table(columns | {"d": pa.array([b"0123", b"null", None], pa.binary())}), "a.parquet")
    build(files=["a.parquet"], label_columns=["c", "d"], validation_share=0)
    assert found() == [("a", "1881", ("61110", "0123")), ("b", "", (None, "null")), ("c", "1900", ("7.25", None))]
    Path("a.jsonl").write_text(
        '{"occ1": "a", "c": 6.0, "d": NaN, "lang": "x"}\n{"occ1": "b", "c": "\\ud800", "d": 1, "lang": ""}'
    )
    assert build(files=["a.jsonl"], label_columns=["c", "d"], validation_share=0)["changed"] == {"lone_surrogates": 1}
    assert found() == [("a", "x", ("6", None)), ("b", "", ("\ufffd", "1"))]
    Path("a.jsonl").write_text('{"occ1": "a", "c": [1], "lang": "x"}')
    with pytest.raises(UserError, match=r"a\.jsonl: line 1: 'c' is neither text nor a number: a list; correct it"):
        build(files=["a.jsonl"], label_columns=["c"])


def test_the_same_text_is_on_one_side_and_a_row_is_dropped_where_all_is_the_same():
    rows = [
        (f"trade {i}", language, code, "")
        for i in range(300)
        for language, code in (("eng", "1"), ("", "1"), ("", "2"))
    ]
    write_csv("a.csv", [*rows, *rows[:50]])
    figures = build(files=["a.csv"], validation_share=0.2)
    assert figures["dropped"] == {"duplicate": 50}
    train, validation = found("train"), found("validation")
    assert len(train) + len(validation) == 900 == len({*train, *validation})
    texts = [{text for text, *_ in split} for split in (train, validation)]
    assert not texts[0] & texts[1] and 30 < len(texts[1]) < 90
    assert len(validation) == 3 * len(texts[1])
    write_csv("a.csv", [(f"trade {i}", "deu", "3", "4") for i in range(300)])
    build(files=["a.csv"], validation_share=0.2)
    assert {text for text, *_ in found("validation")} == texts[1], "other labels, the same sides"


def test_a_text_of_ones_own_validation_is_not_learnt_whatever_its_labels():
    write_csv(
        "a.csv", [("smith", "eng", "1", ""), ("smith", "", "2", ""), ("Smith", "eng", "1", ""), ("baker", "", "", "")]
    )
    write_csv("v.csv", [("smith", "eng", "9", ""), ("smith", "eng", "9", ""), ("smith", "eng", "8", "")])
    figures = build(files=["a.csv"], validation_files=["v.csv"])
    assert figures["dropped"] == {"in_validation": 2, "duplicate": 1}
    assert found() == [("Smith", "eng", ("1", None)), ("baker", "", (None, None))]
    assert [row["origin"] for row in documents("validation")] == ["v.csv: line 2", "v.csv: line 4"]


@pytest.mark.parametrize(
    ("corpus", "words"),
    [
        ({"context": "eng"}, r"context_column = 'lang', corpus\.context = 'eng': one of the two"),
        ({"label_columns": []}, r"context_column = 'lang', .*: a context needs columns of labels"),
        ({"label_columns": ["lang"]}, r"label_columns = \['lang'\], corpus\.context_column = 'lang': different columns"),
        ({"label_columns": ["code1", "code1"]}, r"code1 appears 2 times"),
        ({"context_column": None, "prompt_column": "lang"}, r"prompt_column = 'lang', .*: prompts or labels"),
        ({"files": ["b.txt"]}, r"label_columns = \['code1', 'code2'\]: plain text has no columns"),
        ({"files": ["b.*"]}, r"b\.txt: plain text has no columns; corpus\.context_column needs a table"),
        ({"delimiter": ";;"}, r"corpus.delimiter = ';;': one character"),
        ({"encoding": "utf-16"}, r"corpus\.encoding.*'utf-8', 'latin-1' or 'cp1252'"),
        *(({"files": [f"*{kind}"], "label_columns": ["code3"]}, r"'code3'; there are 'occ1', 'lang', 'code1', 'code2'; set corpus\.label_columns$") for kind in KINDS),
        ({"files": ["none.csv"]}, r"no training text of eng has a label: the columns 'code1', 'code2' .* are empty in all 2 documents"),
        ({"files": ["a.csv"], "validation_share": 1e-9}, r"by chance none .*; documents with the same text stay in the same split"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_as_labels_is_one_line(corpus, words):
    Path("b.txt").write_text("plain")
    for kind in KINDS:
        Path(f"a{kind}").write_bytes(table_bytes(TABLE, kind))
    write_csv("none.csv", [("a", "", "", "NaN"), ("b", "eng", "null", "")])
    with pytest.raises(UserError, match=words) as error:
        build(**{"files": ["a.csv"], **corpus})
    assert "\n" not in str(error.value)


def test_one_context_for_all_is_cleaned_and_labels_stay_as_they_are():
    write_csv("a.csv", [("cafe\u0301\x07", "", "e\u0301", ""), ("x", "", "1", ""), ("", "", "1", "")])
    given = {"context": "fra\u0301", "context_column": None, "normalization": "NFC", "control_characters": "remove"}
    assert build(files=["a.csv"], validation_share=0, **given)["dropped"] == {"empty": 1}
    assert found() == [("café", "frá", ("e\u0301", None)), ("x", "frá", ("1", None))]


def test_a_language_model_of_a_labelled_corpus_learns_the_texts_alone():
    """A context is no prompt to it; a model of labels has both."""
    write_csv("a.csv", [(f"word{20 + i}", "word90", "1", "") for i in range(40)])
    build(files=["a.csv"], validation_share=0.2)
    write_tokenizer(Path("tokenizer"))
    made = {}
    for objective in ("hybrid", "labels"):
        train = {"objective": objective, "sequence_lengths": [32], "phase_starts": [0.0]}
        learning = configuration_of(train, files=["a.csv"])
        run_stage("shards", learning, out=objective, tokenizer=Path("tokenizer"), corpus=Path("out"))
        made[objective] = ShardFile.open(f"{objective}/train.safetensors")
    texts = len(documents())
    assert made["hybrid"].responses is None and made["hybrid"].labels is None
    assert len(made["hybrid"].tokens) == 3 * texts and len(made["labels"].tokens) == 4 * texts
    assert made["labels"].labels is not None
    assert Documents("out/train.parquet").pieces == 1 and Documents("out/train.parquet", contexts=True).pieces == 2


def test_a_download_looks_at_the_columns_of_labels_early():
    asked = {**COLUMNS, "files": [], "hub": "lab/occupations", "delimiter": ";"}
    columns = settings_of(configuration_of(**asked), "eng", "download")["columns"]
    assert columns == {**COLUMNS, "delimiter": ";"}
    Path("a.csv").write_bytes(table_bytes(TABLE, ".csv", ";"))
    check_columns(Path("a.csv"), columns, None)
    with pytest.raises(UserError, match=r"no column 'code9'; there are 'occ1', 'lang'"):
        check_columns(Path("a.csv"), columns | {"label_columns": ["code9"]}, None)
