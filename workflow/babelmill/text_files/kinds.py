"""Tell from the first bytes of a file what it is, whatever its name says."""

import re
from typing import NamedTuple

from babelmill.text_files.encodings import wide_encoding

HEAD = 1 << 16  # bytes that are looked at
BINARY = 0.3  # a larger share of control characters is no text in any encoding
CONTROL = bytes({*range(32)} - {*b"\t\n\r\f\x1b"})


class FileKind(NamedTuple):
    """What a file is, and what its owner can do about it."""

    name: str
    advice: str


GZIP = FileKind("gzip-compressed data", "let its name end in .gz, or unpack it")
ZSTD = FileKind("zstd-compressed data", "let its name end in .zst, or unpack it")
ZIP = FileKind("a zip archive (or a Word, Excel or EPUB document)", "unpack it, or save its text")
PARQUET = FileKind("a Parquet file", "let its name end in .parquet")
PDF = FileKind("a PDF document", "extract its text, for instance with pdftotext")
TEXT = FileKind("plain text", "let its name end in .txt, .jsonl, .csv or .tsv")
BYTES = FileKind("binary data of an unknown kind", "replace the file")

MAGIC = [
    (rb"\x1f\x8b\x08", GZIP),
    (rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18", ZSTD),  # the second begins a frame to skip, as pzstd writes it
    (rb"PK(\x03\x04|\x05\x06)", ZIP),
    (rb"PAR[1E][\x00-\x1f]", PARQUET),
    (rb"%PDF-\d", PDF),
    (rb"\xfd7zXZ\x00", FileKind("xz-compressed data", "unpack it")),
    (rb"BZh[1-9]1AY&SY", FileKind("bzip2-compressed data", "unpack it")),
    (rb"7z\xbc\xaf\x27\x1c", FileKind("a 7z archive", "unpack it")),
    (rb".{257}ustar(\x0000|  \x00)", FileKind("a tar archive", "unpack it")),
    (rb"ARROW1\x00\x00|FEA1\x00{4}", FileKind("an Arrow file", "save it as Parquet")),
    (rb"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", FileKind("an old Word or Excel document", "save its text")),
    (rb"SQLite format 3\x00", FileKind("an SQLite database", "save its text")),
]
ANY_MAGIC = re.compile(b"|".join(magic for magic, _ in MAGIC), re.DOTALL)
WANTED = {"gzip": GZIP, "zstd": ZSTD, "parquet": PARQUET, "text": TEXT}
ENDING = {"gzip": ".gz", "zstd": ".zst"}
BEGINNING = {"gzip": b"\x1f\x8b\x08", "zstd": b"\x28\xb5\x2f\xfd"}  # a file may end even earlier


def kind_of(head: bytes) -> FileKind:
    """Return what a file is that begins with `head`."""
    if ANY_MAGIC.match(head):
        return next(kind for magic, kind in MAGIC if re.match(magic, head, re.DOTALL))
    if encoding := wide_encoding(head):
        return FileKind(f"text in {encoding}", f"convert it to UTF-8: iconv -f {encoding} -t UTF-8 OLD > NEW")
    controls = len(head) - len(head.translate(None, CONTROL))
    return BYTES if controls > BINARY * len(head) else TEXT


def other_than(head: bytes, wanted: str) -> str | None:
    """Return what is wrong with a file that begins with `head`, and what to do; None if it may be what is wanted.

    `wanted`: `gzip`, `zstd`, `parquet` or `text`. Nothing is said about an empty file.
    """
    found = kind_of(head)
    if not head or found is WANTED[wanted] or (wanted == "parquet" and head[:4] in (b"PAR1", b"PARE")):
        return None
    if wanted in ENDING and BEGINNING[wanted].startswith(head):
        return None
    if found is TEXT and wanted in ENDING:
        return f"this is plain text, not {WANTED[wanted].name}: remove {ENDING[wanted]} from its name"
    expected = "" if wanted == "text" else f", not {WANTED[wanted].name}"
    return f"this is {found.name}{expected}: {found.advice}"
