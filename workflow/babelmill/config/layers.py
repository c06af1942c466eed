"""Merge and validate nested mappings, the layers of a configuration, and find the files of `config/`.

A mistake is a line `file: key = value: what is allowed`, with the file that sets the value.

A file may come with Babelmill or be the user's own, in `config/` of the working folder. In a clone, both are in the
same folder. In a folder that `babelmill init` made, Babelmill's are beside the installed package.
"""

import difflib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pydantic

from babelmill.core import escape
from babelmill.core.files import UserError
from babelmill.core.places import ROOT

DEFAULTS = "config/defaults.yaml"  # the first layer
PRESETS = "config/presets/"  # files in this folder are the next layers
SUITES = "config/suites/"
TASKS = "config/tasks/"
PROTOCOLS = "config/protocols/"
SUBMISSIONS = "config/submissions/"
UNKNOWN, TOGETHER = "unknown_key", "together"  # types of errors of `schema.Section`
LONGEST = 200  # characters of a value in a message
ABSENT = object()  # not None, which is a value that users may set
S = TypeVar("S", bound=pydantic.BaseModel)


class Layer(NamedTuple):
    """Some of the values of a configuration."""

    values: dict[str, Any]  # nested, by section
    label: str  # the file (and the entry in it) that the values come from


def last(layers: Iterable[Layer], *keys: Any) -> tuple[Any, str]:
    """Return the value that the last layer with these nested keys has, and its label; None and "" without one."""
    for layer in reversed([*layers]):
        found: Any = layer.values
        for key in keys:
            found = found.get(key, ABSENT) if isinstance(found, dict) else ABSENT
        if found is not ABSENT:
            return found, layer.label
    return None, ""


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return a new mapping: `base` updated by `over`, with nested mappings merged and everything else replaced.

    A mapping with another `model_type` is replaced as a whole, since its keys are those of another class.
    """
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        if isinstance(value, dict) and isinstance(below, dict):
            same = below.get("model_type") == value.get("model_type", below.get("model_type"))
            merged[key] = merge(below, value) if same or "model_type" not in below else value
        else:
            merged[key] = value
    return merged


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested mappings as a single mapping of dotted keys."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= flatten(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat


def nearest(word: str, known: Iterable[str]) -> str:
    """Return a hint such as `; did you mean eng?`, or the known names if none is similar. Case is ignored."""
    known = sorted(known)
    by_small_letters = {name.lower(): name for name in known}
    matches = difflib.get_close_matches(word.lower(), by_small_letters, n=3, cutoff=0.5)
    if matches:
        return f"; did you mean {' or '.join(by_small_letters[match] for match in matches)}?"
    return f"; known are {escape.some(known)}"


def config_names(folder: str, root: Path = ROOT) -> set[str]:
    """Return the names of all .yaml files of a folder such as `config/presets/`, without their suffix."""
    return {path.stem for place in (root, Path()) for path in (place / folder).glob("*.yaml")}


def config_file(path: str, root: Path = ROOT) -> Path:
    """Return where a file such as `config/presets/small.yaml` is. It need not exist.

    A UserError says that Babelmill and the user have different files of this name.
    """
    ours, own = root / path, Path(path)
    if ours.is_file() and own.is_file() and ours.read_bytes() != own.read_bytes():
        raise UserError(f"{path}: another file than Babelmill's of this name ({ours}): choose another name")
    return ours if ours.is_file() else own


def shown(value: object) -> str:
    """Return a value for a message, without the keys in an address (`s3://key:secret@bucket`, `https://x?key=1`)."""
    without_password = re.sub(r":.*@", ":***@", repr(value), flags=re.DOTALL)
    return escape.line(re.sub(r"(://[^\s?]*\?).*", r"\1***", without_password, flags=re.DOTALL), LONGEST)


def validated(section: type[S], values: Any, layers: list[Layer], *path: str) -> S:
    """Return values as their type; raise a UserError that names the last of the layers that sets what is wrong.

    `path`: the keys around the values.
    """
    try:
        return section.model_validate(values)
    except pydantic.ValidationError as error:
        keys, message = worded(error, values, *path)
        files = dict.fromkeys(where_set(layers, key) for key in keys)
        raise UserError(f"{' and '.join(file for file in files if file != DEFAULTS) or DEFAULTS}: {message}") from None


def where_set(layers: list[Layer], key: tuple[Any, ...]) -> str:
    """Return the label of the last layer that sets nested keys, or else those around them; else the defaults'."""
    labels = (last(layers, *key[:end])[1] for end in range(len(key), 0, -1))
    return next(filter(None, labels), DEFAULTS)


def worded(error: pydantic.ValidationError, values: Any, *path: str) -> tuple[list[tuple[Any, ...]], str]:
    """Return the keys of the first mistake, each with the keys around it, and a line about it."""
    first = error.errors(include_url=False)[0]
    context: dict[str, Any] = first.get("ctx", {})
    place: list[Any] = [*path]
    found: Any = values
    for part in first["loc"]:  # others are names of types in a union
        if isinstance(part, int) if isinstance(found, list) else isinstance(found, dict) and part in found:
            place.append(part)
            found = found[part]  # pyright: ignore[reportArgumentType, reportCallIssue]
    if first["type"] == TOGETHER:
        said = ", ".join(f"{dotted(*place, key)} = {shown(value)}" for key, value in context["given"].items())
        return [(*place, key) for key in context["given"]], f"{said}: {context['allowed']}"
    if first["type"] == UNKNOWN:
        place.append(context["key"])
        return [(*place,)], f"unknown key {escape.line(dotted(*place), LONGEST)}{context['meant']}"
    if first["type"] == "missing":
        return [(*place,)], f"{dotted(*place, first['loc'][-1])}: this key is missing"
    message = first["msg"].removeprefix("Value error, ")
    if first["loc"][-1:] == ("[key]",):
        begins = "a small letter, then " if "^[a-z]" in str(context.get("pattern", "^[a-z]")) else ""
        message = f"a name is expected: {begins}letters and digits, in groups joined by _, such as srp_Latn"
    if first["type"] == "list_type" and isinstance(first["input"], str):
        message = f"a list is expected: [{shown(first['input'])}]"
    return [(*place,)], f"{dotted(*place)} = {shown(first['input'])}: {message[:1].lower()}{message[1:]}"


def dotted(*keys: Any) -> str:
    """Return keys with dots between them."""
    return ".".join(map(str, keys))
