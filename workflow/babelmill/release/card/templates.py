"""Fill in the templates of model cards: the `card*.md` files beside the modules of the cards.

`{{ ... }}` escapes what it writes: data from outside appear as text, whatever they contain. Only `escape.Markdown` is
written as it stands: the result of some of the filters below, and what Python code declares to be Markdown. A tag at
the end of a line also takes the end of this line, unless it ends with `+%}`.
"""

import math
import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from huggingface_hub.utils import yaml_dump
from jinja2 import Environment, FunctionLoader, StrictUndefined

from babelmill.core import escape
from babelmill.core.escape import Markdown, cell, code, markdown
from babelmill.core.files import read_text
from babelmill.core.places import PACKAGE
from babelmill.core.words import plural


def table(rows: Sequence[dict[str, Any]]) -> Markdown:
    """Return a Markdown table of rows, {column: value}. Text is escaped, and columns of numbers are aligned right."""
    from tabulate import tabulate  # takes long to import

    sides = ["right" if isinstance(value, int | float) else "left" for value in rows[0].values()]
    lines = [[cell(in_a_cell(value)) for value in row.values()] for row in rows]
    look = {"tablefmt": "pipe", "disable_numparse": True, "colalign": sides}
    return Markdown(tabulate(lines, [cell(name) for name in rows[0]], **look))


def in_a_cell(value: Any) -> Any:
    """Return a number as text with four digits, or with all digits if it is whole; other values as they are."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else value


def read_template(name: str) -> str:
    """Return the text of a template. A line that begins with two spaces continues the line before it."""
    return re.sub(r"\n  (?! )", " ", read_text(PACKAGE / name))


ENVIRONMENT = Environment(
    loader=FunctionLoader(read_template),
    trim_blocks=True,
    lstrip_blocks=True,
    finalize=markdown,
    undefined=StrictUndefined,
)
ENVIRONMENT.filters |= {
    "cell": lambda text: Markdown(cell(text)),
    "capital": lambda text: Markdown(markdown(text)[:1].upper() + markdown(text)[1:]),
    "code": code,
    "exp": math.exp,
    "hub_link": lambda name: Markdown(f"[{code(name)}](https://huggingface.co/{quote(name)})"),
    "join": lambda values: Markdown(", ".join(map(markdown, values))),
    "number": lambda value, form=",": format(value, form),
    "plural": plural,
    "python": lambda text: Markdown(escape.python(text)),
    "table": table,
    "yaml": lambda value: Markdown(yaml_dump(escape.plain(value), sort_keys=False, width=math.inf).strip()),
}


def render(template: str, values: dict[str, Any]) -> str:
    """Return a template, named by its path in the package, filled in with values."""
    return ENVIRONMENT.get_template(template).render(values).rstrip() + "\n"
