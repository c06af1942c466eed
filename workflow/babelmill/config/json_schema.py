"""Make `config/schema.json`, with which editors complete and check configuration files while people write them.

    python -m babelmill.config.json_schema

This command makes it from the types in `schema.py` and the comments in `config/defaults.yaml`. The schema checks keys,
types and bounds. Only the workflow checks whether several keys go together.
"""

import re
from typing import Any

from pydantic import create_model

from babelmill.config.entries import UNTRAINED, User
from babelmill.config.schema import SECTIONS
from babelmill.core.files import write_json
from babelmill.core.places import ROOT
from babelmill.core.yaml_file import parse

PATH = ROOT / "config/schema.json"
DEFAULTS = ROOT / "config/defaults.yaml"
# Pydantic keeps its own names for the bounds of numbers if a function checks the value first.
BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}
KEY = re.compile(r"^(  )?(\w+):")


def comments(text: str) -> dict[str, str]:
    """Return {dotted key: its comment}, from the comments beside and below the keys of `defaults.yaml`."""
    found: dict[str, list[str]] = {}
    section = place = ""
    for line in text.splitlines():
        if match := KEY.match(line):
            if not match[1]:
                section = match[2]
            place = f"{section}.{match[2]}" if match[1] else match[2]
        elif not line.startswith(" ") or not line.lstrip().startswith("#"):
            place = ""
        if place and (comment := re.search(r"(?:^| )# ?(.*)$", line)):
            found.setdefault(place, []).append(comment[1])
    return {key: " ".join(lines) for key, lines in found.items()}


def plain(schema: Any) -> Any:
    """Return a part of a schema with the dialect's names of bounds, and with comments of one line."""
    if isinstance(schema, list):
        return [plain(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {BOUNDS.get(key, key): plain(value) for key, value in schema.items()}
    if "patternProperties" in found:
        found["additionalProperties"] = False
    if isinstance(text := found.get("description"), str):
        found["description"] = " ".join(text.split("\n\n")[0].split())
    return {key: value for key, value in found.items() if key != "title" or isinstance(value, dict)}  # it is the name


def json_schema() -> dict[str, Any]:
    """Return the schema of a configuration file: a preset or a file of the user."""
    text = DEFAULTS.read_text(encoding="utf-8")
    words, values = comments(text), parse(text, DEFAULTS)
    sections: Any = {name: (each, ...) for name, each in SECTIONS.items()}
    made = plain(create_model("Configuration", __base__=User, **sections).model_json_schema())
    parts, top = made["$defs"], made["properties"]
    for name, each in SECTIONS.items():
        part = parts[each.__name__]
        for key, schema in part["properties"].items():
            schema |= {"description": words.get(f"{name}.{key}", ""), "default": values[name][key]}
        part.pop("required", None)  # every layer sets only some of the values
    for entry in (parts["ModelEntry"]["properties"], parts["LanguageEntry"]["properties"]):
        entry |= {name: top[name] for name in entry.keys() & SECTIONS.keys()}
    # A file of the user has a mapping of languages; a preset has a list.
    of_preset = parts["ModelEntry"]["properties"]
    of_preset["train"] = {"anyOf": [top["train"], {"const": UNTRAINED}]}
    top["languages"] = {"anyOf": [top["languages"], of_preset["languages"]]}
    for key in top.keys() - SECTIONS.keys():
        top[key]["description"] = words.get(key, "")
    top["submission"] = of_preset["submission"]
    del made["required"]
    return made | {"$comment": "Made by `python -m babelmill.config.json_schema`; do not edit."}


if __name__ == "__main__":
    write_json(PATH, json_schema())
