"""Show every setting of a model, and the file or option that it comes from.

    babelmill config eng
    babelmill config eng --changed              # only the settings that differ from config/defaults.yaml
    babelmill config --presets                  # the presets, your own ones, too, and what each is for

A preset is a file in `config/presets/`. `babelmill config eng --changed --config preset=NAME` shows its values, and
`babelmill plan eng --config preset=NAME` what a training with it costs.
"""

import argparse
import itertools
import re
import textwrap

from babelmill.config import loading
from babelmill.config.layers import PRESETS, config_file, config_names
from babelmill.config.resolve import Configuration, Resolved
from babelmill.config.schema import SECTIONS
from babelmill.core.escape import line

WIDTH = 100  # characters per line


def describe(configuration: Configuration, name: str, changed: bool = False) -> str:
    """Return every value that applies to a model, and the layer it came from, one per line.

    `changed`: only the values that are not those of the defaults.
    """
    resolved = configuration.model(name)
    lines = [f"{name}: languages {', '.join(resolved.languages)}; preset {resolved.preset}"]
    several = len(resolved.languages) > 1
    corpora = [(f"{code}: " if several else "", configuration.corpus(code)) for code in resolved.languages]
    parts: list[tuple[str, Resolved]] = [("", resolved), *corpora] if several else [*corpora, ("", resolved)]
    for prefix, part in parts:
        for section, values in part.sections.items():
            defaults = SECTIONS[section].model_validate(configuration.defaults[section]).model_dump()
            for key, value in values.model_dump().items():
                dotted = f"{section}.{key}"
                if changed and value == defaults[key]:
                    continue
                lines.append(line(f"  {prefix + dotted:<40} {value!s:<24} {part.origins[dotted]}"))
    return "\n".join(lines)


def presets() -> list[str]:
    """Return a line per preset: its name and the first sentence of its file."""
    found = []
    for name in sorted(config_names(PRESETS)):
        text = config_file(f"{PRESETS}{name}.yaml").read_text(encoding="utf-8")
        lines = [each for each in text.splitlines() if "yaml-language-server" not in each]
        comment = itertools.takewhile(lambda each: each.startswith("#") and each.strip("# "), lines)
        about = " ".join(each.lstrip("#").strip() for each in comment)
        sentence = re.split(r"\.\s+(?=[A-Z])|: |\.$", about)[0]
        found.append(line(f"{name:<24} {textwrap.shorten(sentence, WIDTH - 25, placeholder=' ...')}"))
    return found


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("models", nargs="*", metavar="MODEL", help="a model (default: the configuration's targets)")
    parser.add_argument("--changed", action="store_true", help="show only settings that differ from the defaults")
    parser.add_argument("--presets", action="store_true", help="list the presets, and what each is for")
    loading.add_arguments(parser)


def run(args: argparse.Namespace) -> None:
    """Print the resolved configuration of models, with the layer that each value came from; or presets."""
    if args.presets:
        print(*presets(), sep="\n")
        return
    configuration = loading.from_arguments(args)
    for name in args.models or configuration.targets():
        print(describe(configuration, name, args.changed))
