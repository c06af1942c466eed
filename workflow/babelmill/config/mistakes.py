"""Find unknown keys in the user's configuration, and word all errors about it: where, what is wrong, what was meant."""

import re
from collections.abc import Callable, Collection, Sequence
from typing import Any

import pydantic

from babelmill.config.layers import ABSENT, DEFAULTS, Layer, flatten_keys, lookup, nearest, sure_keys
from babelmill.config.schema import SECTIONS, UNKNOWN, LanguageEntry, ModelEntry, User
from babelmill.core.escape import line
from babelmill.core.files import UserError

SECRET = re.compile(r"(^|_)(token|api_key|secret|password)$", re.IGNORECASE)


def check_keys(user: dict[str, Any], origin: Callable[[Sequence[str]], str | None]) -> None:
    """Refuse unknown keys and secrets anywhere in the user's layers, with the nearest known key.

    `origin` returns the label of the source that sets a key.
    """

    def check(values: Any, known: Collection[str], *path: str) -> None:
        prefix = "".join(f"{part}." for part in path)
        if not isinstance(values, dict):
            raise UserError(f"{origin(path)}: {'.'.join(path)} = {shown(repr(values))}: keys are expected")
        for key in values:
            where = origin((*path, key))
            if SECRET.search(str(key)):
                raise UserError(
                    f"{where}: {prefix}{key}: a secret does not belong in a configuration file; set it as an"
                    " environment variable (HF_TOKEN, WANDB_API_KEY)"
                )
            if key not in known:
                meant = meant_key(prefix, key, values[key], known, where)
                raise UserError(f"{where}: unknown key {prefix}{key}{meant}")

    check(user, {*User.model_fields, *SECTIONS})
    for group in ("models", "languages", "batches"):
        if not isinstance(user.get(group, {}), dict):
            raise UserError(
                f"{origin((group,))}: {group} = {shown(repr(user[group]))}: a mapping from names to values is expected"
            )
    for group, entry_type in (("models", ModelEntry), ("languages", LanguageEntry)):
        for name, entry in user.get(group, {}).items():
            check(entry, entry_type.model_fields, group, name)
    for prefix, values in [
        ((), user),
        *((("models", name), entry) for name, entry in user.get("models", {}).items()),
        *((("languages", name), entry) for name, entry in user.get("languages", {}).items()),
    ]:
        for section, section_type in SECTIONS.items():
            if section in values:
                check(values[section], section_type.model_fields, *prefix, section)


LONGEST = 200  # characters of a value in a message
LONGEST_MAPPING = 50  # of a value with keys of its own; a longer one hides what the message says


def shown(value: object) -> str:
    """Return a value for a message, without the keys in an address (`s3://key:secret@bucket`, `https://host/x?key=1`)."""
    without_password = re.sub(r":.*@", ":***@", str(value), flags=re.DOTALL)
    return line(re.sub(r"(://[^\s?]*\?).*", r"\1***", without_password, flags=re.DOTALL), LONGEST)


def where_set(layers: list[Layer], key: str, message: str) -> str:
    """Return the label of the layer to look at for a mistake: the last one that sets the key, or a key in the message.

    If no layer sets the key, the keys around it are tried, from the inside out. If no layer sets
    these either, the label is that of the defaults.
    """
    named = re.findall(rf"\b{re.escape(key)}\w+", message) if key.endswith(".") else [key]
    for end in range(key.count(".") + 1, 0, -1):
        for layer in reversed(layers):
            for dotted in named:
                part = dotted.split(".")[:end]
                if lookup(layer.values, part) is not ABSENT:
                    return layer.label
    return DEFAULTS


def worded(error: pydantic.ValidationError, values: Any, prefix: str = "") -> tuple[str, str]:
    """Return the dotted key of the first mistake that pydantic found in values, and a line: key = value: what is wrong.

    `prefix`: the keys around the values, with dots.
    """
    first, *others = error.errors(include_url=False)
    message = in_plain_words(first["type"], first["msg"], first["input"])
    if first["type"] == "int_parsing" and others and others[0]["type"] == "literal_error":
        word = others[0].get("ctx", {})["expected"].strip("'")
        message = f"a number or {word} is expected"
    of_key = first["loc"][-1:] == ("[key]",)
    missing = first["type"] == "missing"
    loc = first["loc"][: -2 if of_key else -1 if missing else None]
    names = [part for part in loc if isinstance(part, int) or part in flatten_keys(values)]
    key = prefix + ".".join(map(str, names))
    if first["type"] == UNKNOWN:
        unknown, meant = (first.get("ctx", {})[name] for name in ("key", "meant"))
        dotted = f"{key}.{unknown}" if names else f"{prefix}{unknown}"
        return dotted, f"unknown key {line(dotted, LONGEST)}{meant}"
    if missing:
        return key, (f"{key}: " if names else "") + f"the key {first['loc'][-1]} is missing"
    if not names:
        return key, message
    value = shown(repr(first["input"]))
    if of_key:
        return key, f"{value} is a key of {key}: {message}"
    if isinstance(first["input"], dict) and len(value) > LONGEST_MAPPING:
        return key, f"{key}: {message}"
    return key, f"{key} = {value}: {message}"


def in_plain_words(kind: str, message: str, value: Any) -> str:
    """Return what is wrong with a value, for people who do not know pydantic."""
    if kind == "list_type":
        return f"a list is expected, such as [{shown(value)}]"
    if kind == "string_type" and isinstance(value, bool | int | float):
        kind = "boolean" if isinstance(value, bool) else "number"
        return f"a text is expected, and YAML reads this as a {kind}; if you mean the text, put it in quotes"
    if kind in ("model_type", "dict_type"):
        return "keys with values are expected"
    message = message.removeprefix("Value error, ")
    return message[:1].lower() + message[1:]


def meant_key(prefix: str, key: Any, value: Any, known: Collection[str], where: str | None) -> str:
    """Return which key may have been meant instead of an unknown one; `prefix`: the keys around it, with dots."""
    if key in SECTIONS and prefix.startswith("languages."):
        return f"; it belongs to the model: models.{prefix.removeprefix('languages.')}{key}"
    section, _, inner = str(key).partition(".")
    if section in known and inner:
        nested = (f"'{section}={{", "}'") if where == "--config" else (f"{section}: {{", "}")
        option = "--config " if where == "--config" else ""
        return f"; nested keys are written as {option}{nested[0]}{inner}: {shown(value)}{nested[1]}"
    fields = [(name, field) for name, section in SECTIONS.items() for field in section.model_fields]
    meant = sure_keys(str(key), known)
    meant = meant or [f"{name}.{field}" for name, field in fields if field == key]
    meant = meant or [f"{name}.{field}" for name, field in fields if field in sure_keys(str(key), [field])][:3]
    return f"; did you mean {' or '.join(meant)}?" if meant else nearest(str(key), known)
