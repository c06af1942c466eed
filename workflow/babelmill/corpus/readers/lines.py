"""Read text files and JSON lines: a document is a file, a paragraph, one or several lines, or a key of a JSON object.

A file that is not one document is cut into blocks of whole lines or paragraphs, which can be parsed independently.
Lines end at "\\n" alone: `str.splitlines()` would also break at U+2028, U+0085 and form feeds, inside documents.
"""

import dataclasses
import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from babelmill.config.values import words_of_document
from babelmill.core import escape
from babelmill.core.files import UserError
from babelmill.corpus.reading import SourceFile
from babelmill.corpus.record_batches import BLOCK, MAX_DOCUMENT, METADATA, batch_of
from babelmill.tables.columns import BadRow, NoColumn, check_cell, check_names, object_of
from babelmill.text_files.encodings import MARK, garbled
from babelmill.text_files.opening import Stream, Unreadable

NEWLINE = b"\n"
OTHER_ENCODING = " (corpus.encoding can name another)"
BLANK_LINES = re.compile(rb"(?:\A|\n)(?:[ \t\r]*\n)+")  # between paragraphs


@dataclasses.dataclass(frozen=True)
class Block:
    """Whole lines of a file. The last line of a file may lack its newline."""

    number: int  # number of the first line, counted from 1
    offset: int  # byte offset of the first line in the uncompressed text without BOM
    raw: bytes  # bytes of the lines
    found: bool = False  # whether an earlier line of a file of JSON lines had all keys


def read_text(file: SourceFile, stream: Stream) -> Iterator[pa.RecordBatch]:
    """Yield one document: the file. CRLF line ends become LF. Of a file that ends early, take the whole lines."""
    file.refuse_plain_text()
    encoding, chunks, size, cut = file.corpus.encoding, [], 0, None
    # Arrow allocates a buffer of the requested size at each call, and most files are small.
    at_once = min(BLOCK, file.path.stat().st_size + 1)
    try:
        while chunk := stream.read(at_once):
            chunks.append(chunk)
            size += len(chunk)
            if size > MAX_DOCUMENT:
                hint = "set corpus.document: line if each line is a document"
                raise UserError(f"{file.path}: a document of more than {MAX_DOCUMENT >> 30} GiB; {hint}")
    except Unreadable as problem:  # the file ends early
        cut = problem
    raw = b"".join(chunks).removeprefix(MARK)
    if cut:
        raw = raw[: last_line(raw)]
    refuse_garbled(file, Block(1, 0, raw))
    try:
        text = raw.decode(encoding)
    except UnicodeDecodeError as error:
        file.bad_document("undecodable", f"byte {error.start}", undecodable(error, encoding) + OTHER_ENCODING)
    else:
        if text or not cut:
            yield batch_of({"text": [text.replace("\r\n", "\n")]})
    if cut:
        raise cut


def blocks_to_parse(file: SourceFile, stream: Stream) -> Iterator[Block]:
    """Yield the blocks of a file, for `parse`."""
    if file.suffix == ".txt":
        file.refuse_plain_text()
        yield from blocks_of_text(file, stream)
        return
    found = False
    for block in blocks(file.path, stream):
        yield dataclasses.replace(block, found=found)
        found = found or has_document(file, block)


def parse(file: SourceFile, block: Block) -> pa.RecordBatch:
    """Return the documents of a block."""
    if file.suffix != ".txt":
        return parse_jsonl(file, block)
    if file.corpus.document == "paragraph":
        texts = paragraphs(file, block)
    else:
        texts = [line.removesuffix("\r") for line in decoded(file, block)]
        if words := words_of_document(file.corpus.document):
            texts = list(together(texts, words))
    return batch_of({"text": [text for text in texts if text]})


def together(lines: list[str], words: int) -> Iterator[str]:
    """Yield texts of successive lines that have at least so many words together; the last one may have fewer."""
    text: list[str] = []
    count = 0
    for line in lines:
        text.append(line)
        count += len(line.split())
        if count >= words:
            yield "\n".join(text).strip("\n")
            text, count = [], 0
    yield "\n".join(text).strip("\n")


def paragraphs(file: SourceFile, block: Block) -> list[str]:
    """Return the paragraphs of a block; some may be empty. One that is not in the file's encoding is reported."""
    refuse_garbled(file, block)
    texts, raw, start, encoding = [], block.raw, 0, file.corpus.encoding
    gaps = [gap.span() for gap in BLANK_LINES.finditer(raw)]
    for end, after in [*gaps, (len(raw), len(raw))]:
        try:
            texts.append(raw[start:end].decode(encoding).replace("\r\n", "\n").strip("\r\n"))
        except UnicodeDecodeError as error:
            place = start + error.start
            where = f"line {block.number + raw.count(NEWLINE, 0, place)} (byte {block.offset + place})"
            file.bad_document("undecodable", where, undecodable(error, encoding) + OTHER_ENCODING)
        start = after
    return texts


def parse_jsonl(file: SourceFile, block: Block) -> pa.RecordBatch:
    """Return the documents of a block of JSON lines: what the keys of the columns hold, and metadata.

    Bad lines are reported. If the first object of a file lacks one of the keys, this is an error even if bad lines are
    skipped: the key is wrong, not the line.
    """
    rows: list[dict[str, Any]] = []
    numbers: list[int] = []
    for i, line in enumerate(decoded(file, block), block.number):
        if not line or line.isspace():
            continue
        try:
            rows.append(_row(line, file))
            numbers.append(i)
        except BadRow as problem:
            if not block.found and not rows and isinstance(problem, NoColumn):
                raise UserError(f"{escape.line(file.path)}: line {i}: {problem}") from None
            file.bad_document("malformed", f"line {i}", str(problem))
    names = [*METADATA, *(asked.column for asked in file.asked)]
    return file.documents({name: [row.get(name) for row in rows] for name in names}, numbers, file.tally)


def has_document(file: SourceFile, block: Block) -> bool:
    """Return whether a line of a block is a document."""
    for raw in io.BytesIO(block.raw):
        try:
            if raw.strip() and _row(raw.decode(file.corpus.encoding).removesuffix("\n"), file):
                return True
        except (BadRow, UnicodeDecodeError):
            continue
    return False


def _row(line: str, file: SourceFile) -> dict[str, Any]:
    """Return the object of a line. Raise BadRow if it is none, or if a key is missing or does not hold what it should.

    Keys of labels and of context may hold numbers, too.
    """
    row = object_of(line)
    for asked in file.asked:
        if asked.column not in row:
            check_names(list(row), file.asked, "key")
        check_cell(asked, row[asked.column])
    return row


def blocks_of_text(file: SourceFile, stream: Stream) -> Iterator[Block]:
    """Yield the blocks of a file whose lines (or paragraphs) are documents. Report line ends of CR alone."""
    held_back = None  # a first line with a CR in it, until another line follows
    for block in blocks(file.path, stream, last_blank_line if file.corpus.document == "paragraph" else last_line):
        if held_back:
            block, held_back = Block(1, 0, held_back.raw + block.raw), None
        elif _is_one_line_with_cr(block, file.corpus.encoding):
            held_back = block
            continue
        yield block
    if held_back:
        problem = "its lines end with CR alone, as on old Macs; `tr '\\r' '\\n'` turns them into LF"
        file.tally.bad_file(file.path, problem)


def _is_one_line_with_cr(block: Block, encoding: str) -> bool:
    """Return whether a block is the first line of a file, is text, and has a CR inside."""
    if block.number > 1 or block.raw.count(b"\n") > 1 or b"\n" in block.raw[:-1]:
        return False
    try:
        return "\r" in block.raw.decode(encoding).removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        return False


def last_line(raw: bytes) -> int:
    """Return where bytes can be cut into whole lines: after the last newline; 0 if there is none."""
    return raw.rfind(b"\n") + 1


def last_blank_line(raw: bytes) -> int:
    """Return where bytes can be cut into whole paragraphs: after the last blank line; 0 if none is known.

    The first line may be the end of another one, so it does not count.
    """
    end = raw.rfind(b"\n")
    while (before := raw.rfind(b"\n", 0, max(0, end))) >= 0:
        if not raw[before + 1 : end].strip(b" \t\r"):
            return end + 1
        end = before
    return 0


def blocks(path: Path, stream: Stream, cut: Callable[[bytes], int] = last_line) -> Iterator[Block]:
    """Yield a file's lines, about 1 MB at a time, without a leading BOM. `cut` says where bytes can be cut."""
    number, offset, pieces, size = 1, 0, [], 0
    chunk = stream.read(BLOCK).removeprefix(MARK)
    while chunk:
        if end := cut(chunk):
            raw = b"".join([*pieces, chunk[:end]])
            yield Block(number, offset, raw)
            number += raw.count(b"\n")
            offset += len(raw)
            pieces, size = [chunk[end:]], len(chunk) - end
        else:
            pieces.append(chunk)
            size += len(chunk)
            if size > MAX_DOCUMENT:
                raise UserError(
                    f"{path}: a line or paragraph of more than {MAX_DOCUMENT >> 30} GiB; is this a text file?"
                )
        chunk = stream.read(BLOCK)
    if size:
        yield Block(number, offset, b"".join(pieces))


def refuse_garbled(file: SourceFile, block: Block) -> None:
    """Raise a UserError if a block is probably in another encoding, although it can be decoded (see `garbled`)."""
    if found := garbled(block.raw, file.corpus.encoding):
        line = block.number + block.raw.count(b"\n", 0, found.offset)
        raise UserError(f"{escape.line(file.path)}: line {line}: {found.problem} (corpus.encoding)")


def decoded(file: SourceFile, block: Block) -> list[str]:
    """Return the decoded lines of a block without their newlines.

    A line that is not in this encoding is reported with its byte offset (in the uncompressed text) and becomes an empty
    string.
    """
    refuse_garbled(file, block)
    encoding, lines = file.corpus.encoding, list[str]()
    try:
        lines = block.raw.decode(encoding).split("\n")
    except UnicodeDecodeError:
        offset = block.offset
        for raw in block.raw.split(b"\n"):
            try:
                lines.append(raw.decode(encoding))
            except UnicodeDecodeError as error:
                where = f"line {block.number + len(lines)} (byte {offset + error.start})"
                file.bad_document("undecodable", where, undecodable(error, encoding) + OTHER_ENCODING)
                lines.append("")
            offset += len(raw) + 1
    if not lines[-1]:
        lines.pop()  # the text after the last newline is not a line
    return lines


def undecodable(error: UnicodeDecodeError, encoding: str = "utf-8") -> str:
    """Return why bytes cannot be decoded."""
    byte = f"0x{error.object[error.start]:02x}"
    if encoding != "utf-8":
        return f"not {encoding}: byte {byte}"
    hint = ""
    if error.start == 0 and error.object[:2] in (b"\xff\xfe", b"\xfe\xff"):
        hint = " (a UTF-16 mark)"
    return f"not UTF-8: {error.reason} {byte}{hint}"
