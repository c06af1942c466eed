"""Read YAML that people write, and refuse what they cannot mean.

The YAML library keeps the rules of YAML 1.1, which lose settings silently. Here,

* a key that appears twice is an error (the library keeps the last one: with `train: {max_steps: 30}` at the top of a
  file and `train: {epochs: 3}` at its end, the run has no `max_steps`);
* `no`, `off`, `yes`, `on` and dates are text, as in YAML 1.2 (where a key says yes or no, they still mean this): the
  language `no` is not False;
* a number that YAML 1.1 and 1.2 read differently is an error: 010 is 8 or 10, and 1:30 is 90 or a text;
* `<<`, which includes another mapping, is an error if keys get lost: it replaces sections as a whole.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from babelmill.core.escape import some
from babelmill.core.files import UserError, read_text

Fast = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the one written in C is ten times faster
TAG = "tag:yaml.org,2002:"
WORDS = re.compile(r"yes|no|on|off", re.IGNORECASE)
DISPUTED = re.compile(r"[-+]?0[0-9]+|0o[0-7]+")  # not a number in 1.1, or an octal one there and a decimal one in 1.2
IN_OLD_FORM = re.compile(r"[-+]?0b|.*[_:]")  # of what YAML 1.1 reads as a number
LONGEST = 300  # characters of a number: the largest one that is not infinite has 309 digits


class Loader(Fast):  # pyright: ignore[reportGeneralTypeIssues]
    """Reads booleans and dates as YAML 1.2 does: only `true` and `false` are booleans, and a date is text."""

    yaml_implicit_resolvers = {  # noqa: RUF012
        first: [
            (tag, form)
            for tag, form in resolvers
            if tag not in (f"{TAG}timestamp", f"{TAG}value") and (tag != f"{TAG}bool" or first in "tTfF")
        ]
        for first, resolvers in Fast.yaml_implicit_resolvers.items()
    }


class TextLoader(Loader):
    """Reads everything as text, as it stands there: the names `no`, `010` and `1.10`."""

    yaml_implicit_resolvers = {}  # noqa: RUF012


def parse(text: str, where: str | Path, is_profile: bool = False) -> Any:
    """Return the value of a YAML text; `where` begins errors.

    `is_profile`: whether it is a profile of Snakemake. Of that, only the section `config` is ours. Snakemake reads it,
    too, and for Snakemake `no` is False. A UserError says what is wrong with the text.
    """
    try:
        loader = Loader(text)
        try:
            node = loader.get_single_node()
            for problem in problems(loader, node, is_profile):
                raise UserError(f"{where}: {problem}")
            return None if node is None else loader.construct_document(node)
        finally:
            loader.dispose()
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: a number of more than 4,300 digits
        problem = " ".join(str(error).replace('in "<unicode string>", ', "in ").split())
        mark = getattr(error, "problem_mark", None)
        hint = "; this is a tab: indent with spaces" if mark and text[mark.index :].startswith("\t") else ""
        raise UserError(f"{where}: not valid YAML: {problem}{hint}") from None


def problems(loader: Any, node: yaml.Node | None, is_profile: bool) -> Iterator[str]:
    """Yield what is wrong with a text: keys that appear twice, numbers and words, and what `<<` loses."""
    for key, first, second in repeated(loader, node, (), set()):
        lines = " and ".join(f"line {line}" for line in sorted({first, second}))
        yield f"the key {key} appears twice, in {lines}, and the first would be lost: write both under one"
    for path, inner in inside(node, (), set()):
        if is_profile and path[:1] != ("config",):
            continue
        if isinstance(inner, yaml.ScalarNode) and not inner.style:  # not in quotes
            yield from disputed(inner, words_allowed=not is_profile)
        if isinstance(inner, yaml.MappingNode):
            yield from lost(inner, path)


def repeated(
    loader: Any, node: yaml.Node | None, path: tuple[str, ...], seen: set[int]
) -> Iterator[tuple[str, int, int]]:
    """Yield (dotted key, first line, second line) for each key that a mapping in `node` has twice.

    `path`, `seen`: see `inside`.
    """
    for around, inner in inside(node, path, seen):
        lines: dict[Any, int] = {}
        for key, _ in inner.value if isinstance(inner, yaml.MappingNode) else ():
            if isinstance(key, yaml.ScalarNode) and key.tag != f"{TAG}merge":
                name, line = loader.construct_object(key), key.start_mark.line + 1
                if name in lines:
                    yield ".".join((*around, key.value)), lines[name], line
                lines[name] = line


def inside(
    node: yaml.Node | None, path: tuple[str, ...], seen: set[int]
) -> Iterator[tuple[tuple[str, ...], yaml.Node]]:
    """Yield a node and all nodes in it, keys too, each with the keys around it, which begin with `path`.

    `seen` holds the ids of the nodes visited so far, since an alias (`*name`) repeats a node.
    """
    if node is None or id(node) in seen:
        return
    seen.add(id(node))
    yield path, node
    for item in node.value if isinstance(node, yaml.SequenceNode) else ():
        yield from inside(item, path, seen)
    for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
        if isinstance(key, yaml.ScalarNode) and key.tag != f"{TAG}merge":
            yield from inside(key, path, seen)
            yield from inside(value, (*path, key.value), seen)


def disputed(node: yaml.ScalarNode, words_allowed: bool) -> Iterator[str]:
    """Yield what is wrong with a number or word without quotes that readers of YAML do not agree on."""
    written, line = node.value, node.start_mark.line + 1
    is_number = node.tag in (f"{TAG}int", f"{TAG}float")
    if DISPUTED.fullmatch(written) or (is_number and IN_OLD_FORM.match(written)):
        yield (
            f"line {line}: {written} is one number in YAML 1.1 and another, or a text, in YAML 1.2: write a number in"
            f' plain digits, without zeros before it, _ and :, or a text in quotes: "{written}"'
        )
    if is_number and len(written) > LONGEST:
        yield f"line {line}: a number of {len(written):,} characters; no key takes one of more than {LONGEST}"
    if not words_allowed and WORDS.fullmatch(written):
        yield (
            f"line {line}: Snakemake reads {written} as a boolean: write true or false, or the word in quotes:"
            f' "{written}"'
        )


def pairs(node: yaml.Node) -> Iterator[tuple[str, yaml.Node]]:
    """Yield keys and values of a mapping: its own, then those that `<<` includes."""
    included: list[yaml.Node] = []
    for key, value in node.value if isinstance(node, yaml.MappingNode) else []:
        if key.tag == f"{TAG}merge":
            included += value.value if isinstance(value, yaml.SequenceNode) else [value]
        elif isinstance(key, yaml.ScalarNode):
            yield key.value, value
    for each in included:
        yield from pairs(each)


def lost(node: yaml.MappingNode, path: tuple[str, ...]) -> Iterator[str]:
    """Yield the sections of a mapping whose keys get lost, since `<<` includes only sections that are not there."""
    first: dict[str, yaml.Node] = {}
    for key, value in pairs(node):
        kept = first.setdefault(key, value)
        missing = {name for name, _ in pairs(value)} - {name for name, _ in pairs(kept)}
        if missing and isinstance(kept, yaml.MappingNode):
            yield (
                f"line {kept.start_mark.line + 1}: {'.'.join((*path, key))} replaces the section of the same name that"
                f" << includes, and loses its keys {some(sorted(missing))}: write them here, too (a model inherits"
                " key by key with `like: MODEL`)"
            )


def read_yaml(path: str | Path, is_profile: bool = False) -> dict[str, Any]:
    """Read a configuration file; an empty file gives an empty mapping. For `is_profile`, see `parse`."""
    values = parse(read_text(path), path, is_profile)
    if values is not None and not isinstance(values, dict):
        raise UserError(f"{path}: a mapping of keys to values is expected")
    return values or {}
