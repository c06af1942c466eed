"""Load the configuration as Snakemake does: profile, `config/config.yaml`, `--configfile` and `--config`."""

import argparse
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from babelmill.config.resolve import Configuration
from babelmill.core.files import UserError
from babelmill.core.yaml_file import parse, read_yaml

USER_FILE = "config/config.yaml"
AFTER = "takes all words up to the next option: put names of models before it, or after --"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `--profile`, `--configfile` and `--config`, which work as in Snakemake."""
    parser.add_argument("--profile", metavar="FOLDER", help="use the configuration of this Snakemake profile")
    parser.add_argument("--configfile", nargs="+", metavar="FILE", help="read these files, not those of the profile")
    parser.add_argument(
        "--config", nargs="+", default=[], metavar="KEY=VALUE", help="override the files by these values"
    )


def parse_overrides(pairs: Iterable[str]) -> dict[str, Any]:
    """Read `--config key=value ...`, whose values are YAML. The Snakefile reads the same words with this function."""
    values = {}
    for pair in pairs:
        key, separator, text = pair.partition("=")
        if not separator:
            raise UserError(f"--config {pair}: KEY=VALUE is expected; --config {AFTER}")
        if key in values:
            raise UserError(f"--config {pair}: {key} is given twice; write both under one {key}={{...}}")
        values[key] = parse(text, f"--config {pair}")
    return values


def read_profile(folder: str | Path) -> dict[str, Any]:
    """Read a profile's values; raise a UserError if the folder has no profile."""
    names = ("profile.v9+.yaml", "profile.yaml", "config.v9+.yaml", "config.v8+.yaml", "config.yaml")
    path = next((Path(folder, name) for name in names if Path(folder, name).is_file()), None)
    if path is None:
        raise UserError(f"--profile {folder}: no profile.yaml in this folder")
    return read_yaml(path)


def from_arguments(args: argparse.Namespace) -> Configuration:
    """Return the configuration that Snakemake would use with the same `--profile`, `--configfile` and `--config`."""
    profile = read_profile(args.profile) if args.profile else {}
    files = args.configfile if args.configfile is not None else profile.get("configfile", [])
    overrides = args.config or profile.get("config", {})
    overrides = overrides if isinstance(overrides, dict) else parse_overrides(overrides)
    return load([files] if isinstance(files, str) else files, overrides)


def load(configfiles: Sequence[str | Path] = (), overrides: dict[str, Any] | None = None) -> Configuration:
    """Load `config/config.yaml` of the working folder, then the given files, then the overrides."""
    missing = [path for path in configfiles if not os.path.exists(path)]
    if missing:
        raise UserError(f"--configfile {missing[0]}: no such file; --configfile {AFTER}")
    files = [*([USER_FILE] if os.path.exists(USER_FILE) else []), *configfiles]
    if not files:
        raise UserError(f"{USER_FILE}: no such file; go to the folder of the workflow, or name a --configfile")
    return Configuration([*((str(path), read_yaml(path)) for path in files), ("--config", overrides or {})])
