"""Read YAML that people write: a key that appears twice is an error.

The YAML library silently keeps the last of two equal keys. In a configuration this loses settings: with
`train: {max_steps: 30}` at the top of a file and `train: {epochs: 3}` at its end, the run has no `max_steps`.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from babelmill.core.files import UserError, read_text

Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the one written in C is ten times faster
MERGE = "tag:yaml.org,2002:merge"  # `<<`, which includes another mapping


def parse(text: str, where: str | Path) -> Any:
    """Return the value of a YAML text; `where` begins errors.

    Raises:
        UserError: the text is not valid YAML, or a mapping has a key twice.
    """
    try:
        loader = Loader(text)
        try:
            node = loader.get_single_node()
            for key, first, second in repeated(loader, node, (), set()):
                lines = " and ".join(f"line {line}" for line in sorted({first, second}))
                raise UserError(
                    f"{where}: the key {key} appears twice, in {lines}, and the first would be lost: write both under"
                    " one"
                )
            return None if node is None else loader.construct_document(node)
        finally:
            loader.dispose()
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: a date that does not exist
        problem = " ".join(str(error).replace('in "<unicode string>", ', "in ").split())
        mark = getattr(error, "problem_mark", None)
        hint = "; this is a tab: indent with spaces" if mark and text[mark.index :].startswith("\t") else ""
        raise UserError(f"{where}: not valid YAML: {problem}{hint}") from None


def repeated(
    loader: Any, node: yaml.Node | None, path: tuple[str, ...], seen: set[int]
) -> Iterator[tuple[str, int, int]]:
    """Yield (dotted key, first line, second line) for each key that a mapping in `node` has twice.

    `seen` holds the ids of the nodes visited so far, since an alias (`*name`) repeats a node.
    """
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from repeated(loader, item, path, seen)
    if not isinstance(node, yaml.MappingNode):
        return
    lines: dict[Any, int] = {}
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode) or key.tag == MERGE:
            continue
        name, line = loader.construct_object(key), key.start_mark.line + 1
        if name in lines:
            yield ".".join((*path, key.value)), lines[name], line
        lines[name] = line
        yield from repeated(loader, value, (*path, key.value), seen)


def read_yaml(path: str | Path) -> dict[str, Any]:
    """Read a configuration file; an empty file gives an empty mapping."""
    values = parse(read_text(path), path)
    if values is not None and not isinstance(values, dict):
        raise UserError(f"{path}: a mapping of keys to values is expected")
    return values or {}
