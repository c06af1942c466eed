"""The one reader: every format and compression, and every kind of damage that is known to have passed unnoticed."""

import gzip
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from babelmill.commands.score import lines_of
from babelmill.core.files import UserError
from babelmill.core.words import words_in
from babelmill.tables.rows import Asked, rows, text_rows, whole_table
from babelmill.tables.text import BLOCK, BadRow, Form, read_text
from helpers.tables import compress, table_bytes

TEXTS = ["one\u2028still one\x85and\x0chere", "NA", "007", "null", 'x<s>y "quoted", or not', "zwei\nZeilen", "ひとつ🎈"]
TEXT = Asked("text", "corpus.text_column")
LICENSE = Asked("license", "metadata", "anything", optional=True)


def encode(texts: list[str], suffix: str) -> bytes:
    """Texts as the bytes of a file with the columns `id` and `text`."""
    return table_bytes([{"id": f"c{i}", "text": text} for i, text in enumerate(texts)], suffix)


def texts_of(path: Path, **form) -> list[str]:
    return [cells[0] for _, cells in rows(path, [TEXT], Form("corpus", **form))]


def skipped(path: Path, **form) -> tuple[list[str], list[str]]:
    """The texts of a file, and what was wrong with its other rows."""
    problems: list[BadRow] = []
    found = [cells[0] for _, cells in rows(path, [TEXT], Form("corpus", **form), problems.append)]
    return found, [f"{problem.reason} {problem.where}".strip() for problem in problems]


def refused(path: Path, pattern: str, **form) -> None:
    """A file is refused in one short line that begins with it."""
    with pytest.raises(UserError, match=pattern) as error:
        texts_of(path, **form)
    message = str(error.value)
    assert message.startswith(str(path)) and "\n" not in message and len(message) < 2500


@pytest.mark.parametrize("compression", ["", ".gz", ".zst"])
@pytest.mark.parametrize("kind", [".jsonl", ".csv", ".parquet"])
def test_text_comes_out_as_it_went_in(tmp_path, kind, compression):
    path = tmp_path / f"corpus{kind}{compression}"
    path.write_bytes(compress(encode(TEXTS, kind), compression))
    found = list(rows(path, [LICENSE, TEXT, Asked("id", "", "anything")]))
    assert [list(cells) for _, cells in found] == [[None, text, f"c{i}"] for i, text in enumerate(TEXTS)]
    lines = {".jsonl": [1, 2, 3, 4, 5, 6, 7], ".csv": [2, 3, 4, 5, 6, 7, 9], ".parquet": [1, 2, 3, 4, 5, 6, 7]}
    assert [number for number, _ in found] == lines[kind]
    assert whole_table(path) == (["id", "text"], [[f"c{i}", text] for i, text in enumerate(TEXTS)])
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("compression", ["", ".gz", ".zst"])
def test_a_text_file_is_a_document_or_a_document_a_line(tmp_path, compression):
    path = tmp_path / f"corpus.txt{compression}"
    path.write_bytes(compress("\ufeffone\u2028still one\x0c\r\n\r\ntwo\n\nthree".encode(), compression))
    assert texts_of(path, document="file") == ["one\u2028still one\x0c\n\ntwo\n\nthree"]
    assert list(rows(path, [TEXT, LICENSE], Form(document="line"))) == [
        (1, ("one\u2028still one\x0c", None)),
        (3, ("two", None)),
        (5, ("three", None)),
    ]
    with pytest.raises(UserError, match=r"plain text has no columns; corpus\.prompt_column needs a table"):
        list(rows(path, [TEXT, Asked("prompt", "corpus.prompt_column")], Form(document="line")))
    with pytest.raises(UserError, match="plain text has no columns"):
        whole_table(path)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_paragraphs_end_at_blank_lines(tmp_path, end):
    paragraphs = [f"Line {i}.{end}Its second line." for i in range(BLOCK // 20)]
    path = tmp_path / "a.txt"
    path.write_bytes((f" {end}" + f"{end} \t{end}{end}".join(paragraphs) + end).encode())
    assert texts_of(path, document="paragraph") == [paragraph.replace("\r\n", "\n") for paragraph in paragraphs]


def test_a_number_of_words_counts_across_the_file_and_cuts_what_is_longer(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("\n".join([" ".join(["word"] * 20)] * 15))
    assert [len(text.split()) for text in texts_of(path, document="300 words")] == [300]
    line = " ".join(f"w{i:03}" for i in range(100))
    path.write_text(f"{line}\n" * 10_000)
    found = texts_of(path, document="400000 words")
    assert path.stat().st_size == 5_000_000 and [len(text.split()) for text in found] == [400_000, 400_000, 200_000]
    assert "\n".join(found) + "\n" == path.read_text()
    path.write_text("one two\n" + " ".join(f"w{i}" for i in range(100_000)) + "  \nlast one\n")
    found = texts_of(path, document="300 words")
    assert [len(text.split()) for text in found] == [302, *[300] * 332, 102]
    assert " ".join(found).split() == path.read_text().split() and found[0].startswith("one two\nw0 ")


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
OF_KIND = {
    "gzip-compressed data": gzip.compress(b"text\n"),
    "zstd-compressed data": compress(b"text\n", ".zst"),
    "a zip archive": b"PK\x03\x04\x14\x00\x00\x00\x08\x00",
    "a PDF document": b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n1 0 obj\n",
    "a Parquet file": table_bytes([{"text": "a"}], ".parquet"),
    "a pointer of Git LFS": POINTER,
    "text in UTF-16": "text\nschön\n".encode("utf-16"),
    "text in UTF-16 or UTF-32": "text\nschön\n".encode("utf-16-le"),
    "text whose lines end with CR alone": b"text\rone\rtwo\r",
}


@pytest.mark.parametrize("kind", OF_KIND)
@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.csv", "a.parquet", "a.txt.gz", "a.jsonl.zst", "a.parquet.gz"])
def test_a_file_that_is_something_else_is_named_and_never_read(tmp_path, name, kind):
    path = tmp_path / name
    if ".parquet" in name and kind == "a Parquet file":
        return
    packed = path.suffix in (".gz", ".zst") and kind != "a pointer of Git LFS"
    path.write_bytes(compress(OF_KIND[kind], path.suffix) if packed else OF_KIND[kind])
    without_magic = kind in ("text in UTF-16 or UTF-32", "text whose lines end with CR alone")
    refused(path, "no Parquet file" if ".parquet" in name and without_magic else kind, document="line")
    assert skipped(path, document="line") == ([], ["damaged"])


TRUNCATED = [(kind, suffix) for kind in (".txt", ".jsonl", ".csv", ".parquet") for suffix in (".gz", ".zst")]


@pytest.mark.parametrize(("kind", "suffix"), [*TRUNCATED, (".parquet", "")])
def test_a_truncated_file_is_noticed_wherever_it_is_cut(tmp_path, kind, suffix):
    documents = [f"document number {i}" for i in range(300)]
    whole = compress("\n".join(documents).encode() if kind == ".txt" else encode(documents, kind), suffix)
    path = tmp_path / f"corpus{kind}{suffix}"
    for cut in [*range(0, len(whole), max(1, len(whole) // 40)), len(whole) - 1]:
        path.write_bytes(whole[:cut])
        refused(path, "damaged|the compressed file is empty|no Parquet file", document="line")
        assert skipped(path, document="line") == ([], ["damaged"])


def test_a_damaged_byte_is_noticed(tmp_path):
    packed = compress(encode([f"document number {i}" for i in range(200_000)], ".jsonl"), ".zst")
    file, texts = pa.BufferOutputStream(), [f"text {i}" for i in range(100)]
    pq.write_table(pa.table({"text": texts}), file, compression="none", write_page_checksum=True)
    table = file.getvalue().to_pybytes()
    for name, whole, at in (("a.jsonl.zst", packed, len(packed) // 2), ("a.parquet", table, table.index(b"text 50"))):
        (tmp_path / name).write_bytes(whole[:at] + bytes([whole[at] ^ 255]) + whole[at + 1 :])
        refused(tmp_path / name, "damaged")


def test_bytes_that_are_not_in_the_encoding_are_named_or_skipped(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"fine\nbad \xff line\nfine too\n")
    for document in ("file", "line"):
        refused(
            path,
            r"line 2: not UTF-8: byte 0xff \(corpus.encoding: latin-1 or cp1252, if it is one .*",
            document=document,
        )
    assert skipped(path, document="line") == (["fine", "fine too"], ["undecodable line 2"])
    assert skipped(path, document="paragraph") == ([], ["undecodable line 2"])
    path.write_bytes(b"a line of 20 bytes.\n" * 200_000 + b"\xff\n")
    refused(path, "line 200001: not UTF-8", document="line")
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "fine"}\n{"text": "\xe9"}\n{"text": "\xe9}\n{"text": "fine too"}')
    assert skipped(path) == (["fine", "fine too"], ["undecodable line 2", "undecodable line 3"])
    path = tmp_path / "a.csv"
    path.write_bytes(b'id,text\n1,fine\n2,"a record of\ntwo \xff lines"\n3,fine too\n')
    assert skipped(path) == (["fine", "fine too"], ["undecodable line 4"])
    path.write_bytes(b"text,b\xe9\na,b\n")
    refused(path, "line 1: not UTF-8: byte 0xe9")


KINDS = [pa.string(), pa.large_binary(), pa.binary_view(), pa.dictionary(pa.int32(), pa.string()), pa.json_()]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_arrow_says_what_is_text_and_its_utf_8_is_checked(tmp_path, kind):
    raw = pa.array([b"eins", b"bad \xff", None, "schön".encode()], pa.binary())
    stored = pa.Array.from_buffers(pa.string(), 4, raw.buffers())  # without a check
    if isinstance(kind, pa.BaseExtensionType):
        text = pa.ExtensionArray.from_storage(kind, stored)
    elif pa.types.is_dictionary(kind):
        values = pa.Array.from_buffers(kind.value_type, 4, raw.buffers()).take(pa.array([0, 1, 3]))
        text = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 2], kind.index_type), values)
    else:
        text = raw.cast(kind) if kind != pa.string() else stored
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": text}), path)
    assert pq.read_schema(path).field("text").type == kind, "what is tested is what the file has"
    refused(path, "row 2: not UTF-8: byte 0xff")
    assert skipped(path) == (["eins", None, "schön"], ["undecodable row 2"])


def test_other_types_of_parquet_are_text_of_a_table(tmp_path):
    path = tmp_path / "a.parquet"
    columns = {"a": pa.array([0.1, None], pa.float32()), "b": [7, None], "c": [True, None], "d": [1.0, float("nan")]}
    pq.write_table(pa.table(columns | {"e": [["x"], None], "f": pa.nulls(2)}), path)
    assert whole_table(path)[1] == [["0.1", "7", "true", "1.0", '["x"]', ""], [""] * 6]
    for name in ("b", "e"):
        with pytest.raises(UserError, match=rf"column '{name}' is .*, not text; set --text"):
            list(rows(path, [Asked(name, "--text")]))
    assert list(rows(path, [Asked("b", "", "value"), Asked("f", "")])) == [(1, (7, None)), (2, (None, None))]
    with pytest.raises(UserError, match=r"column 'e' is list.*, neither text nor numbers"):
        list(rows(path, [Asked("e", "", "value")]))


BAD_JSON = {
    "[1]": "not a JSON object; if the file is one array",
    '{"text": 7}': "'text' is no text: 7",
    '{"text": ["farmer"]}': "'text' is no text: a list",
    '{"txt": "two"}': "no key 'text'",
    '{"text": "two"} {"text": "x"}': "not JSON: Extra data",
    "[" * 10**5: "not JSON: it is nested too deeply",
    '{"text": ' + "[" * 10**5: "not JSON: it is nested too deeply",
    '{"text": "a", "text": "b"}': "the key 'text' appears twice",
    '\ufeff{"text": "a"}': "begins with a byte order mark, as where files were joined",
    '{"text": "brok': "not JSON: Unterminated string",
}


def test_broken_json_lines(tmp_path):
    path = tmp_path / "a.jsonl"
    good = ['\ufeff{"text": "one"}', "", ' {"text": null} \r', '{"text": "\\" : \\":"}']
    path.write_text("\n".join([*good, *BAD_JSON]), encoding="utf-8")
    assert skipped(path) == (["one", None, '" : ":'], [f"malformed line {5 + i}" for i in range(len(BAD_JSON))])
    for line, why in BAD_JSON.items():
        path.write_text(f"{good[0]}\n{line}\n", encoding="utf-8")
        refused(path, f"line 2: {why}")
    path.write_text('{"txt": "one"}\n')
    with pytest.raises(UserError, match=r"no column 'text'; there are 'txt'; set corpus\.text_column"):
        skipped(path)


def test_broken_csv_records(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('id,text\n1,one\n2\n3,three,3\n4,"fo"ur\n\n5,five\n6,"unterminated\nand more')
    assert skipped(path) == (["one", "five"], [f"malformed line {number}" for number in (3, 4, 5, 8)])
    refused(path, "line 3: 1 field, but the heading has 2")
    path.write_text('id,text\n1,"unterminated\nand more')
    refused(path, "line 2: not CSV: unexpected end of data")
    path.write_text("\n\ntext\none\n\n\ufefftext\ntwo\n", encoding="utf-8")
    assert skipped(path) == (["one", "", "two"], ["malformed line 6"])
    path.write_text("id;text\n1;one\n")
    refused(path, r"no column 'text'; there are 'id;text'; .*corpus\.delimiter: \";\"")
    assert texts_of(path, delimiter=";") == ["one"]
    path.write_bytes('\ufeff"text",other\none,x\n'.encode())
    assert texts_of(path) == ["one"]


STRAY = 'id\ttext\n1\t"Hello there\n2\tGoodbye now"\n3\tplain words\n'


def test_quotation_marks_of_a_tsv_are_text(tmp_path, caplog):
    path = tmp_path / "a.tsv"
    for ends in ("\n", "\r\n"):
        path.write_bytes(STRAY.replace("\n", ends).encode())
        assert texts_of(path) == ['"Hello there', 'Goodbye now"', "plain words"]
    path.write_text('id\ttext\n1\t"one\ttwo\nthree"\n2\t"say ""no"""\n')
    assert texts_of(path, quoting="csv") == ["one\ttwo\nthree", 'say "no"']
    refused(path, "line 2: 3 fields, but .*; if quotation marks enclose its fields, set corpus.quoting: csv")
    path.write_text("id text\n1 one")
    refused(path, "set corpus.text_column; tabs separate the columns of a .tsv, and there are spaces$")
    path.write_text("id\ttext\n1\tone")
    assert texts_of(path) == ["one"]
    path.write_text('"text"\n"a"\n')
    refused(path, r"there are '\"text\"'; .*; if quotation marks enclose its fields, set corpus.quoting: csv$")
    path.write_text('text\n"one"\ntwo\n"three"\n')
    assert texts_of(path) == ['"one"', "two", '"three"']
    assert "quotation marks enclose a field in 2 rows" in caplog.text and "corpus.quoting: csv" in caplog.text
    (tmp_path / "a.csv").write_text('text\n"Hello\n')
    assert texts_of(tmp_path / "a.csv", quoting="none") == ['"Hello']


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.parquet"])
def test_two_columns_of_one_name_are_refused(tmp_path, name):
    path = tmp_path / name
    if name == "a.parquet":
        pq.write_table(pa.Table.from_arrays([pa.array(["x"])] * 3, names=["text", "license", "license"]), path)
    else:
        path.write_text("text,license,license\nx,x,x\n".replace(",", "\t" if name == "a.tsv" else ","))
    assert texts_of(path) == ["x"], "nobody asks for the others"
    with pytest.raises(UserError, match="2 columns are named 'license'"):
        list(rows(path, [TEXT, LICENSE]))


def test_other_encodings_never_garble(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes("text\nfein\n“quoted” – schön\n".encode("cp1252"))
    assert texts_of(path, encoding="cp1252")[1] == "“quoted” – schön"
    refused(path, "line 3: the byte 0x93 is an invisible .* set corpus.encoding: cp1252", encoding="latin-1")
    path.write_text("text\nschön\n", encoding="utf-8")
    refused(path, "this is UTF-8, and latin-1 would garble it: leave out corpus.encoding: latin-1", encoding="latin-1")
    path.write_bytes("text\nschön\n".encode("latin-1"))
    assert texts_of(path, encoding="latin-1") == ["schön"]


def test_a_table_is_text_without_nuls(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a", "n": 1.0, "l": ["é"]}\n{"text": null, "b": true}\n')
    rows = [["a", "1.0", '["é"]', ""], ["", "", "", "true"]]
    assert whole_table(path, [Asked("text", "--text")]) == (["text", "n", "l", "b"], rows)
    broken = (
        ('[{"text": "a"}]', "not a JSON object"),
        ('{"te', "not JSON"),
        ('{"text": 1, "text": 2}', "appears twice"),
    )
    for line, why in broken:
        (tmp_path / "b.jsonl").write_text(line)
        with pytest.raises(UserError, match=rf"b\.jsonl: line 1: .*{why}"):
            whole_table(tmp_path / "b.jsonl", [Asked("text", "--text")])
    with pytest.raises(UserError, match=r"no column 'txt'; there are 'text', 'n', 'l', 'b'; set --text"):
        whole_table(path, [Asked("txt", "--text")])
    path.write_text('{"text": "a"}\n{"text": "a\\u0000"}\n')
    assert texts_of(path)[1] == "a\0", "a corpus counts them"
    with pytest.raises(UserError, match="line 2: has a NUL"):
        list(text_rows([path], [TEXT]))
    path.write_text('{"text": "a\\ud800b"}\n')
    with pytest.raises(UserError, match=r"line 1: .*surrogate"):
        list(text_rows([path], [TEXT]))
    path.write_text("")
    with pytest.raises(UserError, match="is empty"):
        whole_table(path)


def test_other_formats_missing_files_folders_and_empty_files(tmp_path):
    formats = r"file format cannot be read.*\.parquet, \.jsonl, \.json, \.csv, \.tsv, \.txt, each also"
    for name in ("a.xlsx", "a.jsonp", "a.txt.bz2", "a", "a.gz"):
        (tmp_path / name).write_text("x")
        refused(tmp_path / name, formats)
    refused(tmp_path / "nothing.jsonl", "no such file")
    (tmp_path / "folder.jsonl").mkdir()
    refused(tmp_path / "folder.jsonl", "this is a folder; name a file in it")
    for kind in (".jsonl", ".csv", ".txt"):
        (tmp_path / f"a{kind}").write_bytes(b"")
        assert texts_of(tmp_path / f"a{kind}", document="line") == []


def test_words_of_long_texts_are_counted_in_parts(monkeypatch):
    monkeypatch.setattr("babelmill.core.words.PART", 3)
    draw = random.Random(1)
    for size in range(40):
        text = "".join(draw.choices("ab \n\u2003\x1f", k=size))
        assert words_in(text) == len(text.split()), repr(text)


def test_a_small_text_is_read_whole(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbfOne two.\n\n\xef\xbb\xbfThree.")
    assert read_text(path) == "One two.\n\nThree."
    for raw, problem in (
        (b"One\nt\xe9o", "line 2: not UTF-8: byte 0xe9; save the file as UTF-8"),
        (b"One, and more of it, at least two dozen\n\nt\0o", "line 3: has a NUL"),
        (POINTER, "this is a pointer of Git LFS"),
    ):
        path.write_bytes(raw)
        with pytest.raises(UserError, match=rf"a\.txt: {problem}"):
            read_text(path)

    path = tmp_path / "b.txt.gz"  # what is scored by hand is opened alike
    path.write_bytes(gzip.compress(b"\xef\xbb\xbfOne two.\n\n\xef\xbb\xbfThree.\r\n"))
    assert list(lines_of(path)) == [(1, "One two."), (3, "Three.")]


def test_documents_longer_than_a_block(tmp_path):
    documents = ["x" * 3 * BLOCK, *(f"document {i}" for i in range(30_000)), "y" * (BLOCK + 1)]
    for kind in (".jsonl", ".csv", ".parquet", ".txt"):
        path = tmp_path / f"corpus{kind}"
        path.write_bytes("\n".join(documents).encode() if kind == ".txt" else encode(documents, kind))
        assert texts_of(path, document="line") == documents
