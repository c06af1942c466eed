"""Word the mistakes that pydantic finds, and say in which file they are: `file: key = value: what is allowed`."""

import re
from typing import Any, TypeVar

import pydantic

from babelmill.config.layers import DEFAULTS, Layer
from babelmill.config.schema import SECTIONS, TOGETHER, UNKNOWN, Section
from babelmill.core.escape import line
from babelmill.core.files import UserError

S = TypeVar("S", bound=Section)
SECRET = re.compile(r"(^|_)(token|api_key|secret|password)$", re.IGNORECASE)
LONGEST = 200  # characters of a value in a message


def shown(value: object) -> str:
    """Return a value for a message, without the keys in an address (`s3://key:secret@bucket`, `https://x?key=1`)."""
    without_password = re.sub(r":.*@", ":***@", repr(value), flags=re.DOTALL)
    return line(re.sub(r"(://[^\s?]*\?).*", r"\1***", without_password, flags=re.DOTALL), LONGEST)


def validated(section: type[S], values: Any, layers: list[Layer], *path: str) -> S:
    """Return values as their type; raise a UserError that names the last of the layers that sets what is wrong.

    `path`: the keys around the values.
    """
    try:
        return section.model_validate(values)
    except pydantic.ValidationError as error:
        keys, message = worded(error, values, *path)
        raise UserError(f"{where_set(layers, keys)}: {message}") from None


def where_set(layers: list[Layer], keys: list[tuple[Any, ...]]) -> str:
    """Return the label of the last layer that sets one of some keys, or else a key around them; else the defaults'."""
    lengths = range(max(map(len, keys)), 0, -1)
    found = [
        layer for end in lengths for layer in reversed(layers) if any(has(layer.values, *key[:end]) for key in keys)
    ]
    return found[0].label if found else DEFAULTS


def has(values: Any, *keys: Any) -> bool:
    """Return whether there are nested keys."""
    return not keys or (isinstance(values, dict) and keys[0] in values and has(values[keys[0]], *keys[1:]))


def worded(error: pydantic.ValidationError, values: Any, *path: str) -> tuple[list[tuple[Any, ...]], str]:
    """Return the keys of the first mistake, each with the keys around it, and a line about it."""
    first = error.errors(include_url=False)[0]
    context: dict[str, Any] = first.get("ctx", {})
    place: list[Any] = [*path]
    found: Any = values
    for part in first["loc"]:  # others are names of types in a union
        if isinstance(part, int) if isinstance(found, list) else has(found, part):
            place.append(part)
            found = found[part]  # pyright: ignore[reportArgumentType, reportCallIssue]
    if first["type"] == TOGETHER:
        said = ", ".join(f"{dotted(*place, key)} = {shown(value)}" for key, value in context["given"].items())
        return [(*place, key) for key in context["given"]], f"{said}: {context['allowed']}"
    if first["type"] == UNKNOWN:
        place.append(context["key"])
        return [(*place,)], f"unknown key {line(dotted(*place), LONGEST)}{instead(context['key'], context['meant'])}"
    if first["type"] == "missing":
        return [(*place,)], f"{dotted(*place, first['loc'][-1])}: this key is missing"
    message = first["msg"].removeprefix("Value error, ")
    return [(*place,)], f"{dotted(*place)} = {shown(first['input'])}: {message[:1].lower()}{message[1:]}"


def dotted(*keys: Any) -> str:
    """Return keys with dots between them."""
    return ".".join(map(str, keys))


def instead(key: str, meant: str) -> str:
    """Return what to write instead of an unknown key; `meant`: the nearest known keys."""
    if SECRET.search(key):
        return "; secrets are environment variables: HF_TOKEN, WANDB_API_KEY"
    section, _, inner = key.partition(".")
    if inner and section in SECTIONS:
        return f"; nested keys are written as {section}: {{{inner}: ...}}"
    elsewhere = [f"{name}.{key}" for name, each in SECTIONS.items() if key in each.model_fields]
    return f"; did you mean {' or '.join(elsewhere)}?" if elsewhere else meant
