"""Text files, of which the file or each line is a document; and the decoded lines that other formats are made of.

Lines end at "\\n" alone: `str.splitlines()` would also break at U+2028, U+0085 and form feeds, amid documents.
"""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from babelmill.core.files import UserError
from babelmill.corpus.record_batches import BLOCK, MAX_DOCUMENT, batch_of
from babelmill.corpus.tally import Tally

BOM = b"\xef\xbb\xbf"


def read_text(path: Path, stream: pa.NativeFile, tally: Tally) -> Iterator[pa.RecordBatch]:
    """Yield one document: the file. CRLF line ends become LF."""
    chunks, size = [], 0
    while chunk := stream.read(BLOCK):
        chunks.append(chunk)
        size += len(chunk)
        if size > MAX_DOCUMENT:
            hint = "set corpus.document: line if each line is a document"
            raise UserError(f"{path}: a document of more than {MAX_DOCUMENT >> 30} GiB; {hint}")
    raw = b"".join(chunks).removeprefix(BOM)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        tally.bad_document("undecodable", path, f"byte {error.start}", undecodable(error))
        return
    yield batch_of({"text": [text.replace("\r\n", "\n")]})


def read_lines(path: Path, stream: pa.NativeFile, tally: Tally) -> Iterator[pa.RecordBatch]:
    """Yield one document per line. Blank lines separate; they are no documents."""
    held_back: list[str] = []  # a first line with a CR in it, until another line follows
    for number, lines in decoded_lines(path, stream, tally):
        texts = held_back + [line.removesuffix("\r") for line in lines]
        held_back = texts if number == len(texts) == 1 and "\r" in texts[0] else []
        if not held_back:
            yield batch_of({"text": [text for text in texts if text]})
    if held_back:
        tally.bad_file(path, "its lines end with CR alone, as on old Macs; `tr '\\r' '\\n'` turns them into LF")


def blocks(path: Path, stream: pa.NativeFile) -> Iterator[bytes]:
    """Yield whole lines, about 1 MB at a time; the file's last line may lack its newline. A leading BOM is removed."""
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


def decoded_lines(path: Path, stream: pa.NativeFile, tally: Tally) -> Iterator[tuple[int, list[str]]]:
    """Yield (number of the first line counted from 1, decoded lines without their newlines) of each block.

    A line that is not UTF-8 is reported with its byte offset (in the uncompressed text) and becomes an empty string.
    """
    number, offset = 1, 0
    for block in blocks(path, stream):
        try:
            lines = block.decode("utf-8").split("\n")
        except UnicodeDecodeError:
            lines = _decode_each_line(path, block, number, offset, tally)
        if not lines[-1]:
            lines.pop()  # what follows the last newline is no line
        yield number, lines
        number += len(lines)
        offset += len(block)


def _decode_each_line(path: Path, block: bytes, number: int, offset: int, tally: Tally) -> list[str]:
    """Decode a block that begins with line `number` at byte `offset`; report the lines that are not UTF-8."""
    lines: list[str] = []
    for raw in block.split(b"\n"):
        try:
            lines.append(raw.decode("utf-8"))
        except UnicodeDecodeError as error:
            where = f"line {number + len(lines)} (byte {offset + error.start})"
            tally.bad_document("undecodable", path, where, undecodable(error))
            lines.append("")
        offset += len(raw) + 1
    return lines


def undecodable(error: UnicodeDecodeError) -> str:
    """Return what is wrong with bytes that are not UTF-8."""
    hint = ""
    if error.start == 0 and error.object[:2] in (b"\xff\xfe", b"\xfe\xff"):
        hint = " (a UTF-16 mark)"
    return f"not UTF-8: {error.reason} 0x{error.object[error.start]:02x}{hint}"
