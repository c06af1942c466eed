"""Say what settings files hold of suites and tasks: where their items and rows come from, and how they are used."""

import glob
import os
from pathlib import Path
from typing import Any

from babelmill.config.entries import ITEM_KEYS, Suite, Task
from babelmill.config.layers import SUITES, TASKS, config_file, config_names, nearest
from babelmill.config.resolve import SOUND, Configuration
from babelmill.config.submissions import numbers_of
from babelmill.core.escape import some
from babelmill.core.files import UserError, sha256
from babelmill.core.local_sources import expand_glob, files_of, matched

OF_SCORING = {"scored", "score", "ties", "unknown"}  # the keys of items that the stage `score` reads
OF_ITEMS = {*ITEM_KEYS["choices"], "phenomenon", "paradigm"} - OF_SCORING  # those that the stage `suite` reads
OF_FORM = {"delimiter", "encoding", "quoting"}
OF_CHALLENGE = ("full_eval", "fast_eval", "multilingual", "universal_dependencies")  # folders in `evaluation_data`
DATA = "{evaluation_data}/"  # begins the path of a task's file in the challenge's folder
SHIPPED = "babelmill:"  # begins the name of a file of `config/suites/`, which each clone has


def folder_of_challenge(configuration: Configuration) -> str:
    """Return `evaluation_data`, "" if it is not set; raise a UserError if there is no such folder."""
    folder = configuration.top.evaluation_data.rstrip("/")
    if folder and not any(Path(folder, name).is_dir() for name in OF_CHALLENGE):
        where = f"{configuration.origin('evaluation_data')}: evaluation_data = {folder!r}"
        what = f"has none of {', '.join(OF_CHALLENGE)}" if Path(folder).is_dir() else "no such folder"
        raise UserError(f"{where}: {what}; docs/challenge.md says where to get it, and how to do without")
    return folder


def require_evaluation_data(configuration: Configuration, model: str) -> None:
    """Raise a UserError that lists all files of the challenge which a model needs, and which are not there.

    For each suite and task, it says which of the leaderboard's numbers they are for, and which archive only has to be
    unpacked.
    """
    folder, resolved = folder_of_challenge(configuration), configuration.model(model)
    needed: dict[str, list[str]] = {}
    of_suites = [(name, code) for name, codes in resolved.scored.items() for code in codes]
    of_suites += [(name, code) for code in resolved.languages for name in configuration.corpus(code).suites]
    for name, code in of_suites:
        suite = configuration.suite(name)
        if not suite.files:
            files = suite.of_language(suite.challenge_files, configuration.code_in(suite, code))
            needed.setdefault(name, []).extend(files)
    for name, codes in resolved.tuned.items():
        task = configuration.task(name)
        named = [pattern.removeprefix(DATA) for pattern in task.train + task.test if pattern.startswith(DATA)]
        needed[name] = [each for code in codes for each in task.of_language(named, configuration.code_in(task, code))]
    lines = []
    for name, patterns in needed.items():
        missing = [p for p in dict.fromkeys(patterns) if not folder or not expand_glob(f"{glob.escape(folder)}/{p}")]
        if missing:
            numbers = f" ({', '.join(found)})" if (found := numbers_of(resolved, name)) else ""
            lines.append(f"  {name}{numbers}: {', '.join(missing)}{_archive_of(folder, missing[0])}")
    if lines:
        where = configuration.origin("evaluation_data") if folder else resolved.origins["evaluation.suites"]
        said = (
            f"{where}: evaluation_data = {folder!r}: model {model} needs files of the BabyLM challenge that are missing"
        )
        where_from = "docs/challenge.md says where to get them, and how to do without"
        raise UserError("\n".join([f"{said} ({where_from}):", *lines]))


def _archive_of(folder: str, pattern: str) -> str:
    """Return that an archive with the files of a pattern only has to be unpacked, if there is one; else nothing."""
    place = Path(folder, pattern).parent
    archives = [*place.parent.glob(f"{glob.escape(place.name)}.*"), *place.glob("*.zip")] if folder else []
    return f"; {archives[0]} is there: unpack it" if archives else ""


# Suites.


def how_scored(suite: Suite) -> dict[str, Any]:
    """Return the fields of the settings of the stage `score` that a suite of pairs leaves at their defaults."""
    return suite.model_dump(include={"kind", *OF_SCORING}, exclude_defaults=True)


def items_of_suite(configuration: Configuration, code: str, name: str) -> dict[str, Any]:
    """Return the content of the settings of the stage `suite`: the suite, its files, and how they are read.

    A UserError says that the suite has no pairs of the language, or that a file does not exist.
    """
    suite = configuration.suite(name)
    if not (covered := configuration.code_in(suite, code)):
        raise UserError(f"the suite {name} has no pairs of {code}{nearest(code, suite.covered)}")
    form, items, kind = (
        suite.model_dump(include=keys, exclude_defaults=True) for keys in (OF_FORM, OF_ITEMS, {"kind"})
    )
    asked: dict[str, Any] = {"suite": name, "form": form, "items": items, **kind}
    if suite.kind == "pairs":
        items["options"] = suite.pair
    folder = folder_of_challenge(configuration) if suite.challenge_files else ""
    files = suite.of_language(suite.challenge_files, covered) if folder else []
    files = [f"{glob.escape(folder)}/{each}" for each in files]
    if files and (any(map(expand_glob, files)) or not suite.files):
        where = f"{configuration.origin('evaluation_data')}: evaluation_data: {name}"
        return asked | {"sources": {file: matched(file, f"{where}: suite file") for file in files}}
    if not (files := suite.of_language(suite.files, covered)):
        raise UserError(f"evaluation_data = '': the suite {name} needs the BabyLM challenge's folder of this name")
    if suite.repository:
        return asked | {"files": files, "source": {"repository": suite.repository, "revision": suite.revision}}
    if name in configuration.top.suites:
        where = configuration.origin_of_name(name)
        return asked | {"sources": {file: matched(file, f"{where}: suite file") for file in files}}
    paths = [Path(path) for file in files for path in files_of(file, f"the suite {name}:")]
    found = {p.name: {"files": 1, "bytes": p.stat().st_size, "sha256": sha256(p)} for p in paths}
    return asked | {"sources": {f"{SHIPPED}{file}": each for file, each in found.items()}}  # not where this clone is


def located(source: str) -> list[str]:
    """Return the files that an entry of a suite's `sources` stands for."""
    if source.startswith(SHIPPED):
        return [str(config_file(f"{SUITES}{source.removeprefix(SHIPPED)}"))]
    return files_of(source, "suite")


# Tasks.


def task_note(configuration: Configuration, model: str) -> str | None:
    """Return a note on the tasks for which a model is not fine-tuned, since they have none of its languages."""
    resolved = configuration.model(model)
    left_out = [name for name in resolved.evaluation.tasks if name not in resolved.tuned]
    if not left_out or resolved.learns_labels:
        return None
    return f"not fine-tuned for {some(left_out)} (evaluation.tasks), since they have no rows in its languages."


def how_tuned(configuration: Configuration, name: str) -> dict[str, Any]:
    """Return the part of the settings of the stage `tune` that the task and its protocol decide."""
    about = configuration.task(name)
    tuning = configuration.tuning(name).model_dump(exclude={"title", "seeds"}, exclude_defaults=True)
    found = {"task": name, "metric": about.metric, "protocol": about.protocol, "tuning": tuning}
    return found | about.model_dump(include={"kind", "joint"}, exclude_defaults=True)


def about_task(configuration: Configuration, name: str) -> dict[str, Any]:
    """Return how a task and its protocol are called."""
    task, tuning = configuration.task(name), configuration.tuning(name)
    about = {"title": task.title or name, "protocol": tuning.title}
    return about | ({"kind": task.kind} if task.kind == "tagging" else {})


def rows_of_task(configuration: Configuration, code: str, name: str) -> dict[str, Any]:
    """Return the content of the settings of the stage `task`: the task, how its files are read, and where they are.

    A UserError says that the task has no rows of the language, or a file does not exist.
    """
    task = configuration.task(name)
    if not (covered := configuration.code_in(task, code)):
        raise UserError(f"the task {name} has no rows of {code}{nearest(code, task.covered)}")
    of_words = task.kind == "tagging"
    keys = {"word", "label"} if of_words else {"text", "pair", "label", "delimiter", "encoding"}
    asked: dict[str, Any] = {"task": name}
    asked["columns"] = {key: str(value) for key, value in task.model_dump(include=keys).items() if value}
    asked |= task.model_dump(include={"kind"}, exclude_defaults=True)
    asked |= {"spans": True} if task.metric == "span_f1" else {}
    asked |= {"resplit": task.resplit.model_dump()} if task.resplit else {}
    files = {split: _files_of_task(configuration, name, covered, split) for split in ("train", "test")}
    where = _place(configuration, task, name)
    if task.repository:
        asked["source"] = {"repository": task.repository, "revision": task.revision}
    else:
        label, file_format = f"{where.rstrip('.: ')}: task file", "txt" if of_words else None
        asked["sources"] = {each: matched(each, label, file_format) for each in [*files["train"], *files["test"]]}
    train, test = (
        each if task.repository else [os.path.realpath(path) for pattern in each for path in expand_glob(pattern)]
        for each in files.values()
    )
    if not task.resplit and (both := sorted({*train} & {*test})):
        raise UserError(f"{where}test = {both[0]}: another file than those of `train` is expected")
    return asked | {"files": files}


def _files_of_task(configuration: Configuration, name: str, covered: str, split: str) -> list[str]:
    """Return the globs of a split of a task in a language."""
    task, folder = configuration.task(name), folder_of_challenge(configuration)
    patterns = task.of_language(getattr(task, split), covered)
    if not folder and any(pattern.startswith(DATA) for pattern in patterns):
        raise UserError(f"evaluation_data = '': the task {name} needs the BabyLM challenge's folder of this name")
    return [f"{glob.escape(folder)}/{p.removeprefix(DATA)}" if p.startswith(DATA) else p for p in patterns]


def _place(configuration: Configuration, task: Task, name: str) -> str:
    """Return the beginning of errors about a task, before a key of it: where the user may change what is wrong."""
    bare = name.removesuffix(SOUND)
    if {name, bare} & configuration.top.tasks.keys():
        return f"{configuration.origin_of_name(name)}: tasks.{name}."
    if any(pattern.startswith(DATA) for pattern in task.train + task.test):
        return f"{configuration.origin('evaluation_data')}: evaluation_data: {name}."
    return f"{TASKS}{name if name in config_names(TASKS, configuration.root) else bare}.yaml: "
