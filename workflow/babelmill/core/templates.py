"""Fill in templates, such as "{context} {answer}", with the cells of a table's row.

A name in braces stands for the cell of this column; `{file}` stands for the name of the file. Two braces stand for one.
"""

import re
from collections.abc import Mapping

OF_FILE = "file"  # the name that stands for the name of the file
PARTS = re.compile(r"{{|}}|{([^{}]+)}|[{}]")


def columns_of(template: str) -> list[str]:
    """Return the columns that a template names. Raise a ValueError if a brace has no partner."""
    found = []
    for part in PARTS.finditer(template):
        if part[1] is not None:
            found.append(part[1])
        elif part[0] in "{}":
            raise ValueError(f"the template {template!r} has a single {part[0]!r}; write it twice if you mean a brace")
    return [column for column in dict.fromkeys(found) if column != OF_FILE]


def fill(template: str, cells: Mapping[str, str]) -> str:
    """Return a template with the cells in place of the names of their columns."""
    return PARTS.sub(lambda part: cells[part[1]] if part[1] is not None else part[0][0], template)
