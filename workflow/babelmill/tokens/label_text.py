"""What stands in a column of labels or contexts as text, whichever format the table has.

A number that pandas once read as a float has lost nothing but its form: `61110.0` is the code `61110`.
"""

import re
from typing import Any

MISSING = frozenset({"", "NaN", "null", "NULL"})
INTEGRAL = re.compile(r"[+-]?[0-9]+\.0")


def label_text(value: Any) -> str | None:
    """Return a label, without white space around it; None where there is none. `value`: text, a number, or None."""
    text = context_text(value)
    return None if text in ("", "nan") else text


def context_text(value: Any) -> str:
    """Return a context; "" where there is none. It is read as a label is, but `nan` is a language (Min Nan)."""
    if not isinstance(value, str):
        if value is None or value != value:
            return ""
        value = str(value)
    value = value.strip()
    if value in MISSING:
        return ""
    return value[:-2] if INTEGRAL.fullmatch(value) else value
