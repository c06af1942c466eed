"""Read a small text file at once: text to score, or a list of codes."""

from pathlib import Path

from babelmill.core import escape
from babelmill.core.files import UserError
from babelmill.core.formats import split_name
from babelmill.text_files import kinds
from babelmill.text_files.encodings import BOM
from babelmill.text_files.opening import Stream, Unreadable, damage_as_unreadable


def read_text(path: Path) -> str:
    """Return the text of a UTF-8 file, plain or compressed, without byte order marks at the beginnings of lines.

    A UserError says that the file is missing, is not text, is not UTF-8, or has a NUL.
    """
    where = escape.line(path)
    try:
        with damage_as_unreadable(path), Stream(path, split_name(path)[1]) as stream:
            raw = b"".join(iter(stream.read, b""))
    except Unreadable as problem:
        raise UserError(f"{where}: {problem}") from None
    except OSError as error:
        raise UserError(f"{where}: cannot be read: {error.strerror}") from None
    return text_of(raw, where)


def text_of(raw: bytes, where: str) -> str:
    """Return UTF-8 bytes as text; see `read_text`. `where` names their source in errors.

    Files that were joined have a mark inside. A model would read it as a sign of its own.
    """
    if problem := kinds.other_than(raw[: kinds.HEAD], "text"):
        raise UserError(f"{where}: {problem}")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise UserError(
            f"{where}: line {line} is not UTF-8 (byte 0x{raw[error.start]:02x}); save the file as UTF-8"
        ) from None
    if "\0" in text:
        raise UserError(f"{where}: line {text.count(chr(10), 0, text.index(chr(0))) + 1} has a NUL; remove it")
    return text.removeprefix(BOM).replace(f"\n{BOM}", "\n")
