"""Read YAML that people write: the configuration, and the front matter of cards.

The YAML library keeps the rules of YAML 1.1, which lose settings silently. Here, a key that appears twice is an error
(the library keeps the last one), and words are read as in YAML 1.2: `no`, `off`, dates, 010 and 1:30 are text, not
False, 8 or 90. Where a key says yes or no, `no` and `off` still mean this.
"""

import re
from pathlib import Path
from typing import Any

import yaml

from babelmill.core.escape import line
from babelmill.core.files import UserError, read_text

FRONT = re.compile(r"\A\ufeff?\s*---[ \t]*\r?\n(.*?)\r?\n---[ \t]*(?:\r?\n|\Z)", re.DOTALL)  # as the Hub finds it
MERGE = "tag:yaml.org,2002:merge"
FORMS = {
    "bool": "true|True|TRUE|false|False|FALSE",
    "int": "[-+]?(0|[1-9][0-9]*)",
    "float": r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
    "null": "~|null|Null|NULL|None|",  # Snakemake writes None for the null of a profile
    "merge": "<<",
}


class UniqueKeys(yaml.constructor.BaseConstructor):
    """Refuses a mapping that has a key twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Return a mapping; raise a ValueError if it has a key twice."""
        lines: dict[tuple[str, str], int] = {}
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode) and key.tag != MERGE):
            name, here = (key.tag, key.value), key.start_mark.line + 1
            if name in lines:
                raise ValueError(f"the key {key.value} appears twice, in lines {lines[name]} and {here}")
            lines[name] = here
        return super().construct_mapping(node, deep=deep)


class TextLoader(UniqueKeys, yaml.CBaseLoader):
    """Reads all words as text."""


class Loader(UniqueKeys, yaml.CSafeLoader):
    """Reads words without quotes as YAML 1.2 does."""

    yaml_implicit_resolvers = {}  # noqa: RUF012


for name, form in FORMS.items():
    Loader.add_implicit_resolver(f"tag:yaml.org,2002:{name}", re.compile(f"(?:{form})$"), None)


def parse(text: str, where: object, as_text: bool = False) -> Any:
    """Return the value of a YAML text. `as_text` keeps numbers and all other words as the text that stands there.

    A UserError, which begins with `where`, says what is wrong with the text.
    """
    try:
        return yaml.load(text, TextLoader if as_text else Loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: a number of more than 4,300 digits
        problem = " ".join(str(error).replace('in "<unicode string>", ', "in ").split())
        raise UserError(f"{where}: not valid YAML: {line(problem, 300)}") from None


def read_yaml(path: str | Path) -> dict[str, Any]:
    """Read a configuration file; an empty file gives an empty mapping."""
    values = parse(read_text(path), path)
    if values is not None and not isinstance(values, dict):
        raise UserError(f"{path}: a mapping of keys to values is expected")
    return values or {}


def front_matter(card: Path, where: object, as_text: bool = False) -> dict[str, Any]:
    """Return the values between two lines `---` at the beginning of a card; raise a UserError if it cannot be read."""
    found = FRONT.match(read_text(card))
    values = parse(found[1], where, as_text) if found else None
    if values is not None and not isinstance(values, dict):
        raise UserError(f"{where}: not keys and values")
    return values or {}
