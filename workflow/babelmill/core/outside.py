"""Read JSON and YAML that others wrote, such as the config.json of a model and the card of a dataset.

Whatever is in such a file, reading it ends soon, needs little memory, and gives values or one error of one line. So
size, depth, digits and the number of values are limited, and YAML's aliases count as often as they are used: nine lines
can stand for a billion values. A key that appears twice is an error, since readers would keep different values.
"""

import json
import os
import re
from pathlib import Path
from typing import Any

import yaml

from babelmill.core.escape import line
from babelmill.core.files import UserError, read_text
from babelmill.core.yaml_file import Loader, TextLoader, repeated

LARGEST = 256 << 20  # bytes of a JSON file; tokenizers and indexes of weights are the largest real ones
CARD = 16 << 20  # bytes of a card
DEPTH = 100  # of lists and mappings in each other
DIGITS = 100  # of an integer; `model_max_length` of transformers has 31
VALUES = 2_000_000  # in a YAML text, each alias counted with all that it stands for
FRONT = re.compile(r"\A\ufeff?\s*---[ \t]*\r?\n(.*?)\r?\n---[ \t]*(?:\r?\n|\Z)", re.DOTALL)  # as the Hub finds it
TEXT = "tag:yaml.org,2002:str"
# What YAML 1.2, which the Hub reads, takes for these types as YAML 1.1 does. All else is text there: `no` is Norwegian.
USUAL = {
    "tag:yaml.org,2002:bool": re.compile("true|false", re.IGNORECASE),
    "tag:yaml.org,2002:int": re.compile(r"[-+]?(0|[1-9]\d*)", re.ASCII),
    "tag:yaml.org,2002:float": re.compile("[^:_]*"),
    "tag:yaml.org,2002:timestamp": re.compile("(?!)"),
}
NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")


def read_json(path: str | Path, where: object = None) -> Any:
    """Read a JSON file from elsewhere, within the limits; raise a UserError, which begins with `where`."""
    where = path if where is None else where
    too_large(path, LARGEST, where)
    try:
        found = parse_json(read_text(path), _OF_FILES)
    except ValueError as error:
        raise UserError(f"{where}: {error}") from None
    if depth(found) > DEPTH:
        raise UserError(f"{where}: nested more than {DEPTH} levels deep")
    return found


def parse_json(text: str, decoder: json.JSONDecoder | None = None) -> Any:
    """Return the value of a JSON text from elsewhere. A number of very many digits, which no table needs, is text.

    A ValueError of one line says that the text is not JSON, nested too deep for Python, or has a key twice.
    """
    try:
        return (decoder or _OF_TABLES).decode(text)
    except RecursionError:
        raise ValueError(f"nested more than {DEPTH} levels deep") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error}") from None


def read_object(path: str | Path, where: object = None) -> dict[str, Any]:
    """Read a JSON file from elsewhere that must hold keys and values; see `read_json`."""
    found = read_json(path, where)
    if not isinstance(found, dict):
        raise UserError(f"{path if where is None else where}: keys and values are expected, {{...}}")
    return found


def too_large(path: str | Path, most: int, where: object) -> None:
    """Raise a UserError if a file has more than `most` bytes."""
    try:
        size = os.stat(path).st_size
    except OSError:
        return  # reading it says why
    if size > most:
        raise UserError(f"{where}: {size:,} bytes are too many for such a file (at most {most:,})")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {line(repr(twice), 100)} appears twice")
    return found


def _integer(text: str) -> int:
    if len(text) > DIGITS:
        raise ValueError(f"an integer of {len(text):,} digits")
    return int(text)


_OF_FILES = json.JSONDecoder(object_pairs_hook=_once, parse_int=_integer)
_OF_TABLES = json.JSONDecoder(object_pairs_hook=_once, parse_int=lambda n: int(n) if len(n) <= DIGITS else n)


def depth(value: Any) -> int:
    """Return how many lists and mappings are in each other."""
    levels, inner = 0, [value]
    while inner := [each for each in inner if isinstance(each, dict | list)]:
        levels += 1
        inner = [item for each in inner for item in (each.values() if isinstance(each, dict) else each)]
    return levels


def parse_yaml(text: str, where: object, as_text: bool = False) -> Any:
    """Return the value of a YAML text from elsewhere, within the limits; `where` begins errors.

    `as_text`: keep all names, numbers and booleans as the text that stands there. A UserError says what is wrong with
    the text.
    """
    try:
        _check_events(text)
        loader = (TextLoader if as_text else Loader)(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return None
            _measure(node, {})
            for key, first, second in repeated(loader, node, (), set()):
                raise ValueError(f"the key {line(key, 100)} appears twice, in lines {first} and {second}")
            return loader.construct_document(node)
        finally:
            loader.dispose()
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:  # TypeError: a list as a key
        problem = " ".join(str(error).replace('in "<unicode string>", ', "in ").split())
        raise UserError(f"{where}: not valid YAML: {line(problem, 200)}") from None


def _check_events(text: str) -> None:
    """Raise a ValueError if a text is nested too deep: the parser itself has no limit."""
    levels = 0
    for event in yaml.parse(text, Loader):
        levels += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if levels > DEPTH:
            raise ValueError(f"nested more than {DEPTH} levels deep")


def _measure(node: yaml.Node, known: dict[int, tuple[int, int]]) -> tuple[int, int]:
    """Return how many values a node stands for, and how many levels deep. `known` holds the nodes so far, by their ids.

    Scalars that only YAML 1.1 does not read as text become text. A ValueError says that there are too many of either,
    that a node contains itself, or that a number has too many digits.
    """
    if id(node) in known:
        if not known[id(node)][0]:
            raise ValueError("an alias (*) stands for what contains it")
        return known[id(node)]
    known[id(node)] = 0, 0
    count, levels = 1, 0
    if isinstance(node, yaml.CollectionNode):
        for item in node.value:
            for inner in item if isinstance(item, tuple) else (item,):
                more, below = _measure(inner, known)
                count, levels = count + more, max(levels, below + 1)
    elif node.tag in NUMBERS and len(node.value) > DIGITS:
        raise ValueError(f"a number of {len(node.value):,} digits")
    elif (usual := USUAL.get(node.tag)) and not usual.fullmatch(node.value):
        node.tag = TEXT
    if count > VALUES or levels > DEPTH:
        raise ValueError(f"its aliases (*) stand for more than {VALUES:,} values, or {DEPTH} levels")
    known[id(node)] = count, levels
    return count, levels


def front_matter(card: Path, where: object, as_text: bool = False) -> dict[str, Any]:
    """Return the values between two lines `---` at the beginning of a card; raise a UserError if it cannot be read."""
    too_large(card, CARD, where)
    try:
        found = FRONT.match(card.read_text(encoding="utf-8-sig"))
    except UnicodeDecodeError:
        raise UserError(f"{where}: not UTF-8") from None
    values = parse_yaml(found[1], where, as_text) if found else None
    if values is not None and not isinstance(values, dict):
        raise UserError(f"{where}: not keys and values")
    return values or {}
