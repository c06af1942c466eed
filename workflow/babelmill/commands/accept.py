"""List the stages whose code is in no version, and say whether edited code gives the same results.

    babelmill accept                       # which stages would run again, for an edit of their code
    babelmill accept train export          # the edits change no result: nothing runs again
    babelmill accept --new train --results "the last span of a mask is cut"
                                           # they do: a new version, and a line in the CHANGELOG

`workflow/babelmill/code_versions.txt` holds the versions. It belongs into the commit of the edit.
"""

import argparse
import json
import re
from typing import Any

from babelmill.config.resolve import ROOT
from babelmill.core import code_versions
from babelmill.core.files import UserError, atomic_write
from babelmill.stages import STAGES, Stage

CHANGELOG = ROOT / "CHANGELOG.md"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("stages", nargs="*", choices=[[], *STAGES], metavar="STAGE", help="stages to accept")
    parser.add_argument("--new", action="store_true", help="results change: begin a new version of each stage")
    parser.add_argument("--results", metavar="TEXT", help="with --new: what changes, for the CHANGELOG")
    parser.add_argument(
        "--when",
        metavar="KEY=VALUE",
        nargs="+",
        default=[],
        help="with --new: only models with these settings change, such as train.objective=causal",
    )


def known(stage: Stage) -> bool:
    """Whether a version has the stage's present code."""
    versions = code_versions.read().get(stage.name, [])
    return any(stage.digest in version.digests for version in versions)


def limits(pairs: list[str]) -> dict[str, list[Any]]:
    """`train.objective=causal` as {"train.objective": ["causal"]}; values are JSON where they can be."""
    found: dict[str, list[Any]] = {}
    for pair in pairs:
        key, separator, text = pair.partition("=")
        if not separator or key.count(".") != 1:
            raise UserError(f"--when {pair}: section.key=value is expected, such as train.objective=causal")
        try:
            value = json.loads(text)
        except json.JSONDecodeError:
            value = text
        found.setdefault(key, []).append(value)
    return found


def note_results(label: str, text: str) -> None:
    """Add a "Results" line to the newest section of the CHANGELOG."""
    changelog = CHANGELOG.read_text(encoding="utf-8")
    heading = re.search(r"^## .*\n+", changelog, re.MULTILINE)
    if heading is None:
        raise UserError(f"{CHANGELOG}: has no section (## ...) to add a line to")
    line = f"- Results: {label}: {' '.join(text.split())}\n"
    with atomic_write(CHANGELOG, "w") as file:
        file.write(f"{changelog[: heading.end()]}{line}{changelog[heading.end() :]}")


def accept(names: list[str], new: bool, results: str | None, when: dict[str, list[Any]]) -> None:
    """Enter the present code of stages into the list of versions."""
    if new and not names:
        raise UserError("--new needs the name of a stage")
    if new and not results and any(code_versions.newest(name) for name in names):
        raise UserError("--new needs --results with what changes: users read it before they train again")
    if not new and (results or when):
        raise UserError("--results and --when go with --new")
    for stage in (STAGES[name] for name in names):
        if known(stage):
            print(f"{stage.name}: its code is in the list already")
            continue
        if not new:
            print(f"{code_versions.add(stage.name, stage.digest).label}: same results")
            continue
        version = code_versions.begin(stage.name, stage.digest, when)
        if results:
            note_results(version.label, results)
        print(f"{version.label}: new results; what depends on it runs again")


def run(args: argparse.Namespace) -> None:
    """List the stages with unknown code, or accept those that are named."""
    if args.stages or args.new:
        accept(args.stages, args.new, args.results, limits(args.when))
        return
    unknown = [stage.name for stage in STAGES.values() if not known(stage)]
    for stage in STAGES.values():
        version = stage.version
        state = "edited: in no version, so its results would be made again" if stage.name in unknown else "known"
        print(f"{stage.name:<10} {version.label if version else 'no version':<26} {state}")
    if unknown:
        names = " ".join(unknown)
        print(f"same results: babelmill accept {names}\nother results: babelmill accept --new {names} --results ...")
