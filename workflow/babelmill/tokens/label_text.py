"""Read the cells of labelled tables as text, and clean a new text as the corpus cleaned those that a model learnt.

If pandas once read a code as a float, the file holds `61110.0`: who reads codes (`labels/codes.py`) takes it for
`61110`, unless a code of this name exists.
"""

import re
import unicodedata
from typing import Any, Literal, NamedTuple

MISSING = frozenset({"", "NaN", "null", "NULL"})
NO_LABEL = MISSING | {"nan", "NA"}  # R writes NA
INTEGRAL = re.compile(r"[+-]?[0-9]+\.0")
# White space, and characters that take no room: soft hyphen, zero-width spaces, marks of direction, byte order mark.
UNSEEN = "".join(filter(str.isspace, map(chr, range(0x3001)))) + "\u00ad\u200b\u200c\u200d\u200e\u200f\u2060\ufeff"


def label_text(value: Any) -> str | None:
    """Return a label (text, a number, true or false) without white space around it; None if the cell is empty."""
    if not isinstance(value, str):
        return context_text(value) or None
    return stripped(value) or None


def stripped(text: str) -> str:
    """Return text without what cannot be seen at its beginning and end."""
    return text.strip(UNSEEN)


def without_fraction(text: str) -> str:
    """Return a whole number without `.0`, and other text as it is."""
    return text[:-2] if INTEGRAL.fullmatch(text) else text


def context_text(value: Any) -> str:
    """Return a context, or "" if the cell is empty. It is read like a label, but `nan` is a language (Min Nan)."""
    if not isinstance(value, str):
        if value is None or value != value:
            return ""
        value = str(value).lower() if isinstance(value, bool) else str(value)  # as in JSON
    value = stripped(value)
    return "" if value in MISSING else without_fraction(value)


# Unicode category Cc without white space: if a form feed or a next-line mark were removed, two words would become one.
CONTROL = "[\x00-\x08\x0e-\x1f\x7f-\u0084\u0086-\u009f]"
_CONTROL = re.compile(CONTROL)


class Cleaning(NamedTuple):
    """Says what to change in a text."""

    normalization: Literal["none", "NFC"] = "none"  # the value of `corpus.normalization`
    control_characters: Literal["keep", "remove"] = "keep"  # the value of `corpus.control_characters`

    def of(self, text: str) -> str:
        """Return a text as the corpus would clean it."""
        if self.control_characters == "remove":
            text = _CONTROL.sub("", text)
        if self.normalization != "none" and not text.isascii():
            text = unicodedata.normalize(self.normalization, text)
        return text
