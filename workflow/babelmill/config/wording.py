"""Word the errors about the configuration: where a value is set, what is wrong with it, which key was meant."""

import re
from collections.abc import Collection
from typing import Any

from babelmill.config.layers import ABSENT, DEFAULTS, Layer, lookup, nearest
from babelmill.config.schema import SECTIONS
from babelmill.core.escape import line

LONGEST = 200  # characters of a value in a message


def where_said(layers: list[Layer], key: str, message: str) -> str:
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


def in_plain_words(kind: str, message: str, value: Any) -> str:
    """Return what is wrong with a value, for people who do not know pydantic."""
    if kind == "list_type":
        return f"a list is expected, such as [{line(value, LONGEST)}]"
    if kind == "string_type" and isinstance(value, bool | int | float):
        kind = "boolean" if isinstance(value, bool) else "number"
        return f"a text is expected, and YAML reads this as a {kind}; if you mean the text, put it in quotes"
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
        return f"; nested keys are written as {option}{nested[0]}{inner}: {line(value, LONGEST)}{nested[1]}"
    fields = [(name, field) for name, section in SECTIONS.items() for field in section.model_fields]
    meant = [f"{name}.{field}" for name, field in fields if field == key]
    meant = meant or [field for field in known if key == short(field)]
    meant = meant or [f"{name}.{field}" for name, field in fields if key == short(field)]
    return f"; did you mean {' or '.join(meant)}?" if meant else nearest(str(key), known)


def short(key: str) -> str | None:
    """Return the first letters of a key's words, as people shorten them: `lr` for learning_rate alone."""
    found = "".join(word[:1] for word in key.split("_"))
    return None if found == "lr" and key != "learning_rate" else found
