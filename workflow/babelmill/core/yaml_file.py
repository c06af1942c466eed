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

Fast = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the one written in C is ten times faster
AsText = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
FRONT = re.compile(r"\A\ufeff?\s*---[ \t]*\r?\n(.*?)\r?\n---[ \t]*(?:\r?\n|\Z)", re.DOTALL)  # as the Hub finds it
TAG = "tag:yaml.org,2002:"
DEPTH = 100  # of lists and mappings in each other: the reader in C has no limit, and would crash
MERGE = f"{TAG}merge"
FORMS = {
    "bool": "true|True|TRUE|false|False|FALSE",
    "int": "[-+]?(0|[1-9][0-9]*)",
    "float": r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
    "null": "~|null|Null|NULL|",
    "merge": "<<",
}


class Loader(Fast):  # pyright: ignore[reportGeneralTypeIssues]
    """Reads words without quotes as YAML 1.2 does."""

    yaml_implicit_resolvers = {}  # noqa: RUF012


for name, form in FORMS.items():
    Loader.add_implicit_resolver(f"{TAG}{name}", re.compile(f"(?:{form})$"), None)


def parse(text: str, where: object, as_text: bool = False) -> Any:
    """Return the value of a YAML text. `as_text` keeps numbers and all other words as the text that stands there.

    A UserError, which begins with `where`, says what is wrong with the text.
    """
    try:
        depth = 0
        for event in yaml.parse(text, Fast):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > DEPTH:
                raise ValueError(f"nested more than {DEPTH} levels deep")
        loader = (AsText if as_text else Loader)(text)
        try:
            node = loader.get_single_node()
            refuse_repeated_keys(node)
            return None if node is None else loader.construct_document(node)
        finally:
            loader.dispose()
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: a number of more than 4,300 digits
        problem = " ".join(str(error).replace('in "<unicode string>", ', "in ").split())
        raise UserError(f"{where}: not valid YAML: {line(problem, 300)}") from None


def refuse_repeated_keys(node: yaml.Node | None) -> None:
    """Raise a ValueError if a mapping in `node` has a key twice. An alias (`*name`) repeats a node, and no keys."""
    seen, waiting = set(), [node]
    while waiting:
        node = waiting.pop()
        if not isinstance(node, yaml.CollectionNode) or id(node) in seen:
            continue
        seen.add(id(node))
        lines: dict[tuple[str, str], int] = {}
        for item in node.value:
            key, value = item if isinstance(item, tuple) else (None, item)
            waiting.append(value)
            if isinstance(key, yaml.ScalarNode) and key.tag != MERGE:
                name, here = (key.tag, key.value), key.start_mark.line + 1
                if name in lines:
                    raise ValueError(f"the key {key.value} appears twice, in lines {lines[name]} and {here}")
                lines[name] = here


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
