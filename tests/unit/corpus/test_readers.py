"""Readers: every format and compression, and every kind of damage that is known to have passed unnoticed elsewhere."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from babelmill.core.files import UserError
from babelmill.corpus import readers
from babelmill.corpus.reading import Reading
from babelmill.corpus.record_batches import BLOCK
from babelmill.corpus.tally import Tally
from helpers.tables import compress, table_bytes
from helpers.training.training_data import section

TEXTS = ["one\u2028still one\x85and\x0chere", "NA", "007", "null", 'x<s>y "quoted", or not', "zwei\nZeilen", "ひとつ🎈"]


def encode(texts: list[str], suffix: str) -> bytes:
    """Documents as the bytes of a file with a column `category`."""
    return table_bytes([{"category": f"c{i}", "text": text} for i, text in enumerate(texts)], suffix)


def read(path: Path, on_error="stop", **corpus) -> tuple[list[dict], Tally]:
    """All documents of a file, and the tally."""
    tally, reading = Tally(on_error), Reading(section("corpus", **corpus), scratch=path.parent)
    rows = [row for batch in readers.read(path, reading, tally) for row in batch.to_pylist()]
    assert tally.read == len(rows) + tally.dropped.total()
    return rows, tally


def texts_of(path: Path, on_error="stop", **corpus) -> list[str]:
    return [row["text"] for row in read(path, on_error, **corpus)[0]]


@pytest.mark.parametrize("compression", ["", ".gz", ".zst"])
@pytest.mark.parametrize("kind", [".jsonl", ".csv", ".parquet"])
def test_text_and_metadata_come_out_as_they_went_in(tmp_path, kind, compression):
    path = tmp_path / f"corpus{kind}{compression}"
    path.write_bytes(compress(encode(TEXTS, kind), compression))
    rows, _ = read(path)
    assert [row["text"] for row in rows] == TEXTS
    assert [row["category"] for row in rows] == [f"c{i}" for i in range(len(TEXTS))]
    assert {row["license"] for row in rows} == {None}
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("compression", ["", ".gz", ".zst"])
def test_a_text_file_is_a_document_or_a_document_a_line(tmp_path, compression):
    path = tmp_path / f"corpus.txt{compression}"
    path.write_bytes(compress("\ufeffone\u2028still one\x0c\r\n\r\ntwo\n\nthree".encode(), compression))
    assert texts_of(path, document="file") == ["one\u2028still one\x0c\n\ntwo\n\nthree"]
    assert texts_of(path, document="line") == ["one\u2028still one\x0c", "two", "three"]


def test_documents_larger_than_a_block_and_many_blocks(tmp_path):
    documents = ["x" * 3_000_000, *(f"document {i}" for i in range(30_000)), "y" * 1_500_000]
    for kind in (".jsonl", ".csv", ".parquet"):
        path = tmp_path / f"corpus{kind}"
        path.write_bytes(encode(documents, kind))
        assert texts_of(path) == documents
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join(documents), encoding="utf-8")
    assert texts_of(path, document="line") == documents


def test_batches_stay_small(tmp_path):
    """Memory is bounded by the batch, not by the file or its row groups."""
    path = tmp_path / "corpus.parquet"
    pq.write_table(pa.table({"text": ["z" * 100_000] * 200}), path, use_dictionary=False)
    assert max(batch.nbytes for batch in readers.read(path, Reading(section("corpus")), Tally())) < 3 * BLOCK
    path = tmp_path / "corpus.csv"
    path.write_bytes(encode(["z" * 1000] * 20_000, ".csv"))
    assert max(batch.nbytes for batch in readers.read(path, Reading(section("corpus")), Tally())) < 3 * BLOCK


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
@pytest.mark.parametrize("kind", [".txt", ".jsonl", ".csv", ".parquet"])
def test_a_truncated_file_is_noticed_wherever_it_is_cut(tmp_path, kind, suffix):
    documents = [f"document number {i}" for i in range(300)]
    plain = "\n".join(documents).encode() if kind == ".txt" else encode(documents, kind)
    whole = compress(plain, suffix)
    path = tmp_path / f"corpus{kind}{suffix}"
    for cut in [*range(0, len(whole), max(1, len(whole) // 40)), len(whole) - 1]:
        path.write_bytes(whole[:cut])
        with pytest.raises(UserError, match=f"corpus{kind}{suffix}: .*(truncated|empty)"):
            read(path, document="line")
        rows, tally = read(path, "skip", document="line")
        assert [row["text"] for row in rows] == documents[: len(rows)]
        assert list(tally.damaged_files) == [str(path)]


def test_a_truncated_large_file_keeps_what_came_before(tmp_path):
    documents = [f"document number {i}" for i in range(200_000)]
    whole = compress(encode(documents, ".jsonl"), ".zst")
    path = tmp_path / "corpus.jsonl.zst"
    path.write_bytes(whole[: len(whole) // 2])
    rows, _ = read(path, "skip")
    assert 10_000 < len(rows) < 190_000
    assert [row["text"] for row in rows] == documents[: len(rows)]


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_damaged_compressed_data_is_noticed(tmp_path, suffix):
    path = tmp_path / f"corpus.jsonl{suffix}"
    whole = bytearray(compress(encode(TEXTS * 50, ".jsonl"), suffix))
    whole[len(whole) // 2] ^= 255
    path.write_bytes(whole)
    with pytest.raises(UserError, match=rf"corpus\.jsonl\{suffix}: damaged"):
        read(path)


def test_a_parquet_file_without_its_end_is_noticed(tmp_path):
    path = tmp_path / "a.parquet"
    path.write_bytes(encode(TEXTS, ".parquet")[:-9])
    with pytest.raises(UserError, match=r"a\.parquet: damaged"):
        read(path)


def test_a_flipped_bit_in_a_parquet_page_with_a_checksum_is_noticed(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(
        pa.table({"text": [f"text {i}" for i in range(100)]}), path, compression="none", write_page_checksum=True
    )
    whole = bytearray(path.read_bytes())
    whole[whole.index(b"text 50")] ^= 1
    path.write_bytes(whole)
    with pytest.raises(UserError, match=r"a\.parquet: damaged"):
        read(path)


def test_bytes_that_are_not_utf8_are_named_with_their_place(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"fine\nbad \xff line\nfine too\n")
    with pytest.raises(UserError, match=r"a\.txt: byte 9: not UTF-8: invalid start byte 0xff"):
        read(path)
    with pytest.raises(UserError, match=r"a\.txt: line 2 \(byte 9\): not UTF-8"):
        read(path, document="line")
    assert texts_of(path, "skip", document="line") == ["fine", "fine too"]
    assert read(path, "skip")[1].dropped == {"undecodable": 1}
    path.write_bytes(b"a line of 20 bytes.\n" * 200_000 + b"\xff\n")
    with pytest.raises(UserError, match=r"a\.txt: line 200001 \(byte 4000000\): not UTF-8"):
        read(path, document="line")
    path.write_bytes("utf-16".encode("utf-16"))
    with pytest.raises(UserError, match="UTF-16"):
        read(path)

    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "fine"}\n{"text": "\xe9"}\n{"text": "fine too"}')
    with pytest.raises(UserError, match=r"a\.jsonl: line 2 \(byte 27\): not UTF-8"):
        read(path)
    rows, tally = read(path, "skip")
    assert [row["text"] for row in rows] == ["fine", "fine too"]
    assert tally.dropped == {"undecodable": 1}

    path = tmp_path / "a.csv"
    path.write_bytes(b'id,text\n1,fine\n2,"a record of\ntwo \xff lines"\n3,fine too\n')
    with pytest.raises(UserError, match=r"a\.csv: line 3: not UTF-8: byte 0xff"):
        read(path)
    rows, tally = read(path, "skip")
    assert [row["text"] for row in rows] == ["fine", "fine too"]
    assert tally.dropped == {"undecodable": 1}


@pytest.mark.parametrize(
    "kind",
    [
        *[pa.string(), pa.binary(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())],
        *[pa.string_view(), pa.binary_view(), pa.large_binary()],
    ],
    ids=str,
)
def test_parquet_text_is_checked_for_utf8(tmp_path, kind):
    """Arrow itself hands on invalid UTF-8 in a string column without a word."""
    raw = pa.array([b"fine", b"bad \xff", None, "schön".encode()], pa.binary())
    values = pa.Array.from_buffers(pa.string(), 4, raw.buffers())
    if pa.types.is_binary(kind):
        values = raw
    elif kind in (pa.binary_view(), pa.large_binary()):
        values = raw.cast(kind)
    elif kind == pa.string_view():
        values = pa.Array.from_buffers(kind, 4, raw.cast(pa.binary_view()).buffers())
    elif pa.types.is_large_string(kind):
        values = pa.Array.from_buffers(kind, 4, raw.cast(pa.large_binary()).buffers())
    elif pa.types.is_dictionary(kind):
        values = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 2], pa.int32()), values.take(pa.array([0, 1, 3])))
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": values, "category": ["a", "b", "c", "d"]}), path)
    with pytest.raises(UserError, match=r"a\.parquet: row 2 \(its byte 4\): not UTF-8"):
        read(path)
    rows, tally = read(path, "skip")
    assert [(row["text"], row["category"]) for row in rows] == [("fine", "a"), (None, "c"), ("schön", "d")]
    assert tally.dropped == {"undecodable": 1}


def test_broken_json_lines(tmp_path):
    path = tmp_path / "a.jsonl"
    lines = [
        '{"text": "one"}',
        "[1]",
        '{"text": 7}',
        '{"txt": "two"}',
        "",
        '{"text": "two"} {"text": "x"}',
        "[" * 10**5,
    ]
    path.write_text("\n".join([*lines, ' {"text": null} ', '{"text": "last", "license": ["a", 1]}', '{"text": "brok']))
    rows, tally = read(path, "skip")
    assert [row["text"] for row in rows] == ["one", None, "last"]
    assert rows[2]["license"] == '["a", 1]'
    assert tally.dropped == {"malformed": 6}
    path.write_text('{"text": "one"}\n{"text": "brok')
    with pytest.raises(UserError, match=r"a\.jsonl: line 2: not JSON: Unterminated string"):
        read(path)


def test_a_mark_where_json_lines_were_joined_is_named(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"text": "one"}\n' * 2)
    with pytest.raises(UserError, match=r"a\.jsonl: line 2: begins with a byte order mark, as where files were joined"):
        read(path)


def test_lone_surrogates_are_replaced_and_counted(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a\\ud800b"}\n{"text": "\\ud83c\\udf88"}\n{"text": "c", "category": "\\udfff"}\n')
    rows, tally = read(path)
    assert [row["text"] for row in rows] == ["a\ufffdb", "🎈", "c"]
    assert rows[2]["category"] == "\ufffd"
    assert tally.changed == {"lone_surrogates": 2}
    path.write_text('{"text": "c", "category": 3, "license": ["a"]}\n')
    assert read(path)[1].changed == {}, "metadata that is no text is written as JSON"


def test_broken_csv_records(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('id,text\n1,one\n2\n3,three,3\n4,"fo"ur\n\n5,five\n6,"unterminated\nand more')
    rows, tally = read(path, "skip")
    assert [row["text"] for row in rows] == ["one", "five"]
    assert tally.dropped == {"malformed": 4}
    with pytest.raises(UserError, match=r"a\.csv: line 3: 1 field, but the heading has 2"):
        read(path)
    path.write_text('id,text\n1,"unterminated\nand more')
    with pytest.raises(UserError, match=r"a\.csv: line 2: not CSV: unexpected end of data"):
        read(path)


def test_a_csv_field_of_a_megabyte(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(f"text\n{'x' * 2_000_000}\n")
    assert texts_of(path) == ["x" * 2_000_000]


@pytest.mark.parametrize("kind", [".jsonl", ".csv", ".parquet"])
def test_a_missing_column_names_the_file_and_the_columns_there_are(tmp_path, kind):
    path = tmp_path / f"a{kind}"
    path.write_bytes(encode(TEXTS, kind))
    with pytest.raises(UserError, match=rf"a\{kind}: .*'body'.*'category', 'text'"):
        read(path, "skip", text_column="body")
    assert texts_of(path, text_column="category")[0] == "c0"


def test_a_column_of_numbers_is_no_text(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": [1, 2], "doc-id": [3, 4]}), path)
    with pytest.raises(UserError, match=r"a\.parquet: column 'text' is int64, not text"):
        read(path)
    pq.write_table(pa.table({"text": ["a", "b"], "doc-id": [3, 4], "license": [{"x": 1}, None]}), path)
    rows, _ = read(path)
    assert [(row["doc-id"], row["license"]) for row in rows] == [("3", '{"x": 1}'), ("4", None)]


@pytest.mark.parametrize("name", ["a.xlsx", "a.jsonp", "a.txt.bz2", "a", "a.gz"])
def test_other_formats_are_refused(tmp_path, name):
    (tmp_path / name).write_text("x")
    with pytest.raises(
        UserError, match=r"file format cannot be read.*\.parquet, \.jsonl, \.json, \.csv, \.tsv, \.txt, each also"
    ):
        read(tmp_path / name)


def test_missing_file_and_empty_files(tmp_path):
    with pytest.raises(UserError, match=r"nothing\.txt: no such file"):
        read(tmp_path / "nothing.txt")
    for kind in (".jsonl", ".csv"):
        (tmp_path / f"a{kind}").write_bytes(b"")
        assert texts_of(tmp_path / f"a{kind}") == []
