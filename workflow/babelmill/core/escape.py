"""Escape text from outside (file names, data, names in configurations) for each place where it is written.

Text from outside is hostile until it has passed one of these functions, one for each kind of output: a line of a
terminal, log or message (`line`), a Markdown card (`markdown`), a cell of a .csv file (`csv_cell`). Pages in HTML
escape with `markupsafe.escape`, which Jinja2 calls by itself.
"""

import re
import unicodedata
from collections.abc import Iterable
from typing import Any

# What a terminal obeys or hides: control characters, marks that reverse the order of text, lone surrogates.
OBEYED = ("Cc", "Cf", "Cs", "Zl", "Zp")
JOINERS = "\u200c\u200d"  # they belong to words of Persian and Indian languages, and to emoji
MARKDOWN = re.compile(r"([\\`*_{}\[\]<>#|~&!$^=+-])")
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def line(text: object, longest: int = 0) -> str:
    """Return text as a part of one line: what a terminal would obey becomes `\\x1b`; `longest` > 0 cuts it there."""
    said = str(text)
    if not (said.isascii() and said.isprintable()):
        said = "".join(
            character
            if unicodedata.category(character) not in OBEYED or character in JOINERS
            else character.encode("unicode_escape", "surrogatepass").decode("ascii")
            for character in said
        )
    return f"{said[:longest]}... ({len(said):,} characters)" if 0 < longest < len(said) else said


def some(names: Iterable[object], most: int = 10) -> str:
    """Return the first names of a list with commas, each as `line` writes it, and how many more there are."""
    names = list(names)
    shown = ", ".join(line(name, 100) for name in names[:most])
    return f"{shown} and {len(names) - most:,} more" if len(names) > most else shown


def markdown(text: object) -> str:
    """Return text as one line of Markdown that shows exactly this text, also in a cell of a table."""
    return MARKDOWN.sub(r"\\\1", line(" ".join(str(text).split()))).replace("://", ":&#47;&#47;")


def csv_cell(value: Any) -> Any:
    """Return a cell that no spreadsheet runs as a formula: text that begins like one gets a `'` before it.

    Numbers stay as they are. (OWASP, "CSV Injection".)
    """
    if not isinstance(value, str):
        return value
    said = line(value)
    return f"'{said}" if said.startswith(FORMULA) else said
