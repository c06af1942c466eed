"""Read the cells of columns of labels or contexts as text, for every format of table.

If pandas once read a code as a float, the file holds `61110.0`: who reads codes (`labels/codes.py`) takes it for
`61110`, unless a code of this name exists.
"""

import re
from typing import Any

MISSING = frozenset({"", "NaN", "null", "NULL"})
NO_LABEL = MISSING | {"nan", "NA"}  # R writes NA
INTEGRAL = re.compile(r"[+-]?[0-9]+\.0")
# White space, and characters that take no room: soft hyphen, zero-width spaces, marks of direction, byte order mark.
AROUND = "\u00ad\u200b\u200c\u200d\u200e\u200f\u2060\ufeff"


def label_text(value: Any) -> str | None:
    """Return a label (text, a number, true or false) without white space around it; None if the cell is empty."""
    if not isinstance(value, str):
        return context_text(value) or None
    return stripped(value) or None


def stripped(text: str) -> str:
    """Return text without what cannot be seen at its beginning and end."""
    before = None
    while text != before:
        before, text = text, text.strip().strip(AROUND)
    return text


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
