"""The configuration as commands and stages get it, and `python -m babelmill.config`.

Commands build a `Configuration` from the options that Snakemake has too; a stage reads the settings file made for it.
"""

import argparse
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pydantic
import yaml

from babelmill.configuration import Configuration
from babelmill.files import UserError, read_json
from babelmill.layers import read_yaml
from babelmill.schema import SECTIONS


def read_settings(path: str | Path, stage: str) -> SimpleNamespace:
    """Read a settings file: `stage`, `name`, `languages`, its sections as typed objects, and `raw`, the whole of it."""
    raw = read_json(path)
    if raw.get("stage") != stage:
        raise UserError(f"{path}: these are settings of stage {raw.get('stage')!r}, not of {stage!r}")
    try:
        values = {key: SECTIONS[key].model_validate(value) if key in SECTIONS else value for key, value in raw.items()}
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(map(str, first["loc"]))
        raise UserError(f"{path}: {key} = {first['input']!r}: {first['msg']}") from None
    return SimpleNamespace(**values, raw=raw)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `--profile`, `--configfile` and `--config`, which mean what they mean to Snakemake."""
    parser.add_argument("--profile", help="a profile folder; its configfile is used")
    parser.add_argument(
        "--configfile", nargs="+", default=None, help="configuration files (they replace the profile's)"
    )
    parser.add_argument("--config", nargs="+", default=[], metavar="KEY=VALUE", help="values over all files")


def parse_overrides(pairs) -> dict:
    """`--config key=value ...`; values are YAML, as Snakemake reads them."""
    values = {}
    for pair in pairs:
        key, separator, text = pair.partition("=")
        if not separator:
            raise UserError(f"--config {pair}: KEY=VALUE is expected")
        try:
            values[key] = yaml.safe_load(text)
        except yaml.YAMLError:
            raise UserError(f"--config {pair}: the value is not valid YAML") from None
    return values


def read_profile(folder: str | Path) -> dict:
    """A profile's values; a UserError if the folder holds none."""
    names = ("profile.v9+.yaml", "profile.yaml", "config.v9+.yaml", "config.v8+.yaml", "config.yaml")
    path = next((Path(folder, name) for name in names if Path(folder, name).is_file()), None)
    if path is None:
        raise UserError(f"--profile {folder}: no profile.yaml in this folder")
    return read_yaml(path)


def from_arguments(args: argparse.Namespace) -> Configuration:
    """The configuration that Snakemake would use with the same `--profile`, `--configfile` and `--config`."""
    profile = read_profile(args.profile) if args.profile else {}
    files = args.configfile if args.configfile is not None else profile.get("configfile", [])
    files = [files] if isinstance(files, str) else files
    if not files and not os.path.exists("config/config.yaml"):
        raise UserError("config/config.yaml: no such file; run this where you run Snakemake, or name a --configfile")
    overrides = profile.get("config", {})
    overrides = overrides if isinstance(overrides, dict) else parse_overrides(overrides)
    overrides = parse_overrides(args.config) if args.config else overrides
    return load(files, overrides)


def load(configfiles=(), overrides: dict | None = None) -> Configuration:
    """`config/config.yaml` of the working folder, then the given files, then the overrides."""
    sources = [(str(path), read_yaml(path)) for path in ("config/config.yaml", *configfiles) if os.path.exists(path)]
    missing = [path for path in configfiles if not os.path.exists(path)]
    if missing:
        raise UserError(f"--configfile {missing[0]}: no such file")
    return Configuration([*sources, ("--config", overrides or {})])


def describe(configuration: Configuration, name: str) -> str:
    """Every value that applies to a model, and the layer it came from."""
    resolved = configuration.model(name)
    lines = [f"{name}: languages {', '.join(resolved.languages)}; preset {resolved.preset}"]
    parts = [("", resolved)]
    if len(resolved.languages) > 1:
        parts += [(f"{code}: ", configuration.corpus(code)) for code in resolved.languages]
    else:
        parts.insert(0, ("", configuration.corpus(resolved.languages[0])))
    for prefix, part in parts:
        for section, values in part.sections.items():
            for key, value in values.model_dump().items():
                dotted = f"{section}.{key}"
                lines.append(f"  {prefix + dotted:<40} {value!s:<24} {part.origins[dotted]}")
    return "\n".join(lines)


def main() -> int:
    """Print the resolved configuration of models, with the layer that each value came from."""
    parser = argparse.ArgumentParser(prog="python -m babelmill.config", description=main.__doc__)
    parser.add_argument("models", nargs="*", help="model names (default: the configuration's targets)")
    add_arguments(parser)
    args = parser.parse_args()
    try:
        configuration = from_arguments(args)
        for name in args.models or configuration.targets():
            print(describe(configuration, name))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
