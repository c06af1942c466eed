"""One reader of tables: a corpus, a suite and a table to predict read the same file alike, and refuse the same files."""

import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from babelmill.core.files import UserError
from babelmill.corpus import readers
from babelmill.corpus.reading import Reading
from babelmill.corpus.tally import Tally
from babelmill.tables.columns import Asked
from babelmill.tables.table import Table
from babelmill.text_files import opening
from helpers.suite_files import read_pairs
from helpers.training.training_data import section

# Reads the column `text` of a file that also has a column `other`.
Use = Callable[..., list[str]]


def corpus(path: Path, quoting: str = "format") -> list[str]:
    found = readers.read(path, Reading(section("corpus", quoting=quoting), scratch=path.parent), Tally())
    return [text for batch in found for text in batch["text"].to_pylist()]


def suite(path: Path, quoting: str = "format") -> list[str]:
    asked = {"good": "text", "bad": "other", "quoting": quoting}
    return read_pairs([path], asked, scratch=path.parent)["good"].to_pylist()


def to_predict(path: Path, quoting: str = "format") -> list[str]:
    table = Table(path, [Asked("text", "--text")], quoting=quoting, scratch=path.parent)
    return [row[table.place("text")] for row in table]


@pytest.fixture(params=[corpus, suite, to_predict], ids=["corpus", "suite", "predict"])
def read(request) -> Use:
    return request.param


def refused(read: Use, path: Path, pattern: str) -> str:
    """Read a file that is refused; the error is one short line that begins with the file."""
    with pytest.raises(UserError, match=pattern) as raised:
        read(path)
    message = str(raised.value)
    assert message.startswith(str(path)) and "\n" not in message and len(message) < 2500
    return message


def parquet(path: Path, **columns) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


STRAY = 'id\ttext\tother\n1\t"Hello there\tx\n2\tGoodbye now"\ty\n3\tplain words\tz\n'


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
@pytest.mark.parametrize("name", ["a.tsv", "a.tsv.gz"])
def test_a_stray_quotation_mark_in_a_tsv_is_text(read, tmp_path, name, ends):
    content = STRAY.replace("\n", ends).encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert read(tmp_path / name) == ['"Hello there', 'Goodbye now"', "plain words"]


def test_quotation_marks_enclose_fields_where_this_is_asked_for(read, tmp_path):
    text = 'text\tother\n"one\ttwo\nthree"\tx\n"say ""no"""\ty\n'
    (tmp_path / "a.tsv").write_text(text)
    assert read(tmp_path / "a.tsv", "csv") == ["one\ttwo\nthree", 'say "no"']
    (tmp_path / "b.tsv").write_text('text\tother\n"one\ntwo"\tx\n')
    refused(
        read, tmp_path / "b.tsv", r"line 2: 1 field, but .*; if quotation marks enclose its fields, set .*quoting:? csv"
    )
    (tmp_path / "a.csv").write_text(text.replace("\t", ","))
    assert read(tmp_path / "a.csv") == ["one,two\nthree", 'say "no"']
    (tmp_path / "a.csv").write_text('text,other\n"Hello,x\n')
    assert read(tmp_path / "a.csv", "none") == ['"Hello']
    (tmp_path / "a.tsv").write_text('"text"\t"other"\n"a"\t"b"\n')
    refused(
        read,
        tmp_path / "a.tsv",
        r"there are '\"text\"', .*; if quotation marks enclose its fields, set .*quoting:? csv$",
    )


def test_marks_that_only_enclose_a_text_are_worth_a_warning(read, tmp_path, caplog):
    (tmp_path / "a.tsv").write_text('text\tother\n"one"\tx\ntwo\ty\n"three"\tz\n')
    assert read(tmp_path / "a.tsv") == ['"one"', "two", '"three"']
    if read is to_predict:
        message = Table(tmp_path / "a.tsv", [Asked("text", "--text")]).warnings
    else:
        message = [record.message for record in caplog.records]
    assert len(message) == 1 and "quotation marks enclose a field in 2 rows" in message[0] and "quoting" in message[0]


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.parquet"])
def test_two_columns_of_one_name_are_refused(read, tmp_path, name):
    path = tmp_path / name
    if name == "a.parquet":
        columns = [pa.array(["first"]), pa.array(["x"]), pa.array(["second"])]
        pq.write_table(pa.Table.from_arrays(columns, names=["text", "other", "text"]), path)
    else:
        path.write_text("text,other,text\nfirst,x,second\n".replace(",", "\t" if name == "a.tsv" else ","))
    refused(read, path, "2 columns are named 'text'")


def test_two_columns_of_metadata_are_refused(tmp_path):
    columns = [pa.array(["a"])] * 3
    pq.write_table(pa.Table.from_arrays(columns, names=["text", "license", "license"]), tmp_path / "a.parquet")
    refused(corpus, tmp_path / "a.parquet", "2 columns are named 'license'")


@pytest.mark.parametrize("value", ['["farmer"]', '{"a": 1}', "true", "7", "[" * 500 + "]" * 500])
def test_what_is_no_text_is_refused(read, tmp_path, value):
    (tmp_path / "a.jsonl").write_text(f'{{"text": "a", "other": "b"}}\n{{"text": {value}, "other": "b"}}\n')
    refused(read, tmp_path / "a.jsonl", r"line 2: 'text' is no text: ")


@pytest.mark.parametrize("brackets", ["[", '{"a":', '{"text": "a", "other": "b", "more": ['])
def test_values_that_are_nested_too_deeply_are_one_line(read, tmp_path, brackets):
    line = brackets + "[" * 100_000
    (tmp_path / "a.jsonl").write_text(f'{{"text": "a", "other": "b"}}\n{line}\n')
    refused(read, tmp_path / "a.jsonl", "line 2: not (a JSON object|JSON)")


KINDS = [pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view()]
KINDS += [pa.dictionary(pa.int8(), pa.string()), pa.dictionary(pa.int32(), pa.binary()), pa.json_()]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_arrow_says_what_is_text(read, tmp_path, kind):
    stored = pa.array(["eins", "zwei"], pa.string())
    if isinstance(kind, pa.BaseExtensionType):
        text = pa.ExtensionArray.from_storage(kind, stored)
    elif pa.types.is_dictionary(kind):
        text = pa.array(["eins", "zwei"], kind.value_type).dictionary_encode().cast(kind)
    else:
        text = stored.cast(kind)
    path = parquet(tmp_path / "a.parquet", text=text, other=["b", "c"])
    assert pq.read_schema(path).field("text").type == kind, "what is tested is what the file has"
    assert read(path) == ["eins", "zwei"]


@pytest.mark.parametrize("values", [[["farmer"]], [7], [True], [{f"a{i}": 1 for i in range(500)}], [b"\xff"]])
def test_a_column_that_is_no_text_is_refused(read, tmp_path, values):
    refused(read, parquet(tmp_path / "a.parquet", text=values, other=["b"]), "text'? (is|contains)|row 1 .*not UTF-8")


def test_a_part_without_any_text_is_read():
    """As a table that is written in parts has it: a column of one part that is missing everywhere has the type null."""
    sink = io.BytesIO()
    pq.write_table(pa.table({"text": pa.nulls(2), "code": pa.nulls(2)}), sink)
    Path("part.parquet").write_bytes(sink.getvalue())
    try:
        assert corpus(Path("part.parquet")) == [None, None]
        assert to_predict(Path("part.parquet")) == ["", ""]
        reading = Reading(section("corpus", label_columns="code"))
        found = [batch["labels"].to_pylist() for batch in readers.read(Path("part.parquet"), reading, Tally())]
        assert found == [[[None], [None]]]
    finally:
        Path("part.parquet").unlink()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.parquet", "a.jsonl"])
def test_the_error_for_a_table_of_many_columns_is_short(read, tmp_path, name):
    names = [f"column{i}" for i in range(20_000)]
    if name == "a.parquet":
        path = parquet(tmp_path / name, **{column: ["x"] for column in names})
    else:
        mark, path = "\t" if name == "a.tsv" else ",", tmp_path / name
        line = json.dumps(dict.fromkeys(names, "x")) if name == "a.jsonl" else mark.join(names)
        path.write_text(f"{line}\n")
    message = refused(read, path, "no (column|key) 'text'; there are 'column0', .*'column9' and 19,990 more")
    assert "column10" not in message


def test_a_compressed_file_that_is_no_parquet_is_refused_by_its_first_bytes(read, tmp_path):
    packed = gzip.compress(bytes(8 << 20), mtime=0)
    (tmp_path / "a.parquet.gz").write_bytes(packed[: len(packed) // 2])  # reading it whole says that it is truncated
    refused(read, tmp_path / "a.parquet.gz", "this is binary data of an unknown kind, not a Parquet file")
    assert len(list(tmp_path.iterdir())) == 1


def test_a_compressed_parquet_file_is_unpacked_up_to_a_bound(read, tmp_path, monkeypatch):
    monkeypatch.setattr(opening, "UNPACKED", 1 << 20)
    (tmp_path / "a.parquet.gz").write_bytes(gzip.compress(b"PAR1" + bytes(64 << 20), mtime=0))
    refused(read, tmp_path / "a.parquet.gz", "it unpacks to more than [0-9,]+ MB")


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
def test_blank_lines_before_the_heading_are_skipped(read, tmp_path, name):
    (tmp_path / name).write_text("\n\ntext,other\na,b\n".replace(",", "\t" if name == "a.tsv" else ","))
    assert read(tmp_path / name) == ["a"]
