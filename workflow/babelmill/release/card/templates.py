"""Render cards from templates, the `.md` files beside the modules of the cards.

Three rules hold in these templates:

* `{{ ... }}` escapes what it writes: data from outside appear as text, whatever they contain. Only `escape.Markdown` is
  written as it stands: the result of some of the filters below, and what Python code declares to be Markdown.
* A line that is indented by two spaces continues the line above, since a paragraph is one line of the card.
* A line that contains only a tag, such as `{% if ... %}`, leaves no line in the card.
"""

import math
import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from jinja2.ext import Extension

from babelmill.core import escape
from babelmill.core.escape import Markdown, cell, code, markdown
from babelmill.core.places import PACKAGE
from babelmill.core.words import plural


class Lines(Extension):
    """Joins each line that is indented by two spaces to the line above, and removes the lines that have only a tag."""

    def preprocess(self, source: str, name: str | None, filename: str | None = None) -> str:
        """Return the template's source as Jinja2 reads it."""
        joined = re.sub(r"\n  (?=\S)", " ", source)
        return re.sub(r"(?ms)^({%((?!%}).)*%}|{#((?!#}).)*#})\n", r"\1", joined)


def hub_link(repository: str) -> Markdown:
    """Return a link to a repository on the Hub."""
    return Markdown(f"[{code(repository)}](https://huggingface.co/{quote(repository)})")


def join(values: Iterable[object], separator: str = ", ") -> Markdown:
    """Return values with separators between them. Each value is escaped."""
    return Markdown(separator.join(map(markdown, values)))


def capital(text: str) -> Markdown:
    """Return text with a capital first letter, for the beginning of a sentence."""
    shown = markdown(text)
    return Markdown(shown[:1].upper() + shown[1:])


def table(rows: Iterable[dict[str, Any]]) -> Markdown:
    """Return a Markdown table of rows, {column: value}. Text is escaped, and columns of numbers are aligned right."""
    first, *others = rows
    lines = [map(cell, first), ["---:" if isinstance(value, int | float) else "---" for value in first.values()]]
    lines += [[cell(in_a_cell(value)) for value in row.values()] for row in (first, *others)]
    return Markdown("\n".join(f"| {' | '.join(line)} |" for line in lines))


def in_a_cell(value: Any) -> Any:
    """Return a number as text with four digits, or with all digits if it is whole; other values as they are."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else value


ENVIRONMENT = Environment(
    loader=FileSystemLoader(PACKAGE),
    extensions=[Lines],
    finalize=markdown,
    undefined=StrictUndefined,
)
ENVIRONMENT.filters |= {
    "capital": capital,
    "code": code,
    "exp": math.exp,
    "hub_link": hub_link,
    "join": join,
    "number": lambda value, form=",": format(value, form),
    "plural": plural,
    "python": lambda text: Markdown(escape.python(text)),
    "repr": lambda value: Markdown(repr(value)),
    "table": table,
}


def render(template: str, values: dict[str, Any]) -> str:
    """Return a template, named by its path in the package, filled in with values."""
    return ENVIRONMENT.get_template(template).render(values).rstrip() + "\n"
