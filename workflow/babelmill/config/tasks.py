"""Find which tasks a model is fine-tuned for, by which protocol, with which seeds, and where their rows come from."""

import glob
import os
from typing import Any

from babelmill.config.layers import TASKS as FILES
from babelmill.config.layers import config_names, nearest
from babelmill.config.resolve import SOUND, Configuration
from babelmill.config.schema import Task
from babelmill.config.suites import DATA, code_in_suite, folder_of_challenge, lacks_evaluation_data
from babelmill.core.escape import some
from babelmill.core.files import UserError
from babelmill.core.local_sources import expand_glob, snapshot


def tasks_of_model(configuration: Configuration, model: str) -> list[str]:
    """Return the tasks of `evaluation.tasks` that cover one of a model's languages."""
    resolved = configuration.model(model)
    if resolved.train.objective == "labels":
        return []
    left_out = tasks_left_out(configuration, model)
    return [name for name in resolved.evaluation.tasks if name not in left_out]


def tasks_left_out(configuration: Configuration, model: str) -> list[str]:
    """Return the tasks of `evaluation.tasks` that cover none of a model's languages."""
    asked = configuration.model(model).evaluation.tasks
    return [name for name in asked if not languages_of_task(configuration, model, name)]


def task_note(configuration: Configuration, model: str) -> str | None:
    """Return a note on the tasks for which a model is not fine-tuned, since they have none of its languages."""
    resolved = configuration.model(model)
    if resolved.train.objective == "labels" or not (left_out := tasks_left_out(configuration, model)):
        return None
    return f"not fine-tuned for {some(left_out)} (evaluation.tasks), since they have no rows in its languages."


def languages_of_task(configuration: Configuration, model: str, name: str) -> list[str]:
    """Return the languages of a model that a task covers."""
    task = configuration.task(name)
    return [code for code in configuration.languages_of(model) if code_in_suite(configuration, task, code)]


def seeds_of_task(configuration: Configuration, model: str, name: str) -> list[int]:
    """Return the seeds with which a model is tuned for a task: `evaluation.task_seeds`, or those of the protocol."""
    return configuration.model(model).evaluation.task_seeds or configuration.tuning(name).seeds


def how_tuned(configuration: Configuration, name: str) -> dict[str, Any]:
    """Return the part of the settings of the stage `tune` that the task and its protocol decide."""
    about = configuration.task(name)
    tuning = configuration.tuning(name).model_dump(exclude={"title", "seeds"}, exclude_defaults=True)
    found = {"task": name, "metric": about.metric, "protocol": about.protocol, "tuning": tuning}
    return found | _new_keys(about) | ({"joint": True} if about.joint else {})


def _new_keys(task: Task) -> dict[str, Any]:
    """Return the kind of a task; nothing for a classification, so that settings files stay as they were."""
    return {"kind": task.kind} if task.kind == "tagging" else {}


def rows_of_task(configuration: Configuration, code: str, name: str) -> dict[str, Any]:
    """Return the content of the settings of the stage `task`: the task, how its files are read, and where they are.

    A UserError says that the task has no rows of the language, or a file does not exist.
    """
    task = configuration.task(name)
    if not (covered := code_in_suite(configuration, task, code)):
        raise UserError(f"the task {name} has no rows of {code}{nearest(code, task.covered)}")
    of_words = task.kind == "tagging"
    keys = {"word", "label"} if of_words else {"text", "pair", "label", "delimiter", "encoding"}
    columns = task.model_dump(include=keys)
    files = {split: files_of(configuration, task, code, covered, split) for split in ("train", "test")}
    asked: dict[str, Any] = {"task": name, "columns": {key: str(value) for key, value in columns.items() if value}}
    asked |= _new_keys(task) | ({"spans": True} if task.metric == "span_f1" else {})
    if task.resplit:
        asked["resplit"] = task.resplit.model_dump()
    where = _place(configuration, task, name)
    if task.repository:
        _refuse_same(task, files, where)
        return asked | {"files": files, "source": {"repository": task.repository, "revision": task.revision}}
    patterns = dict.fromkeys(pattern for each in files.values() for pattern in each)
    label = where.rstrip(".: ")
    sources = snapshot(dict.fromkeys(patterns, label), "task", "txt" if of_words else None)
    paths = {split: [path for each in found for path in expand_glob(each)] for split, found in files.items()}
    _refuse_same(task, paths, where)
    return asked | {"files": files, "sources": sources}


def _place(configuration: Configuration, task: Task, name: str) -> str:
    """Return the beginning of errors about a task, before a key of it: where the user may change what is wrong."""
    bare = name.removesuffix(SOUND)
    if {name, bare} & configuration.top.tasks.keys():
        return f"{configuration.origin_of_name(name)}: tasks.{name}."
    if any(pattern.startswith(DATA) for pattern in task.train + task.test):
        return f"{configuration.origin('evaluation_data')}: evaluation_data: {name}."
    return f"{FILES}{name if name in config_names(FILES, configuration.root) else bare}.yaml: "


def files_of(configuration: Configuration, task: Task, code: str, covered: str, split: str) -> list[str]:
    """Return the globs of a split in a language; raise a UserError if the challenge's folder is not configured."""
    patterns = [pattern.replace("{language}", task.covered[covered]) for pattern in getattr(task, split)]
    folder = folder_of_challenge(configuration)
    if not folder and any(pattern.startswith(DATA) for pattern in patterns):
        raise lacks_evaluation_data(configuration, code)
    return [f"{glob.escape(folder)}/{p.removeprefix(DATA)}" if p.startswith(DATA) else p for p in patterns]


def _refuse_same(task: Task, files: dict[str, list[str]], where: str) -> None:
    """Raise a UserError if a file is both trained and tested on, unless its rows are divided anew."""
    trained = {os.path.realpath(path) for path in files["train"]}
    for path in files["test"] if not task.resplit else ():
        if os.path.realpath(path) in trained:
            raise UserError(f"{where}test = {path}: another file than those of `train` is expected")
