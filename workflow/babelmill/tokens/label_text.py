"""Read the cells of columns of labels or contexts as text, whichever format the table has.

A code that pandas once read as a float has only lost its form: `61110.0` is the code `61110`.
"""

import re
from typing import Any

MISSING = frozenset({"", "NaN", "null", "NULL"})
INTEGRAL = re.compile(r"[+-]?[0-9]+\.0")


def label_text(value: Any) -> str | None:
    """Return a label, without white space around it; None if there is none. `value`: text, a number, or None."""
    text = context_text(value)
    return None if text in ("", "nan") else text


def context_text(value: Any) -> str:
    """Return a context; "" if there is none. It is read like a label, but `nan` is a language (Min Nan)."""
    if not isinstance(value, str):
        if value is None or value != value:
            return ""
        value = str(value)
    value = value.strip()
    if value in MISSING:
        return ""
    return value[:-2] if INTEGRAL.fullmatch(value) else value
