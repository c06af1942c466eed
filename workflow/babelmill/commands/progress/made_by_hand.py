"""Make what `score` and `tune` need of a suite or task outside of Snakemake, for the languages that a user asks for."""

import argparse
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from babelmill.config.layers import nearest
from babelmill.config.resolve import Configuration
from babelmill.core import escape, manifest
from babelmill.core.files import UserError, write_json
from babelmill.settings import settings_of
from babelmill.stages import STAGES


def made_by_hand(
    configuration: Configuration, stage: str, run: Callable[[argparse.Namespace], Any], code: str, part: str
) -> Path:
    """Return the folder of a suite or task in a language; run its stage if the results are missing or outdated.

    Args:
        configuration: the configuration.
        stage: the name of the stage: suite or task.
        run: runs the stage.
        code: the language.
        part: the name of the suite or task.
    """
    folder, settings = STAGES[stage].path(code, part), settings_of(configuration, code, f"{stage}.{part}")
    if manifest.missing(folder) or manifest.read(folder)["settings"] != settings:
        path = STAGES[stage].settings_file(code, part)
        write_json(path, settings)
        run(argparse.Namespace(settings=path, out=folder))
    return folder


def languages_asked(what: str, items: str, covered: Iterable[str], asked: list[str] | None) -> list[str]:
    """Return the languages that a user asks for, or the only one that a suite or task (`what`) has items of."""
    covered = list(covered)
    if not asked and len(covered) > 1:
        raise UserError(f"{what} has several languages: add --language with one or more of {escape.some(covered)}")
    for code in asked or []:
        if code not in covered:
            raise UserError(f"{what} has no {items} of {code}{nearest(code, covered)}")
    return asked or covered
