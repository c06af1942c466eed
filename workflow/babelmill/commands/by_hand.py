"""Make what `score` and `tune` need of a suite or task outside of Snakemake, for the languages that a user asks for."""

import argparse
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from babelmill.config.layers import nearest
from babelmill.core import escape
from babelmill.core.files import UserError
from babelmill.core.stage_entry import Job
from babelmill.graph import Graph


def made_by_hand(graph: Graph, stage: str, run: Callable[[Job[Any]], Any], code: str, part: str) -> Path:
    """Return the folder of a suite or task (`part`) in a language, made from the present settings.

    It is the workflow's, made here by the function `run` of the stage if it is not there.
    """
    result = graph.result(stage, code, part)
    if not result.is_there:
        graph.write(result)
        run(Job(result.stage, result.settings_file, 1, 0, argparse.Namespace()))
    return result.path


def languages_asked(what: str, items: str, covered: Iterable[str], asked: list[str] | None) -> list[str]:
    """Return the languages that a user asks for, or the only one that a suite or task (`what`) has items of."""
    covered = list(covered)
    if not asked and len(covered) > 1:
        raise UserError(f"{what} has several languages: add --language with one or more of {escape.some(covered)}")
    for code in asked or []:
        if code not in covered:
            raise UserError(f"{what} has no {items} of {code}{nearest(code, covered)}")
    return asked or covered
