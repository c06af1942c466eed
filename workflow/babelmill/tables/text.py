"""Open the files that users bring: unpacked, looked at once, and decoded.

Corpora, suites, tasks, tables to predict, lists of codes and the text of `score --words` are all opened here. So a PDF
named `a.txt`, a pointer of Git LFS or a compressed file that ends early means the same everywhere.
"""

import contextlib
import io
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple

import pyarrow as pa

from babelmill.core import escape
from babelmill.core.files import UserError, not_found
from babelmill.core.formats import split_name

HEAD = 1 << 16  # bytes that are looked at
BLOCK = 1 << 18  # bytes read at a time; with more, the system gives new memory for each block, which takes longer
LONGEST = 1 << 29  # characters of a line or a document; a batch of Arrow strings holds at most 2 GiB
MANY_NULS = 20  # one byte in so many: UTF-16 or binary data. Text with a stray NUL has fewer
UTF_16 = "text in UTF-16 or UTF-32: convert it to UTF-8, as with iconv -f UTF-16 -t UTF-8"
LFS = b"version https://git-lfs"
KINDS = {  # what files are that begin so, and what their owner can do about it
    b"PK\x03\x04": "a zip archive (or a Word, Excel or EPUB document): unpack it, or save its text",
    b"%PDF-": "a PDF document: extract its text, for instance with pdftotext",
    b"\x1f\x8b": "gzip-compressed data: let its name end in .gz, or unpack it",
    b"\x28\xb5\x2f\xfd": "zstd-compressed data: let its name end in .zst, or unpack it",
    b"PAR1": "a Parquet file: let its name end in .parquet",
    LFS: "a pointer of Git LFS, not the file itself: run `git lfs pull` where it comes from",
    b"\xff\xfe": UTF_16,
    b"\xfe\xff": UTF_16,
}
MARK = "\ufeff"  # of byte order
MARK_INSIDE = "begins with a byte order mark, as where files were joined; remove the mark (bytes EF BB BF)"
NOT_ASCII = re.compile(rb"[\x80-\xff]")
INVISIBLE = re.compile(rb"[\x80-\x9f]")  # control characters in latin-1
UNDECODED = re.compile("[\udc80-\udcff]")  # bytes that are not in the encoding, as PEP 383 keeps them


class Form(NamedTuple):
    """Says how a file is written: keys of a section of the configuration, or arguments."""

    section: str = "--"  # the section that says it, for errors; `--` stands for arguments
    format: str | None = None  # of a file whose name says no format, such as `txt`
    document: str = ""  # what a document of a .txt file is: file, line, paragraph, 300 words; "": .txt is no table
    encoding: str = "utf-8"  # of .txt, .csv and .tsv
    delimiter: str | None = None  # of .csv; None stands for the comma
    quoting: str = "format"  # whether fields may stand between quotation marks: csv, none, or as usual in the format

    @classmethod
    def of(cls, section: str, keys: Mapping[str, str]) -> "Form":
        """Return the form that the keys `delimiter`, `encoding` and `quoting` of a section say, among others."""
        return cls(section, **{key: keys[key] for key in ("delimiter", "encoding", "quoting") if keys.get(key)})

    def setting(self, key: str, value: str) -> str:
        """Return how to set a key: `corpus.quoting: csv` in the section `corpus`, or `--quoting csv` for `--`."""
        return f"--{key} {value}" if self.section == "--" else f"{self.section}.{key}: {value}"


class BadRow(UserError):
    """A row, or the rest of a file, that cannot be read."""

    def __init__(
        self, path: Path, where: str, why: str, reason: Literal["malformed", "undecodable", "damaged"] = "malformed"
    ):
        super().__init__(": ".join([escape.line(path), *([where] if where else []), why]))
        self.path, self.where, self.why = path, where, why  # `where`: "line 7"; "" stands for the rest of the file
        self.reason: Literal["malformed", "undecodable", "damaged"] = reason


OnBadRow = Callable[[BadRow], None]  # raises an error, or counts the row, which is then skipped


def stop(problem: BadRow) -> None:
    """Raise the error at the first bad row."""
    raise problem


@contextlib.contextmanager
def opened(path: Path, compression: str | None) -> Iterator[IO[bytes]]:
    """Open a file for reading its unpacked bytes. BadRow says that it is damaged."""
    if path.is_dir():
        raise UserError(f"{escape.line(path)}: this is a folder; name a file in it")
    try:
        if compression:
            with open(path, "rb") as stream:
                if (head := stream.read(len(LFS))) == LFS:
                    refuse_other_kinds(path, head)
        # Arrow notices a .gz or .zst that ends early; the package `zstandard` does not.
        packed: Any = pa.input_stream(str(path), compression=compression) if compression else None
        with io.BufferedReader(packed, BLOCK) if compression else open(path, "rb") as stream:
            yield stream
    except FileNotFoundError:
        raise UserError(f"{escape.line(path)}: {not_found(path)}") from None
    except PermissionError as error:
        raise UserError(f"{escape.line(path)}: cannot be read: {error.strerror}") from None
    except (pa.ArrowInvalid, OSError) as error:
        if getattr(error, "errno", None):  # a disk fails; Arrow reports damage without an errno
            raise
        shown = escape.line(str(error).split("\n")[0].rstrip("."), 200)
        raise BadRow(path, "", f"damaged, or not what its name says; get it again: {shown}", "damaged") from None


def refuse_other_kinds(path: Path, head: bytes, wanted: bytes = b"") -> None:
    """Raise BadRow if a file that begins with `head` is no text; `wanted`: how a Parquet file begins."""
    kind = next((kind for begins, kind in KINDS.items() if head.startswith(begins)), "")
    if wanted:
        kind = "" if head.startswith(wanted) else kind or "no Parquet file"
    elif head.count(0) * MANY_NULS > len(head):
        kind = kind or f"{UTF_16}; or it is no text"
    elif b"\r" in head and b"\n" not in head:
        kind = kind or "text whose lines end with CR alone, as on old Macs: `tr '\\r' '\\n'` turns them into LF"
    if kind:
        raise BadRow(path, "", f"this is {kind}", "damaged")


class Blocks:
    """The lines of a text file, without a mark of byte order before the first.

    Yields whole lines, about 256 KiB, with the number of the first. BadRow says that the rest of the file cannot be
    read, a UserError that its encoding is another one.
    """

    def __init__(self, path: Path, compression: str | None, form: Form | None = None):
        self.path, self.form = path, form or Form()  # JSON is always UTF-8
        self._compression, self._varies = compression, form is not None
        self.first = 1  # the number of the first line of the present block
        self.sound = True  # whether all bytes up to here could be decoded; the others are lone surrogates (UNDECODED)

    def __iter__(self) -> Iterator[tuple[int, str]]:
        with opened(self.path, self._compression) as stream:
            raw = stream.read(BLOCK)
            if not raw and self._compression:
                raise BadRow(self.path, "", "the compressed file is empty", "damaged")
            refuse_other_kinds(self.path, raw[:HEAD])
            raw = raw.removeprefix(MARK.encode())
            while raw:
                raw += stream.readline(LONGEST)
                if len(raw) > LONGEST:
                    raise too_long(self.path)
                refuse_garbled(self.path, self.first, raw, self.form)
                yield self.first, self._decoded(raw)
                self.first += raw.count(b"\n")
                raw = stream.read(BLOCK)

    def _decoded(self, raw: bytes) -> str:
        try:
            return raw.decode(self.form.encoding)
        except UnicodeDecodeError:
            self.sound = False
            return raw.decode(self.form.encoding, "surrogateescape")

    def undecodable(self, number: int, text: str) -> BadRow | None:
        """Return what is wrong with a text, which begins in this line, if it is not in its encoding."""
        if self.sound or not (found := UNDECODED.search(text)):
            return None
        other = f" ({self.form.setting('encoding', 'latin-1')} or cp1252, if it is one of these)"
        why = not_in(self.form.encoding, found) + (other if self._varies else "; save the file as UTF-8")
        return BadRow(self.path, f"line {number + text.count(chr(10), 0, found.start())}", why, "undecodable")


def not_in(encoding: str, found: re.Match[str]) -> str:
    """Return that a byte is not in the encoding."""
    return f"not {encoding.replace('utf', 'UTF')}: byte 0x{ord(found[0]) - 0xDC00:02x}"


def too_long(path: Path) -> UserError:
    """Return the error for a document that Arrow could not hold."""
    longest = f"more than {LONGEST >> 20} MiB"
    return UserError(f"{escape.line(path)}: a line or document of {longest}; is this text, and its `document` right?")


def refuse_garbled(path: Path, number: int, raw: bytes, form: Form) -> None:
    """Raise a UserError if another encoding than UTF-8 can decode bytes, but makes something else of them."""
    if form.encoding == "utf-8" or raw.isascii():
        return
    why, found = "", NOT_ASCII.search(raw)
    with contextlib.suppress(UnicodeDecodeError):
        raw.decode("utf-8")
        why = f"this is UTF-8, and {form.encoding} would garble it: leave out {form.setting('encoding', form.encoding)}"
    if not why and form.encoding == "latin-1" and (found := INVISIBLE.search(raw)):
        why = (
            f"the byte 0x{found[0][0]:02x} is an invisible control character in latin-1: if the text is of Windows, set"
            f" {form.setting('encoding', 'cp1252')}; else convert it to UTF-8"
        )
    if why and found:
        number += raw.count(b"\n", 0, found.start())
        raise UserError(f"{escape.line(path)}: line {number}: {why}")


def read_text(path: Path) -> str:
    """Return the text of a small UTF-8 file, plain or compressed, without marks of byte order at beginnings of lines.

    Files that were joined have a mark inside, which a model would read as a sign of its own. A UserError says that the
    bytes are no text, are not UTF-8, or have a NUL.
    """
    blocks = Blocks(path, split_name(path)[1])
    text = "".join(part for _, part in blocks)
    if problem := blocks.undecodable(1, text):
        raise problem
    if "\0" in text:
        raise BadRow(path, f"line {text.count(chr(10), 0, text.index(chr(0))) + 1}", "has a NUL; remove it")
    return text.replace(f"\n{MARK}", "\n")
