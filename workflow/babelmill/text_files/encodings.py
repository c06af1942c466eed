"""Notice text in another encoding than the one that is asked for.

Every sequence of bytes is latin-1, and much is UTF-8. So text in a wrong encoding often decodes without an error, into
NULs, invisible control characters or other letters. These functions say what the text probably is.
"""

import re
import unicodedata
from typing import NamedTuple

MARKS = {
    b"\xff\xfe\x00\x00": "UTF-32LE",
    b"\x00\x00\xfe\xff": "UTF-32BE",
    b"\xff\xfe": "UTF-16LE",
    b"\xfe\xff": "UTF-16BE",
}
MANY = 0.3  # share of NULs: UTF-16 text in Latin letters has half, other text has fewer
PRINTABLE = bytes(range(32, 127))
MOSTLY_PRINTABLE = 0.75  # text of single bytes in European languages has more printable ASCII, UTF-16 has less
LOOKED_AT = 4096  # characters
MEANINGLESS = ("Cc", "Cn", "Co", "Cs")
INVISIBLE = re.compile(rb"[\x80-\x9f]")  # control characters in latin-1
BOM = "\ufeff"
MARK = BOM.encode()
MARK_INSIDE = "begins with a byte order mark, as where files were joined; remove the mark (bytes EF BB BF)"


class Garbled(NamedTuple):
    """Where bytes are probably of another encoding, and why."""

    offset: int
    problem: str


def wide_encoding(head: bytes) -> str | None:
    """Return the UTF-16 or UTF-32 that a file is in that begins with `head`; None if it is in neither.

    Text without a mark is recognised by its NULs (even Chinese has spaces and line ends), if it is neither UTF-8 nor
    mostly printable ASCII, and if nearly all characters that UTF-16 makes of it exist. A file of NULs alone is no text.
    """
    if mark := next((mark for mark in MARKS if head.startswith(mark)), None):
        return MARKS[mark]
    nuls = head.count(0)
    if not nuls or nuls == len(head) or len(head) % 2 or len(head) < 4:
        return None
    for name in ("UTF-32LE", "UTF-32BE"):
        if nuls >= len(head) / 4 and decodes(head[: len(head) // 4 * 4], name):
            return name
    printable = len(head) - len(head.translate(None, PRINTABLE))
    is_utf8 = not head.isascii() and decodes(head, "utf-8", final=False)
    if nuls < MANY * len(head) and (nuls == 1 or is_utf8 or printable > MOSTLY_PRINTABLE * len(head)):
        return None
    found = {name: head.decode(name, "replace")[:LOOKED_AT] for name in ("UTF-16LE", "UTF-16BE")}
    ascii_count = {name: sum(map(str.isascii, text)) for name, text in found.items() if _exists(text)}
    return max(ascii_count, key=lambda name: ascii_count[name], default=None)


def _exists(text: str) -> bool:
    """Return whether nearly all characters of a text have a meaning."""
    without = sum(
        (unicodedata.category(each) in MEANINGLESS and each not in "\t\n\r\f") or each == "\ufffd" for each in text
    )
    return without <= len(text) / 100


def decodes(raw: bytes, encoding: str, final: bool = True) -> bool:
    """Return whether bytes can be decoded; without `final`, the last character may be incomplete."""
    try:
        raw.decode(encoding)
    except UnicodeDecodeError as error:
        return not final and error.start >= len(raw) - 4
    return True


def garbled(raw: bytes, encoding: str) -> Garbled | None:
    """Return where and why the encoding (utf-8, latin-1 or cp1252) would garble bytes; None if it may be right.

    Bytes that the encoding cannot decode are no matter of this function: decoding them is an error anyway.
    """
    if encoding == "utf-8" or raw.isascii():
        return None
    if decodes(raw, "utf-8"):
        first = next(i for i, byte in enumerate(raw) if byte > 127)
        words = raw[raw.rfind(b"\n", 0, first) + 1 :].split(b"\n", 1)[0].decode("utf-8")
        place = next(i for i, character in enumerate(words) if not character.isascii())
        example = words[max(0, place - 10) : place + 10]
        return Garbled(
            first, f"this is UTF-8, such as {example!r}, and {encoding} would garble it: leave the encoding out"
        )
    found = INVISIBLE.search(raw) if encoding == "latin-1" else None
    if not found:
        return None
    problem = f"the byte 0x{found[0][0]:02x} is an invisible control character in latin-1"
    try:
        windows = found[0].decode("cp1252")
    except UnicodeDecodeError:
        return Garbled(found.start(), f"{problem}: the text is in another encoding; convert it to UTF-8 with iconv")
    return Garbled(found.start(), f"{problem}, and {windows} in cp1252 (Windows): set the encoding to cp1252")
