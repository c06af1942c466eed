"""Find a model that a user names for a command, and the suites and tasks that `score` and `tune` need for it.

MODEL is a folder, a model in converted/, or a repository on the Hub. Suites and tasks are those of the configuration,
in the languages that the user asks for. They are the workflow's results, made here if they are not there.
"""

import argparse
import dataclasses
import difflib
import importlib
import logging
import os
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from babelmill import __version__
from babelmill.config import loading
from babelmill.config.models import check_layers, lacks_config
from babelmill.config.snapshots import FOLDER
from babelmill.core import escape, manifest
from babelmill.core.files import UserError, read_object, sha256
from babelmill.core.stage_entry import Job
from babelmill.graph import Graph
from babelmill.stages import ScoreStage, TuneStage

log = logging.getLogger("babelmill.by_hand")
CONVERTED = Path("converted")
OWN_FOLDERS = ("converted", "results")  # a name that begins with one of these is not a repository


def add_arguments(parser: argparse.ArgumentParser, out: str) -> None:
    """Declare the arguments that name and load a model, and say where the results go (by default to `out`)."""
    add = parser.add_argument
    model = "a folder, such as converted/eng (or just eng), or a repository on the Hub"
    add("model", metavar="MODEL", type=os.path.expanduser, help=model)
    add("--revision", default="main", help="read this branch, tag or commit of the repository (default: main)")
    add("--trust-remote-code", action="store_true", help="allow the Python code in the model's folder to run")
    add("--language", nargs="+", metavar="CODE", help="use these languages, if a suite or task has several")
    add("--out", type=Path, metavar="FOLDER", help=f"write here (default: {out})")
    loading.add_arguments(parser)


def model_folder(args: argparse.Namespace, models: Collection[str] = ()) -> tuple[Path, dict[str, Any], str]:
    """Return the folder of the model, its origin and its name. Raise a UserError if it may not be loaded.

    `models`: names of the configuration. The Hub is not asked for such a name, even if the model is not finished.
    """
    folder = converted_folder(args.model)
    if not folder.is_dir() and args.model in models:
        folder = CONVERTED / args.model
    local = folder.is_dir()
    if not local and (folder.parts[0] in OWN_FOLDERS or (folder.parent != Path() and folder.parent.is_dir())):
        unfinished = "; is the model finished? (`babelmill status`)"
        hint = "" if folder.name in models else meant(folder.name, models)
        raise UserError(f"{folder}: no such folder{hint or unfinished}")
    if not local:
        name = args.model.replace("/", "--")
        try:
            folder, origin = fetched(args.model, args.revision, args.trust_remote_code)
        except UserError as error:
            raise UserError(f"{error}{meant(args.model, models)}") from None
    elif (folder / "config.json").is_file():
        whole = folder.resolve()  # the name of a snapshot begins with that of its model
        name = f"{whole.parents[1].name}--{whole.name}" if whole.parent.name == FOLDER else whole.name
        digests = {path.name: sha256(path) for path in sorted(folder.iterdir()) if path.is_file()}
        origin = {"folder": str(folder), "files": digests}
    else:
        raise UserError(f"{folder}: {lacks_config(folder)}")
    config = read_object(folder / "config.json")
    if local and (folder / manifest.NAME).is_file():
        manifest.verify(folder)  # this workflow has written its code
    elif "auto_map" in config and not args.trust_remote_code:
        raise UserError(f"{folder}: contains Python code that would be run: read it, then add --trust-remote-code")
    check_layers(config, args.model)
    return folder, origin, name


def converted_folder(text: str) -> Path:
    """Return the folder that a user names; the name of a converted model stands for its folder in converted/."""
    folder, converted = Path(os.path.expanduser(text)), CONVERTED / text
    return converted if len(folder.parts) == 1 and not folder.is_dir() and converted.is_dir() else folder


def meant(name: str, models: Collection[str] = ()) -> str:
    """Return a hint such as `; did you mean eng?` if a model here has a similar name, else nothing."""
    near = difflib.get_close_matches(name, {*models, *(path.name for path in CONVERTED.glob("*") if path.is_dir())})
    return f"; did you mean {' or '.join(near)}?" if near else ""


def fetched(repository: str, revision: str, code: bool) -> tuple[Path, dict[str, Any]]:
    """Fetch the files of a model from the Hub; return their folder, and where they come from."""
    from babelmill.hub.files import of_repository
    from babelmill.hub.sources import MODEL, resolve
    from babelmill.release.elsewhere.foreign_model import files_to_load, require_config

    instead = "name a folder, or another repository"
    use = dataclasses.replace(MODEL, key="MODEL", revision_key="--revision", instead=instead)
    commit = resolve(use, repository, revision)
    files = of_repository(use, repository, commit, revision)
    require_config(files)
    names = files_to_load(files) + [name for name in files.names if code and name.endswith(".py")]
    log.info("%s at %s", repository, commit)
    return files.get(names)["config.json"].parent, files.figures


def languages_asked(graph: Graph, stage: str, name: str, covered: Iterable[str], asked: list[str] | None) -> list[str]:
    """Return the languages that a user asks for, or the only one that a suite or task has items of.

    `stage`: "suite" or "task". A UserError says that there are none in a language.
    """
    languages = asked or list(covered)
    if not asked and len(languages) > 1:
        known = escape.some(languages)
        raise UserError(f"the {stage} {name} has several languages: add --language with one or more of {known}")
    for code in asked or ():
        graph.result(stage, code, name)
    return languages


def made_by_hand(graph: Graph, stage: str, languages: list[str], part: str) -> list[str]:
    """Return the folders of a suite or task (`part`) in some languages, made from the present settings."""
    results = [graph.result(stage, code, part) for code in languages]
    run = importlib.import_module(f"babelmill.{stage}").run
    for result in results:
        if not result.is_there:
            graph.write(result)
            run(Job(result.stage, result.settings_file, 1, 0, argparse.Namespace()))
    return [result.path.as_posix() for result in results]


def is_done(out: Path, settings: ScoreStage | TuneStage) -> bool:
    """Return whether a folder has the results of these settings, by this release.

    A UserError says that it has those of a model from elsewhere.
    """
    if not (out / manifest.NAME).is_file():
        return False
    about = manifest.read(out)
    there = about["settings"].get("origin", {})
    if any(there.get(key) != settings.origin.get(key) for key in ("folder", "repository")):
        whose = there.get("folder") or there.get("repository") or "another model"
        raise UserError(f"{out}: holds the scores of {whose}; name another folder with --out, or delete this folder")
    done = (about["version"], about["settings"]) == (__version__, settings.raw) and not manifest.missing(out)
    if done:
        log.info("%s is finished", out)
    return done


def quiet_transformers() -> None:
    """Let transformers print errors alone."""
    from transformers.utils import logging as of_transformers  # takes seconds

    of_transformers.disable_progress_bar()
    of_transformers.set_verbosity_error()
