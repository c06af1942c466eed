"""Show every setting of a model, and the file or option that it comes from.

    babelmill config eng
    babelmill config eng --changed              # only the settings that differ from config/defaults.yaml
    babelmill config --presets                  # the presets and the challenges, your own ones, too
    babelmill config --presets 1gpu_standard    # what one of them holds, and how to run it

A preset is a file in `config/presets/`, a challenge one in `config/challenges/`. `babelmill plan --config preset=NAME`
says what the training of a preset costs.
"""

import argparse

from babelmill.config import loading
from babelmill.config.resolve import Configuration, Resolved
from babelmill.config.schema import SECTIONS
from babelmill.core.escape import line


def describe(configuration: Configuration, name: str, changed: bool = False) -> str:
    """Return every value that applies to a model, and the layer it came from, one per line.

    `changed`: only the values that are not those of the defaults.
    """
    resolved = configuration.model(name)
    recipe = "" if resolved.recipe == "published" else f"; recipe {resolved.recipe}"
    lines = [f"{name}: languages {', '.join(resolved.languages)}; preset {resolved.preset}{recipe}"]
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("models", nargs="*", metavar="MODEL", help="a model (default: the configuration's targets)")
    parser.add_argument("--changed", action="store_true", help="show only settings that differ from the defaults")
    presets = "list presets and challenges, or show one"
    parser.add_argument("--presets", nargs="?", const="", metavar="NAME", help=presets)
    loading.add_arguments(parser)


def run(args: argparse.Namespace) -> None:
    """Print the resolved configuration of models, with the layer that each value came from; or presets."""
    if args.presets is not None:
        from babelmill.commands.terminal import presets

        print(presets.shown(args.presets))
        return
    configuration = loading.from_arguments(args)
    for name in args.models or configuration.targets():
        print(describe(configuration, name, args.changed))
