"""Find which evaluation suites a model is scored on, and where their pairs come from."""

import functools
import glob
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from babelmill.config.layers import SUITES as FILES
from babelmill.config.layers import config_file, nearest
from babelmill.config.objectives import OBJECTIVES
from babelmill.config.resolve import Configuration
from babelmill.config.schema import ITEM_KEYS, Suite, Task
from babelmill.core.escape import some
from babelmill.core.files import UserError, sha256
from babelmill.core.local_sources import expand_glob, files_of, snapshot

OF_SCORING = {"scored", "score", "ties", "unknown"}  # the keys of items that the stage `score` reads
OF_CHALLENGE = ("full_eval", "fast_eval", "multilingual", "universal_dependencies")  # folders in `evaluation_data`
DATA = "{evaluation_data}/"  # begins the path of a task's file in the challenge's folder
SHIPPED = "babelmill:"  # begins the name of a file of `config/suites/`, which each clone has


def code_in_suite(configuration: Configuration, suite: Suite | Task, code: str) -> str:
    """Return the code under which a suite or task covers a language; "" if it does not.

    A suite of English covers every text in English (`languages.NAME.language`).
    """
    codes = (code, configuration.language(code).language_code)
    return next((each for each in codes if each in suite.covered), "")


def baselines_of(configuration: Configuration, suite: Suite, codes: Iterable[str]) -> list[dict[str, Any]]:
    """Return the published scores on a suite; those in a language count for each of `codes` that is a text in it."""
    texts = [code for code in codes if configuration.language(code).language]
    found = [each.model_dump() for each in suite.baselines]
    return found + [
        each | {"language": code}
        for code in texts
        for each in found
        if each["language"] == configuration.language(code).language_code
    ]


def suites_of_model(configuration: Configuration, model: str) -> list[str]:
    """Return the suites that score a model, or its snapshots alone, and that cover one of its languages."""
    resolved = configuration.model(model)
    if not OBJECTIVES[resolved.train.objective].sentences:
        return []
    asked = dict.fromkeys([*resolved.evaluation.suites, *resolved.evaluation.snapshot_suites])
    return [name for name in asked if languages_of_suite(configuration, model, name)]


def scores_asked(configuration: Configuration, model: str) -> tuple[int, int]:
    """Return how many suites score a model, and how many of these score each of its snapshots, too."""
    evaluation, suites = configuration.model(model).evaluation, suites_of_model(configuration, model)
    return len(suites), sum(evaluation.snapshots or name in evaluation.snapshot_suites for name in suites)


def languages_of_suite(configuration: Configuration, model: str, name: str) -> list[str]:
    """Return the languages of a model that a suite covers."""
    suite = configuration.suite(name)
    return [code for code in configuration.languages_of(model) if code_in_suite(configuration, suite, code)]


def suites_of_corpus(configuration: Configuration, code: str) -> list[str]:
    """Return the suites, sorted, whose items no document of a language may hold."""
    asked = sorted({*configuration.corpus(code).corpus.decontaminate})
    return [name for name in asked if code_in_suite(configuration, configuration.suite(name), code)]


def pairs_of_suite(configuration: Configuration, code: str, name: str) -> dict[str, Any]:
    """Return the content of the settings of the stage `suite`: the suite, its files, and how they are read.

    A UserError says that the suite has no pairs of the language, or that a file does not exist or lacks a column.
    """
    suite = configuration.suite(name)
    if not (covered := code_in_suite(configuration, suite, code)):
        raise UserError(f"the suite {name} has no pairs of {code}{nearest(code, suite.covered)}")
    challenge = folder_of_challenge(configuration) if suite.challenge_files else ""
    files = in_challenge(challenge, suite.challenge_files_of(covered))
    if suite.files and not any(expand_glob(pattern) for pattern in files):
        challenge, files = "", suite.files_of(covered)
    keys = {"good", "bad", "phenomenon", "paradigm", "delimiter", "encoding", "quoting"}
    columns = suite.model_dump(include=keys)
    asked: dict[str, Any] = {"suite": name, "columns": {key: value for key, value in columns.items() if value}}
    if suite.kind != "pairs":
        asked["kind"] = suite.kind
        asked["items"] = suite.model_dump(include=set(ITEM_KEYS[suite.kind]) - OF_SCORING, exclude_defaults=True)
    if challenge:
        where = f"{configuration.origin('evaluation_data')}: evaluation_data: {name}"
        return asked | {"sources": dict(_snapshot(tuple(files), where))}
    if not files:
        raise lacks_evaluation_data(configuration, code)
    if not suite.repository and name not in configuration.top.suites:
        return asked | {"sources": shipped_sources(files, code, name)}
    if not suite.repository:
        return asked | {"sources": dict(_snapshot(tuple(files), configuration.origin_of_name(name)))}
    return asked | {"files": files, "source": {"repository": suite.repository, "revision": suite.revision}}


def how_scored(suite: Suite) -> dict[str, Any]:
    """Return the fields of the settings of the stage `score` that a suite of pairs leaves at their defaults."""
    return suite.model_dump(include={"kind", *OF_SCORING}, exclude_defaults=True)


def folder_of_challenge(configuration: Configuration) -> str:
    """Return `evaluation_data`, "" if it is not set; raise a UserError if there is no such folder."""
    folder = configuration.top.evaluation_data.rstrip("/")
    if folder and not any(Path(folder, name).is_dir() for name in OF_CHALLENGE):
        where = configuration.origin("evaluation_data")
        raise UserError(f"{where}: evaluation_data = {folder!r}: a folder with {' or '.join(OF_CHALLENGE)} is expected")
    return folder


def lacks_evaluation_data(configuration: Configuration, code: str) -> UserError:
    """Return the error for a model of a language whose suites and tasks need `evaluation_data`, which is not set."""
    for model in configuration.models_reading(code):
        evaluation = configuration.model(model).evaluation
        names = dict.fromkeys([*evaluation.suites, *evaluation.snapshot_suites])
        needed = [name for name in names if not configuration.suite(name).files]
        for name in evaluation.tasks:
            task = configuration.task(name)
            needed += [name] if any(pattern.startswith(DATA) for pattern in task.train + task.test) else []
        if needed:
            where = configuration.model(model).origins["evaluation.suites"]
            return UserError(
                f"{where}: evaluation_data = '': the BabyLM challenge's folder of this name is expected, from which"
                f" model {model} needs {some(needed, 30)}"
            )
    return UserError(f"evaluation_data = '': the BabyLM challenge's folder of this name is expected, for {code}")


def in_challenge(folder: str, patterns: list[str]) -> list[str]:
    """Return the globs of files in the challenge's folder; none if it is not known."""
    return [f"{glob.escape(folder)}/{pattern}" for pattern in patterns] if folder else []


def shipped_sources(files: list[str], code: str, name: str) -> dict[str, Any]:
    """Return the `sources` of a suite whose files are in `config/suites/`: their content, not where this clone is."""
    paths = [Path(path) for file in files for path in files_of(file, f"the suite {name}:")]
    return {
        f"{SHIPPED}{path.name}": {"files": 1, "bytes": path.stat().st_size, "sha256": sha256(path)} for path in paths
    }


def located(source: str) -> list[str]:
    """Return the files that an entry of a suite's `sources` stands for."""
    if source.startswith(SHIPPED):
        return [str(config_file(f"{FILES}{source.removeprefix(SHIPPED)}"))]
    return files_of(source, "suite")


@functools.cache
def _snapshot(files: tuple[str, ...], where: str) -> dict[str, Any]:
    return snapshot(dict.fromkeys(files, where), "suite")
