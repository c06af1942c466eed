"""What a file is, whatever its name says, and what is probably its encoding; the same in corpora and tables."""

import bz2
import gzip
import io
import json
import lzma
import tarfile
import zipfile
from pathlib import Path

import pytest

from babelmill.cli import main
from babelmill.commands.score import lines_of
from babelmill.core.files import UserError
from babelmill.corpus import readers
from babelmill.corpus.reading import Reading
from babelmill.corpus.tally import Tally
from babelmill.labels.corpus_codes import code_list
from babelmill.tables.table import Table
from babelmill.text_files import opening
from babelmill.text_files.opening import Stream, Unreadable
from helpers.tables import compress, table_bytes
from helpers.training.training_data import section

TEXT = "One line, and another.\n" * 50
JSON = json.dumps({"text": TEXT}).encode()


def zstd(data: bytes) -> bytes:
    return compress(data, ".zst")


def zipped(data: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a.txt", data)
    return file.getvalue()


def tarred(data: bytes) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        about = tarfile.TarInfo("a.txt")
        about.size = len(data)
        archive.addfile(about, io.BytesIO(data))
    return file.getvalue()


PDF = b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n1 0 obj\n<< /Type /Catalog >>\nendobj\n"
OF_KIND = {
    "gzip-compressed data": gzip.compress(TEXT.encode()),
    "zstd-compressed data": zstd(TEXT.encode()),
    "a zip archive": zipped(TEXT.encode()),
    "a PDF document": PDF,
    "a Parquet file": table_bytes([{"text": TEXT}], ".parquet"),
    "xz-compressed data": lzma.compress(TEXT.encode()),
    "bzip2-compressed data": bz2.compress(TEXT.encode()),
    "a tar archive": tarred(TEXT.encode()),
    "text in UTF-16LE": TEXT.encode("utf-16-le"),
    "plain text": JSON,
}
SAME = {".gz": "gzip-compressed data", ".zst": "zstd-compressed data", ".parquet": "a Parquet file", "": "plain text"}


def read(path: Path, on_error: str = "stop", encoding: str = "utf-8", **corpus) -> tuple[list[str], Tally]:
    tally, reading = Tally(on_error), Reading(section("corpus", encoding=encoding, **corpus), scratch=path.parent)
    found = readers.read(path, reading, tally)
    return [text for batch in found for text in batch["text"].to_pylist()], tally


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
@pytest.mark.parametrize("kind", OF_KIND)
@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.csv", "a.parquet", "a.txt.gz", "a.jsonl.zst", "a.parquet.gz"])
def test_a_file_that_is_something_else_is_named(tmp_path, name, kind, encoding):
    """Never as damage of what it is not, never with advice to decode it as latin-1, and never read as text."""
    path = tmp_path / name
    if SAME.get(path.suffix, SAME[""]) == kind:
        return
    path.write_bytes(OF_KIND[kind])
    with pytest.raises(UserError) as error:
        read(path, encoding=encoding)
    message = str(error.value)
    assert message.startswith(f"{path}: this is {kind}") and "\n" not in message and "latin-1" not in message
    assert "corpus.on_error: skip to leave the file out" in message
    texts, tally = read(path, "skip", encoding)
    assert texts == [] and list(tally.damaged_files) == [str(path)]
    if "txt" not in name:
        with pytest.raises(UserError, match=f"this is {kind}"):
            Table(path, encoding=encoding, scratch=tmp_path)


def test_what_is_packed_is_looked_at_too(tmp_path):
    for name, content in (
        ("a.txt.gz", gzip.compress(PDF)),
        ("a.jsonl.zst", zstd(PDF)),
        ("a.parquet.gz", gzip.compress(PDF)),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UserError, match="this is a PDF document"):
            read(tmp_path / name)


@pytest.mark.parametrize(
    "text",
    [
        "hello world\n" * 20,
        "Привет, мир!\n" * 20,
        "人人生而自由,在尊严和权利上一律平等。\n" * 20,
        "すべての人間は、生まれながらにして\n" * 9,
        "ਪੰਜਾਬੀ ਭਾਸ਼ਾ\n" * 9,
        "العربية لغة\n" * 9,
        "a🎈b🎈 c\n" * 30,
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "cp1252"])
def test_utf_16_and_utf_32_with_and_without_a_mark(tmp_path, text, encoding):
    path = tmp_path / "a.txt"
    for wide in ("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"):
        path.write_bytes(text.encode(wide))
        with pytest.raises(UserError, match=f"this is text in {wide.upper()[:6]}.*iconv"):
            read(path, encoding=encoding, document="line")
    path.write_bytes(text.encode())
    assert "".join(read(path)[0]) == text


@pytest.mark.parametrize(
    "raw", [b"a\0b c", b"a text\0 with one NUL", "слово\0 и слово".encode(), "ein schön\0er Tag".encode("latin-1")]
)
def test_a_nul_alone_makes_no_other_encoding(tmp_path, raw):
    (tmp_path / "a.txt").write_bytes(raw)
    texts, _ = read(tmp_path / "a.txt", encoding="utf-8" if raw.isascii() or b"\xd1" in raw else "latin-1")
    assert "\0" in texts[0]


def test_words_that_begin_other_formats_are_text_and_a_folder_is_none(tmp_path):
    for text in ("ARROW1 is a mark\n", "FEA1 too\n", "x" * 257 + "ustar is one of tar\n"):
        (tmp_path / "a.txt").write_text(text)
        assert read(tmp_path / "a.txt")[0] == [text]
    (tmp_path / "a.txt").write_bytes(b"ARROW1\0\0\xff\xff\xff\xff")
    with pytest.raises(UserError, match="this is an Arrow file"):
        read(tmp_path / "a.txt")
    with pytest.raises(UserError, match=r"this is a folder; name a file in it$"):
        code_list(tmp_path)


def test_windows_text_as_latin_1_is_refused_with_its_name(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes("text\nfein\n“quoted” – schön\n".encode("cp1252"))
    with pytest.raises(
        UserError, match=r"a\.csv: line 3: the byte 0x93 is an invisible .*“ in cp1252.*set the encoding to cp1252"
    ):
        read(path, "skip", "latin-1")
    assert read(path, encoding="cp1252")[0][1] == "“quoted” – schön"
    path.write_bytes(b"text\na\x81b\n")
    with pytest.raises(UserError, match=r"line 2: the byte 0x81 .*in another encoding"):
        read(path, encoding="latin-1")
    path.write_bytes("text\nschön\n".encode("latin-1"))
    assert read(path, encoding="latin-1")[0] == ["schön"]


def frame(window: int) -> bytes:
    """A .zst of one block that declares a window of 1 << `window` bytes."""
    return (
        b"\x28\xb5\x2f\xfd\x04" + bytes([(window - 10) << 3]) + (3 << 3 | 1).to_bytes(3, "little") + b"one" + b"\0" * 4
    )


def test_a_long_window_is_named_with_what_to_do(tmp_path):
    path = tmp_path / "a.txt.zst"
    for before in (b"", zstd(b"first ")):
        path.write_bytes(before + frame(31))
        with pytest.raises(
            UserError, match=r"a\.txt\.zst: .*a long window, and 128 MB.*zstd -d --long=31.*leave the file out"
        ):
            read(path)
    path.write_bytes(b"\x50\x2a\x4d\x18\x03\0\0\0abc" + zstd(TEXT.encode()))  # as pzstd writes it
    assert read(path)[0] == [TEXT]


@pytest.mark.parametrize("kind", [".txt", ".jsonl", ".csv"])
def test_the_readable_part_of_a_small_truncated_file_is_used(tmp_path, kind):
    """All whole documents before the cut; as one document, a file's whole lines."""
    texts = [f"document {i} {hash(str(i))}" for i in range(500)]
    lines = {".txt": texts, ".csv": ["text", *texts], ".jsonl": [json.dumps({"text": text}) for text in texts]}[kind]
    whole = gzip.compress("\n".join(lines).encode())
    path = tmp_path / f"a{kind}.gz"
    path.write_bytes(whole[: len(whole) // 2])
    found, tally = read(path, "skip", document="line")
    assert 200 < len(found) < 300 and found == texts[: len(found)]
    assert tally.damaged_files == {str(path): "truncated: the compressed data ends too early"}
    if kind == ".txt":
        assert read(path, "skip")[0] == ["".join(f"{text}\n" for text in found)]


def test_what_is_packed_stops_at_a_bound(tmp_path, monkeypatch):
    monkeypatch.setattr(opening, "UNPACKED", 1 << 20)
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(b"yes\n" * (1 << 22)))
    with pytest.raises(UserError, match=r"a\.txt\.gz: it unpacks to more than 3 MB \(200 times its size\)"):
        read(path, document="line")
    path = tmp_path / "a.parquet.gz"
    path.write_bytes(gzip.compress(b"PAR1" + bytes(1 << 24)))
    with pytest.raises(UserError, match=r"it unpacks to more than"):
        read(path)
    assert list(tmp_path.glob("*")) == [tmp_path / "a.txt.gz", path] or len(list(tmp_path.iterdir())) == 2


def test_tables_and_lists_of_codes_are_opened_alike(tmp_path):
    path = tmp_path / "a.csv"
    for raw, encoding, problem in (
        ("text\nschön\n".encode("utf-16-le"), "latin-1", "this is text in UTF-16LE"),
        ("text\n“x”\n".encode("cp1252"), "latin-1", "line 2: the byte 0x93 is an invisible .* cp1252"),
        (b"text\none\ntw\0o\n", "utf-8", "line 3 has a NUL"),
        (b"\xef\xbb\xbftext\none\n\xef\xbb\xbftext\ntwo\n", "utf-8", "line 3 begins with a byte order mark"),
        (gzip.compress(b"text\n"), "utf-8", "this is gzip-compressed data"),
    ):
        path.write_bytes(raw)
        with pytest.raises(UserError, match=rf"a\.csv: {problem}"):
            Table(path, encoding=encoding)
    path.write_bytes(b"\xef\xbb\xbftext\none\n")
    assert list(Table(path)) == [["one"]]
    path.write_bytes("11,one\n12,two\n".encode("utf-16"))
    with pytest.raises(UserError, match=r"a\.csv: this is text in UTF-16LE"):
        code_list(path)
    path.write_bytes(b"\xef\xbb\xbf11,one\n\xef\xbb\xbf12,two\n")
    assert code_list(path) == {"11": "one", "12": "two"}


def test_lines_end_at_newlines_alone(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_bytes("\ufeffone\u2028still\x0cone\r\n\ntwo".encode())
    with Stream(path, None) as stream:
        assert list(opening.lines(stream)) == ["one\u2028still\x0cone\r\n".encode(), b"\n", b"two"]
    with pytest.raises(Unreadable, match="plain text, not gzip"):
        opening.open_file(path, ".tsv", "gzip")


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_paragraphs(tmp_path, monkeypatch, end):
    """However the blocks lie, and with white space in blank lines."""
    paragraphs = [f"Line {i}.{end}Its second line." for i in range(400)]
    text = f" {end}" + f"{end} \t{end}{end}".join(paragraphs) + end
    path = tmp_path / "a.txt"
    path.write_bytes(text.encode())
    expected = [paragraph.replace("\r\n", "\n") for paragraph in paragraphs]
    assert read(path, document="paragraph")[0] == expected
    for size in range(30, 60):
        monkeypatch.setattr("babelmill.corpus.readers.lines.BLOCK", size)
        assert read(path, document="paragraph")[0] == expected
    path.write_bytes(f"one{end}bad ".encode() + b"\xff" + f"{end}three{end}{end}four".encode())
    with pytest.raises(UserError, match=r"a\.txt: line 2 \(byte \d+\): not UTF-8"):
        read(path, document="paragraph")
    assert read(path, "skip", document="paragraph")[0] == ["four"]


def test_the_text_whose_words_are_scored(tmp_path, monkeypatch, capsys):
    """A mark before a text is no sign of the text, and what would be one is refused with its line."""
    path = tmp_path / "a.txt"
    for raw in (b"One two.\n\nThree.", b"\xef\xbb\xbfOne two.\n\n\xef\xbb\xbfThree.\r\n", b"One two.\n\nThree."):
        path.write_bytes(raw)
        assert list(lines_of(str(path))) == [(1, "One two."), (3, "Three.")]
        (tmp_path / "a.txt.gz").write_bytes(gzip.compress(raw))
        assert list(lines_of(f"{path}.gz")) == [(1, "One two."), (3, "Three.")]
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(raw)))
        assert list(lines_of("-")) == [(1, "One two."), (3, "Three.")]
    for raw, problem in (
        (TEXT.encode("utf-16"), "this is text in UTF-16LE"),
        (b"One\nt\xe9o", r"line 2 is not UTF-8 \(byte 0xe9\)"),
        (b"One\n\nt\0o", "line 3 has a NUL"),
    ):
        path.write_bytes(raw)
        with pytest.raises(UserError, match=rf"a\.txt: {problem}"):
            list(lines_of(str(path)))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=rf"b\.txt: no such file \(relative to {tmp_path}\)"):
        list(lines_of("b.txt"))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert main(["score", "gpt2", "--words", "~/c.txt"]) == 1
    assert f"error: {tmp_path}/c.txt: no such file" in capsys.readouterr().err
