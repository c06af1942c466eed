"""Read the cells of columns of labels or contexts as text, for every format of table.

If pandas once read a code as a float, the file holds `61110.0`; this is the code `61110`.
"""

import re
from typing import Any

MISSING = frozenset({"", "NaN", "null", "NULL"})
INTEGRAL = re.compile(r"[+-]?[0-9]+\.0")


def label_text(value: Any) -> str | None:
    """Return a label without white space around it, or None if the cell is empty. `value` is text, a number or None."""
    text = context_text(value)
    return None if text in ("", "nan") else text


def context_text(value: Any) -> str:
    """Return a context, or "" if the cell is empty. It is read like a label, but `nan` is a language (Min Nan)."""
    if not isinstance(value, str):
        if value is None or value != value:
            return ""
        value = str(value)
    value = value.strip()
    if value in MISSING:
        return ""
    return value[:-2] if INTEGRAL.fullmatch(value) else value
