"""Make `config/schema.json`, with which editors complete and check configuration files while people write them.

    python -m babelmill.config.json_schema

This command makes it from the types in `schema.py` and the comments in `config/defaults.yaml`. The schema checks keys,
types and bounds. Only the workflow checks whether several keys go together.
"""

import re
from typing import Any

from pydantic.json_schema import models_json_schema

from babelmill.config.resolve import ROOT
from babelmill.config.schema import SECTIONS, User
from babelmill.core.files import write_json
from babelmill.core.yaml_file import parse

PATH = ROOT / "config/schema.json"
DEFAULTS = ROOT / "config/defaults.yaml"
DIALECT = "http://json-schema.org/draft-07/schema#"  # the dialect of the editors' YAML server
# Bounds of numbers: pydantic keeps its own names for them if a function checks the value first.
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
    """Return a part of a schema in the words of the dialect, without titles, which only repeat the names."""
    if not isinstance(schema, dict):
        return [plain(each) for each in schema] if isinstance(schema, list) else schema
    found = {}
    for key, value in schema.items():
        if key in ("properties", "$defs"):
            found[key] = {name: plain(each) for name, each in value.items()}
        elif key == "description":
            found[key] = " ".join(value.split("\n\n")[0].split())
        elif key in ("const", "default", "enum"):
            found[key] = value
        elif key != "title":
            found[BOUNDS.get(key, key)] = plain(value)
    return found


def described(name: str, properties: dict[str, Any], words: dict[str, str], values: dict[str, Any]) -> dict[str, Any]:
    """Return the properties of a section with their comments in `defaults.yaml` and their defaults."""
    return {
        key: schema | {"description": words.get(f"{name}.{key}", ""), "default": values[key]}
        for key, schema in properties.items()
    }


def json_schema() -> dict[str, Any]:
    """Return the schema of a configuration file: a preset or a file of the user."""
    text = DEFAULTS.read_text(encoding="utf-8")
    words, values = comments(text), parse(text, DEFAULTS)
    types = [User, *SECTIONS.values()]
    _, made = models_json_schema([(each, "validation") for each in types], ref_template="#/definitions/{model}")
    parts = plain(made)["$defs"]
    sections = {name: {"$ref": f"#/definitions/{each.__name__}"} for name, each in SECTIONS.items()}
    for name, each in SECTIONS.items():
        part = parts[each.__name__]
        part["properties"] = described(name, part["properties"], words, values[name])
        part.pop("required", None)  # every layer sets only some of the values
    for entry in ("ModelEntry", "LanguageEntry"):
        of_entry = parts[entry]["properties"]
        of_entry.update({name: sections[name] for name in of_entry.keys() & sections.keys()})
    top = parts.pop("User")["properties"]
    for key, schema in top.items():
        schema["description"] = words.get(key, "")
    return {
        "$schema": DIALECT,
        "$comment": "Made by `python -m babelmill.config.json_schema`; do not edit.",
        "title": "A configuration of Babelmill",
        "type": "object",
        "additionalProperties": False,
        "properties": top | sections,
        "definitions": parts,
    }


if __name__ == "__main__":
    write_json(PATH, json_schema())
