"""List the stages whose code was edited, and record whether their results stay the same.

    babelmill accept                       # which stages would run again because of edited code
    babelmill accept train export          # the edits change no result: nothing runs again
    babelmill accept --new train --results "the last span of a mask is cut"
                                           # results change: a new version, a line in the CHANGELOG

`workflow/babelmill/code_versions.txt` holds the versions. Commit it together with the edit.
"""

import argparse
import re
from typing import Any

import pydantic

from babelmill.config.resolve import ROOT
from babelmill.config.schema import SECTIONS, read_alone
from babelmill.core import code_versions
from babelmill.core.files import UserError, write_text
from babelmill.core.yaml_file import parse
from babelmill.stages import STAGES, Stage

EXAMPLE = "train.objective=causal"
CHANGELOG = ROOT / "CHANGELOG.md"
UNRELEASED = "## [Unreleased]"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add, pairs = parser.add_argument, {"metavar": "KEY=VALUE", "nargs": "+", "default": []}
    # If no stage is given, argparse compares the default, [], with `choices`, too.
    add("stages", nargs="*", choices=[[], *STAGES], metavar="STAGE", help="stages to accept")
    add("--new", action="store_true", help="results change: begin a new version of each stage")
    add("--results", metavar="TEXT", help="with --new: what changes, for the CHANGELOG")
    only = f"only models with these settings change, such as {EXAMPLE}"
    add("--when", **pairs, help=f"with --new: {only}")
    others = "models with all of these settings do not change, such as model.source=null"
    add("--unless", **pairs, help=f"with --new: {others}")


def state_of(stage: Stage) -> tuple[bool, str]:
    """Return whether versions have all of the stage's present code, and what to say about it."""
    versions = [code_versions.version_of(stage.name, digest) for digest in stage.digests]
    if not versions[0]:
        return False, "edited, in no version: the next run makes its results again"
    if not versions[-1]:
        return False, "edited in labels/, in no version: the next run makes its results of label models again"
    return True, versions[0].label if versions[0] is versions[-1] else f"{versions[0].label}, {versions[-1].label}"


def limits(pairs: list[str], option: str = "--when") -> dict[str, list[Any]]:
    """Parse `train.objective=causal` to {"train.objective": ["causal"]}; check values as settings files do."""
    found: dict[str, list[Any]] = {}
    for pair in pairs:
        key, separator, text = pair.partition("=")
        section, _, name = key.partition(".")
        if not separator or name not in getattr(SECTIONS.get(section), "model_fields", {}):
            raise UserError(f"{option} {pair}: a key of the configuration and a value are expected, such as {EXAMPLE}")
        try:
            value = read_alone(SECTIONS[section].model_fields[name], parse(text, f"{option} {pair}"))
        except pydantic.ValidationError as error:
            raise UserError(f"{option} {pair}: {error.errors(include_url=False)[0]['msg']}") from None
        found.setdefault(key, []).append(value)
    return found


def note_results(label: str, text: str) -> None:
    """Add a "Results" line to the CHANGELOG's section of what is not released, which is the first one."""
    changelog = CHANGELOG.read_text(encoding="utf-8")
    first = re.search(r"^## ", changelog, re.MULTILINE)
    if first is None:
        raise UserError(f"{CHANGELOG} has no section (## ...) to which a line can be added")
    if not changelog.startswith(UNRELEASED, first.start()):
        changelog = f"{changelog[: first.start()]}{UNRELEASED}\n\n{changelog[first.start() :]}"
    section = re.compile(r"## .*\n(?:(?!^## ).*\n)*", re.MULTILINE).match(changelog, first.start())
    assert section
    line = f"- Results: {label}: {' '.join(text.split())}\n"
    heading = re.search(r"^### Results\n\n", section[0], re.MULTILINE)
    place = section.start() + heading.end() if heading else section.end()
    if heading:
        changed = f"{changelog[:place]}{line}{changelog[place:]}"
    else:
        changed = f"{changelog[:place].rstrip()}\n\n### Results\n\n{line}\n{changelog[place:]}".rstrip() + "\n"
    write_text(CHANGELOG, changed)


def accept(
    names: list[str],
    new: bool,
    results: str | None,
    when: dict[str, list[Any]],
    unless: dict[str, list[Any]] | None = None,
) -> None:
    """Record the present code of stages in the list of versions."""
    if new and not names:
        raise UserError("--new needs the name of a stage")
    if new and not results and any(code_versions.read().get(name) for name in names):
        raise UserError("--new needs --results with what changes: users read it before they train again")
    if not new and (results or when or unless):
        raise UserError("--results, --when and --unless go with --new")
    for stage in (STAGES[name] for name in names):
        if not new:
            code_versions.add(stage.name, *stage.digests)
            print(f"{stage.name}: this code counts as {state_of(stage)[1]}, with the same results; nothing runs again")
            continue
        version = code_versions.begin(stage.name, stage.digests, when, unless)
        if results:
            note_results(version.label, results)
        print(f"{stage.name}: this code begins {version.label}; {stage.name} and what depends on it run again")


def run(args: argparse.Namespace) -> None:
    """List all stages with their versions, or accept the stages that are named."""
    if args.stages or args.new:
        accept(args.stages, args.new, args.results, limits(args.when), limits(args.unless, "--unless"))
        return
    states = {stage.name: state_of(stage) for stage in STAGES.values()}
    for name, (_, state) in states.items():
        print(f"{name:<12} {state}")
    if unknown := [name for name, (known, _) in states.items() if not known]:
        names = " ".join(unknown)
        print(
            f"If your edits change no result: babelmill accept {names}\n"
            f'If they do: babelmill accept --new {names} --results "what changes, for users"'
        )
    else:
        print("Each stage's code is known: there is nothing to accept.")
