"""Show every setting of a model, and the file or option that it comes from.

    babelmill config eng
    babelmill config eng --changed              # only the settings that differ from config/defaults.yaml
    babelmill config --presets                  # the presets, your own ones, too
    babelmill config --presets 1gpu_standard    # what one of them holds

A preset is a file in `config/presets/`. `babelmill plan --config preset=NAME` says what the training of one costs.
"""

import argparse
import itertools
import re
import textwrap
from pathlib import Path

from babelmill.config import loading
from babelmill.config.layers import PRESETS, config_file, config_names, flatten, nearest
from babelmill.config.resolve import Configuration, Resolved
from babelmill.config.schema import SECTIONS
from babelmill.core.escape import line
from babelmill.core.files import UserError
from babelmill.core.words import aligned
from babelmill.core.yaml_file import read_yaml

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


def about_of(path: Path) -> str:
    """Return the first paragraph of the comment at the beginning of a file. It ends at a line without words."""
    lines = path.read_text(encoding="utf-8").splitlines()
    comment = itertools.takewhile(lambda line: line.startswith("#") and line.strip("# "), lines)
    return " ".join(line.lstrip("#").strip() for line in comment if "yaml-language-server" not in line)


def presets(name: str) -> str:
    """Return the list of presets, a line each, or the purpose and the values of the one with this name."""
    files = {each: config_file(f"{PRESETS}{each}.yaml") for each in sorted(config_names(PRESETS))}
    if not name:
        purposes = {each: re.split(r"\.\s+(?=[A-Z])|: ", about_of(path))[0] for each, path in files.items()}
        room = WIDTH - max(map(len, files)) - 2
        rows = [[each, textwrap.shorten(about, room, placeholder=" ...")] for each, about in purposes.items()]
        return "\n".join([*aligned(rows, [False, False]), "`babelmill config --presets NAME` shows one."])
    if name not in files:
        raise UserError(f"there is no preset {name!r}{nearest(name, files)}")
    values = [f"  {key}: {value}" for key, value in flatten(read_yaml(files[name])).items()]
    return "\n".join([textwrap.fill(f"{name}: {about_of(files[name])}", WIDTH), *values])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("models", nargs="*", metavar="MODEL", help="a model (default: the configuration's targets)")
    parser.add_argument("--changed", action="store_true", help="show only settings that differ from the defaults")
    parser.add_argument("--presets", nargs="?", const="", metavar="NAME", help="list presets, or show one")
    loading.add_arguments(parser)


def run(args: argparse.Namespace) -> None:
    """Print the resolved configuration of models, with the layer that each value came from; or presets."""
    if args.presets is not None:
        print(presets(args.presets))
        return
    configuration = loading.from_arguments(args)
    for name in args.models or configuration.targets():
        print(describe(configuration, name, args.changed))
