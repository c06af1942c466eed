"""Text files, in which the file or each line is a document, and blocks of lines, which other formats use, too.

Lines end at "\\n" alone: `str.splitlines()` would also break at U+2028, U+0085 and form feeds, inside documents.
"""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from babelmill.core.files import UserError
from babelmill.corpus.record_batches import BLOCK, MAX_DOCUMENT, batch_of
from babelmill.corpus.tally import Tally

BOM = b"\xef\xbb\xbf"
OTHER_ENCODING = " (corpus.encoding can name another)"


def read_text(path: Path, stream: pa.NativeFile, tally: Tally, encoding: str) -> Iterator[pa.RecordBatch]:
    """Yield one document: the file. CRLF line ends become LF."""
    chunks, size = [], 0
    # Arrow allocates a buffer of the requested size at each call, and most files are small.
    at_once = min(BLOCK, path.stat().st_size + 1)
    while chunk := stream.read(at_once):
        chunks.append(chunk)
        size += len(chunk)
        if size > MAX_DOCUMENT:
            hint = "set corpus.document: line if each line is a document"
            raise UserError(f"{path}: a document of more than {MAX_DOCUMENT >> 30} GiB; {hint}")
    raw = b"".join(chunks).removeprefix(BOM)
    refuse_utf8(path, Block(1, 0, raw), encoding)
    try:
        text = raw.decode(encoding)
    except UnicodeDecodeError as error:
        problem = undecodable(error, encoding) + OTHER_ENCODING
        tally.bad_document("undecodable", path, f"byte {error.start}", problem)
        return
    yield batch_of({"text": [text.replace("\r\n", "\n")]})


def read_lines(path: Path, stream: pa.NativeFile, tally: Tally, encoding: str) -> Iterator[pa.RecordBatch]:
    """Yield one document per line. Blank lines are not documents."""
    for block in blocks_of_lines(path, stream, tally, encoding):
        yield parse_lines(path, block, tally, encoding)


def parse_lines(path: Path, block: "Block", tally: Tally, encoding: str) -> pa.RecordBatch:
    """Return the documents of a block, one per line."""
    texts = (line.removesuffix("\r") for line in decoded(path, block, tally, encoding))
    return batch_of({"text": [text for text in texts if text]})


def blocks_of_lines(path: Path, stream: pa.NativeFile, tally: Tally, encoding: str) -> Iterator["Block"]:
    """Yield the blocks of a file whose lines are documents. Reports a file whose lines end with CR alone."""
    held_back = None  # a first line with a CR in it, until another line follows
    for block in blocks(path, stream):
        if held_back:
            block, held_back = Block(1, 0, held_back.raw + block.raw), None
        elif _is_one_line_with_cr(block, encoding):
            held_back = block
            continue
        yield block
    if held_back:
        tally.bad_file(path, "its lines end with CR alone, as on old Macs; `tr '\\r' '\\n'` turns them into LF")


def _is_one_line_with_cr(block: "Block", encoding: str) -> bool:
    """Return whether a block is the first line of a file, is text, and has a CR inside."""
    if block.number > 1 or block.raw.count(b"\n") > 1 or b"\n" in block.raw[:-1]:
        return False
    try:
        return "\r" in block.raw.decode(encoding).removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        return False


@dataclasses.dataclass(frozen=True)
class Block:
    """Whole lines of a file. The last line of a file may lack its newline.

    Attributes:
        number: number of the first line, counted from 1.
        offset: byte offset of the first line in the uncompressed text without BOM.
        raw: bytes of the lines.
    """

    number: int
    offset: int
    raw: bytes


def blocks(path: Path, stream: pa.NativeFile) -> Iterator[Block]:
    """Yield a file's lines, about 1 MB at a time."""
    number, offset = 1, 0
    for raw in _raw_blocks(path, stream):
        yield Block(number, offset, raw)
        number += raw.count(b"\n")
        offset += len(raw)


def _raw_blocks(path: Path, stream: pa.NativeFile) -> Iterator[bytes]:
    """Yield the bytes of whole lines. A leading BOM is removed."""
    pieces, size = [], 0
    chunk = stream.read(BLOCK).removeprefix(BOM)
    while chunk:
        cut = chunk.rfind(b"\n") + 1
        if cut:
            yield b"".join([*pieces, chunk[:cut]])
            pieces, size = [chunk[cut:]], len(chunk) - cut
        else:
            pieces.append(chunk)
            size += len(chunk)
            if size > MAX_DOCUMENT:
                raise UserError(f"{path}: a line longer than {MAX_DOCUMENT >> 30} GiB; is this a text file?")
        chunk = stream.read(BLOCK)
    if size:
        yield b"".join(pieces)


def refuse_utf8(path: Path, block: Block, encoding: str) -> None:
    """Raise a UserError if a block that should be in another encoding is UTF-8, which the other would garble."""
    if encoding == "utf-8" or block.raw.isascii():
        return
    try:
        text = block.raw.decode("utf-8")
    except UnicodeDecodeError:
        return
    line, words = next((i, line) for i, line in enumerate(text.split("\n"), block.number) if not line.isascii())
    first = next(i for i, character in enumerate(words) if not character.isascii())
    raise UserError(
        f"{path}: line {line}: this is UTF-8, such as {words[max(0, first - 10) : first + 10]!r}, and"
        f" corpus.encoding = {encoding} would garble it; leave corpus.encoding out"
    )


def decoded(path: Path, block: Block, tally: Tally, encoding: str) -> list[str]:
    """Return the decoded lines of a block without their newlines.

    A line that is not in this encoding is reported with its byte offset (in the uncompressed text) and becomes an empty
    string.
    """
    refuse_utf8(path, block, encoding)
    try:
        lines = block.raw.decode(encoding).split("\n")
    except UnicodeDecodeError:
        lines = _decode_each_line(path, block, tally, encoding)
    if not lines[-1]:
        lines.pop()  # the text after the last newline is not a line
    return lines


def _decode_each_line(path: Path, block: Block, tally: Tally, encoding: str) -> list[str]:
    """Decode a block, and report the lines that are not in this encoding."""
    lines: list[str] = []
    offset = block.offset
    for raw in block.raw.split(b"\n"):
        try:
            lines.append(raw.decode(encoding))
        except UnicodeDecodeError as error:
            where = f"line {block.number + len(lines)} (byte {offset + error.start})"
            tally.bad_document("undecodable", path, where, undecodable(error, encoding) + OTHER_ENCODING)
            lines.append("")
        offset += len(raw) + 1
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
