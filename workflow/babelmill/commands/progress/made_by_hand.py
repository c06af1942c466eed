"""Make what `score` and `tune` need of a suite or task outside of Snakemake, for the languages that a user asks for."""

import argparse
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from babelmill.config.layers import nearest
from babelmill.config.resolve import Configuration
from babelmill.core import escape, manifest
from babelmill.core.files import UserError, write_json
from babelmill.hub import revisions
from babelmill.settings import settings_of
from babelmill.stages import STAGES

BY_HAND = {"suite": Path("scores/suites"), "task": Path("tuned/tasks")}


def made_by_hand(
    configuration: Configuration, stage: str, run: Callable[[argparse.Namespace], Any], code: str, part: str
) -> Path:
    """Return the folder of a suite or task (`part`) in a language, made from the present settings.

    It is the workflow's if that is up to date. Else `run`, which runs the stage, makes one below BY_HAND: a command by
    hand changes nothing of the workflow's results.
    """
    folder, settings = BY_HAND[stage] / part / code, settings_of(configuration, code, f"{stage}.{part}")
    source = settings.get("source")
    recorded = revisions.recorded("dataset", source["repository"], source["revision"]) if source else None
    for there in (folder, STAGES[stage].path(code, part)):
        if not manifest.missing(there):
            made = manifest.read(there)
            commit = (made["figures"].get("hub") or {}).get("commit")
            if made["settings"] == settings and commit == recorded:
                return there
    path = folder.with_name(f"{code}.json")
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
