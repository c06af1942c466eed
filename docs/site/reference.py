"""Make the reference of all settings and commands, as Markdown, from the types, the comments and the parsers."""

import os
import re
from typing import Any

import yaml

from babelmill.cli import COMMANDS, parser_for
from babelmill.config.json_schema import DEFAULTS, comments, json_schema
from babelmill.core.escape import markdown

SECTION = re.compile(r"^# --- (?P<about>.+?) -+$|^(?P<name>\w+):", re.MULTILINE)
# The entries of these keys have keys of their own, and the page that explains them.
ENTRIES = {
    "models": ("ModelEntry", "models.md"),
    "languages": ("LanguageEntry", "data.md"),
    "experiments": ("Experiment", "experiments.md"),
    "suites": ("Suite", "../config/README.md"),
    "tasks": ("Task", "fine-tuning.md"),
}
WORDS = {"string": "text", "integer": "a whole number", "number": "a number", "boolean": "true or false"}


def allowed(schema: dict[str, Any]) -> str:
    """Return what a key may be, in words, from its JSON schema."""
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(allowed(each) for each in schema["anyOf"]))
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if "$ref" in schema or schema.get("type") == "object":
        return "a mapping"
    if schema.get("type") == "array":
        items = allowed(schema.get("items", {}))
        return f"a list ({items})" if items else "a list"
    if schema.get("type") == "null":
        return "`null`"
    words = {"minimum": "at least", "exclusiveMinimum": "above", "maximum": "at most", "exclusiveMaximum": "below"}
    bounds = [f"{word} {schema[key]:,}" for key, word in words.items() if key in schema]
    return ", ".join([WORDS.get(schema.get("type", ""), ""), *bounds])


def prose(comment: str) -> str:
    """Return a comment of `defaults.yaml` as Markdown: what is between backticks is code, names of pages are links."""
    text = re.sub(r"`[^`]+`|[^`\s]+", lambda m: m[0] if m[0][0] == "`" else markdown(m[0]), comment)
    return re.sub(r"\b(docs|config)/([\w-]+\.md)", r"[\g<0>](../\g<0>)", text)


def setting(name: str, schema: dict[str, Any], comment: str, default: Any) -> str:
    """Return the entry of a key."""
    shown = yaml.safe_dump(default, default_flow_style=True, width=10_000).removesuffix("...\n").strip()
    lines = [f"```{{confval}} {name}", f":type: {allowed(schema)}"]
    lines += [f":default: `` {shown} ``"] if len(shown) < 100 else []
    return "\n".join([*lines, "", prose(comment), "```", ""])


def settings() -> str:
    """Return the reference of all keys, in the order of `defaults.yaml`."""
    text = DEFAULTS.read_text(encoding="utf-8")
    words, values, schema = comments(text), yaml.safe_load(text), json_schema()
    parts: list[str] = []
    for match in SECTION.finditer(text):
        if match["about"]:
            parts.append(f"## {match['about'].split(': ')[0]}\n\n{prose(match['about'].partition(': ')[2])}\n")
            continue
        name = match["name"]
        of_key = schema["properties"][name]
        if name in ENTRIES or "$ref" not in of_key:
            parts.append(setting(name, of_key, words.get(name, ""), values[name]))
            continue
        of_section = schema["$defs"][of_key["$ref"].rsplit("/")[-1]]["properties"]
        for key, value in values[name].items():
            if not of_section[key].get("deprecated"):
                parts.append(setting(f"{name}.{key}", of_section[key], words.get(f"{name}.{key}", ""), value))
    parts.append("## Keys of entries\n")
    for name, (kind, page) in ENTRIES.items():
        parts.append(f"### An entry of `{name}`\n\n[{page.split('/')[-1]}]({page}) explains these keys.\n")
        parts.append("| key | what it may be |\n|---|---|")
        keys = schema["$defs"][kind]["properties"]
        parts.append(
            "\n".join(
                f"| `{key}` | {'the section `' + key + '`' if '$ref' in of_key else allowed(of_key)} |"
                for key, of_key in keys.items()
            )
        )
        parts.append("")
    return "\n".join(parts)


def commands() -> str:
    """Return the help of all commands, as a terminal shows it."""
    os.environ["COLUMNS"] = "90"  # the width that argparse writes for
    parser = parser_for(list(COMMANDS))
    each = next(action.choices for action in parser._actions if action.dest == "command")
    parts = [f"```text\n{parser.format_help()}```\n"]
    parts += [f"## `babelmill {name}`\n\n```text\n{each[name].format_help()}```\n" for name in COMMANDS]
    return "\n".join(parts)


GENERATED = {"settings": settings, "commands": commands}


def contents(name: str) -> str:
    """Return the text of a generated part."""
    return GENERATED[name]()
