"""Escape text from outside (file names, data, names in configurations) for each place where it is written.

Text from outside is hostile until it has passed one of these functions, one for each kind of output:

    a part of a message                     `line`; a list of names: `some`
    a whole message in a log or on stderr   `lines`, which all messages of stages and commands pass
    what a terminal shows besides           `terminal`, which the output of all commands passes
    Markdown, in text or in a cell          `markdown`; a name that is shown as code: `code`
    a cell of a .csv file                   `csv_cell`
    LaTeX                                   `latex`
    Python (an example on a card)           `python`
    YAML and JSON                           their own writers; `plain` makes one line of each text of the front matter
    HTML                                    `markupsafe.escape`, which Jinja2 calls by itself
"""

import csv
import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import IO, Any

# What a terminal obeys or hides: control characters, marks that reverse the order of text, lone surrogates.
OBEYED = ("Cc", "Cf", "Cs", "Zl", "Zp")
JOINERS = "\u200c\u200d"  # they belong to words of Persian and Indian languages, and to emoji
# Where Markdown has two ways to escape, entities are the safer one: the Hub takes `\\(` for the beginning of a formula,
# and a backslash before `|` depends on whether a table is around it.
ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "\\": "&#92;", "|": "&#124;"}
MARKDOWN = str.maketrans(ENTITIES | {mark: f"\\{mark}" for mark in "`*_[]#~$"})
LATEX = str.maketrans(
    {mark: f"\\{mark}" for mark in "&%$#_{}"}
    | {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}", "<": "$<$", ">": "$>$"}
    | {"±": r"$\pm$", "–": "--", "↑": r"$\uparrow$", "↓": r"$\downarrow$", "|": r"\textbar{}", '"': "''"}
)
BLOCK = re.compile(r"^(\d+(?=[.)]( |$))|(?=[-+=]))")  # what begins a list, or underlines a heading
# The login of an address; a query or fragment (`?sig=...`, also without its host) up to the punctuation of the text.
LOGIN = re.compile(r"""://[^\s/?#'"<>]+@""")
QUERY = re.compile(r"""(?<=\S)([?&#])[\w.~%\[\]-]+=[^\s'"<>]*[^\s'"<>.,:;!?()\[\]{}]""")
FORMULA = re.compile(r"'*\s*[=+\-@]")  # a spreadsheet skips white space
SIGNED = re.compile(r"[+-][\d\s.,:/%()+-]*([eE][+-]?\d+)?")  # numbers, telephone numbers, a sign alone
CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")


class Markdown(str):
    """Markdown that is written as it stands: it was escaped already, or a user wrote it for a card."""


def line(text: object, longest: int = 0) -> str:
    """Return text as a part of one line: what a terminal would obey becomes `\\x1b`; `longest` > 0 cuts it there."""
    shown = str(text)
    if not (shown.isascii() and shown.isprintable()):
        shown = "".join(
            character
            if unicodedata.category(character) not in OBEYED or character in JOINERS
            else character.encode("unicode_escape", "surrogatepass").decode("ascii")
            for character in shown
        )
    return f"{shown[:longest]}... ({len(shown):,} characters)" if 0 < longest < len(shown) else shown


def without_keys(text: str) -> str:
    """Return text without the logins and queries of its addresses: a query may be a key, as of a signed link."""
    return QUERY.sub(r"\1***", LOGIN.sub("://***@", text))


def lines(text: object) -> str:
    """Return a message that may have several lines. All but the first are indented: none looks like a new message."""
    first, *others = without_keys(str(text)).split("\n")
    return "\n".join([line(first), *(other and f"  {line(other.removeprefix('  '))}" for other in others)])


def terminal(text: str) -> str:
    """Return text as a terminal may show it. Ends of lines and tabs, which make tables, stay."""
    return "".join(part if part in ("\n", "\t") else line(part) for part in re.split("([\n\t])", text))


def some(names: Iterable[object], most: int = 10) -> str:
    """Return the first names of a list with commas, each as `line` writes it, and how many more there are."""
    names = list(names)
    shown = ", ".join(line(name, 100) for name in names[:most])
    return f"{shown} and {len(names) - most:,} more" if len(names) > most else shown


def plain(value: Any) -> Any:
    """Return a value of lists and dictionaries whose texts are one line each, as `line` writes it."""
    if isinstance(value, dict):
        return {plain(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [plain(entry) for entry in value]
    return line(" ".join(value.split())) if isinstance(value, str) else value


def markdown(text: object) -> Markdown:
    """Return text as one line of Markdown that shows exactly this text, with one space where it has white space.

    `Markdown` stays as it is.
    """
    if isinstance(text, Markdown):
        return text
    return Markdown(BLOCK.sub(r"\1\\", plain(str(text)).translate(MARKDOWN)))


def code(text: object) -> Markdown:
    """Return text as one line of code in Markdown; in a table, `cell` then escapes `|`.

    Renderers disagree on a backslash before `|` in a table, so it is written as `\\x5c`.
    """
    plain_text = plain(str(text)).replace("\\|", "\\x5c|")
    longest = max(map(len, re.findall("`+", plain_text)), default=0)
    fence = "`" * (longest + 1)
    space = " " if plain_text.startswith("`") or plain_text.endswith("`") else ""
    return Markdown(f"{fence}{space}{plain_text}{space}{fence}" if plain_text else "")


def python(text: object) -> str:
    """Return the literal of a text in Python: one line of printable characters, in double quotes if it has none."""
    literal = repr(f"'{text}")
    return f'"{literal[2:]}' if literal.startswith('"') else repr(str(text))


def cell(value: object) -> str:
    """Return a cell of a table in Markdown. Text is escaped unless it is `Markdown`."""
    return markdown(value).replace("|", "\\|")


def csv_cell(value: Any) -> Any:
    """Return a cell of a .csv file that no spreadsheet runs as a formula and no terminal obeys.

    Text that begins like a formula gets a `'` before it (OWASP, "CSV Injection"). Text that begins with `'` and a
    formula gets another one, so that removing it always gives the text back. Numbers stay as they are.
    """
    if not isinstance(value, str) or value.isalnum():
        return value
    shown = value if value.isprintable() else CONTROL.sub(lambda found: line(found[0]), value)
    return f"'{shown}" if FORMULA.match(shown) and not SIGNED.fullmatch(shown) else shown


def write_rows(file: IO[str], rows: Iterable[Sequence[str]], delimiter: str = ",") -> None:
    """Write rows as CSV: all that the workflow writes.

    In a row with a carriage return, every value is quoted. Python before 3.13 does not quote a value with a carriage
    return, so readers would see the end of the row there.
    """
    kinds = (csv.QUOTE_MINIMAL, csv.QUOTE_ALL)
    plain, quoted = (csv.writer(file, delimiter=delimiter, lineterminator="\n", quoting=kind) for kind in kinds)
    for row in rows:
        (quoted if any("\r" in value for value in row) else plain).writerow(row)


def latex(text: object) -> str:
    """Return text as one line of LaTeX that prints exactly this text."""
    return plain(str(text)).translate(LATEX)
