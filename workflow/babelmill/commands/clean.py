"""List the checkpoint folders, and with `--remove` delete those that no setting uses.

    babelmill clean             # list them
    babelmill clean --remove    # delete the unused ones

A finished run keeps its last checkpoint, so that going back to earlier settings takes seconds; this costs disk space,
which this command frees. A folder is in use if the present settings, version and data would train in it, and held if
a process is training in it now; both stay. For others, the command says how they differ from what would be trained now.
"An edit away" means that a few settings differ: if you set them back, training uses the folder again.

Folders of unfinished fine-tunings are listed, too: those of tasks and seeds that a model is not tuned for are unused.

What `run.checkpoints` keeps elsewhere stays; a line names the place.

It also lists what processes that were killed (kill -9) left half-written beside the results (the next run of the stage
deletes the same files), and files in `results/store` that no model uses any more.
"""

import argparse
import contextlib
import os
import stat
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from babelmill.config import loading
from babelmill.config.resolve import Configuration
from babelmill.core import escape
from babelmill.core.files import UserError, leftovers, read_json
from babelmill.core.files import remove as delete
from babelmill.graph import CHECKPOINTS, changed_values, run_of
from babelmill.runtime import store
from babelmill.runtime.record import fingerprint
from babelmill.runtime.run_lock import Lock
from babelmill.settings import settings_of
from babelmill.stages import STAGES

PLACES = [
    Path(name)
    for name in ("results", "converted", "predictions", "published", "reports", "experiments", "scores", "config")
]
TUNINGS = Path("results/tuning")
FEW = 3  # up to this many settings that differ are named


def unused(configuration: Configuration, folder: Path) -> str | None:
    """Return why the present settings would not train in a run's folder; None if they would.

    If the data is missing, only the settings are compared.
    """
    model = folder.parent.name
    if not configuration.is_model(model):
        return "no model has this name"
    settings = settings_of(configuration, model, "train")
    now = run_of(settings, configuration.model(model).source)
    if now and fingerprint(now) == folder.name:
        return None
    path = folder / "identity.json"
    recorded = read_json(path) if path.is_file() else {}
    try:
        before, data = recorded["settings"], recorded["data"]
        if before == settings and not now:
            return None
        return difference(before, settings, data, now["data"] if now else data)
    except (AttributeError, KeyError, TypeError):
        return f"{path} has no record of settings and data"


def unused_tuning(configuration: Configuration, folder: Path) -> str | None:
    """Return why the present settings do not ask for a fine-tuning in results/tuning; None if they do."""
    model, task, seed = folder.parts[-3:]
    if not configuration.is_model(model):
        return "no model has this name"
    asked = f"{task}.{seed}" in STAGES["tune"].parts(configuration, model)
    return None if asked else f"{model} is not tuned for it"


def difference(before: dict[str, Any], settings: dict[str, Any], data: dict[str, Any], data_now: dict[str, Any]) -> str:
    """Return how a run differs from what would be trained now: in data, version, or settings (a few are named)."""
    if other := sorted(key for key in data.keys() | data_now.keys() if data.get(key) != data_now.get(key)):
        settings_too = "the present settings, but " if before == settings else ""
        return f"made with {settings_too}other data: {escape.some(other)}"
    if before["version"] != settings["version"]:
        return f"made by version {before['version']} of stage train, now {settings['version']}"
    changed = changed_values(before, settings)
    return f"an edit away: {'; '.join(changed)}" if len(changed) <= FEW else f"{len(changed)} settings differ"


def files_of(path: Path) -> list[os.stat_result]:
    """Return what the file system says about a file, or about all files in a folder. (What links lead to stays.)"""
    found = [each.lstat() for each in [path, *path.rglob("*")]]
    return [about for about in found if stat.S_ISREG(about.st_mode)]


def size_of(files: list[os.stat_result], all_names: bool = False) -> int:
    """Return the bytes of files. One that has several names (hard links) counts once.

    `all_names`: a file counts only if all of its names are among the files, so that deleting them frees its bytes.
    """
    names = Counter(map(identity_of, files))
    each = {identity_of(about): about for about in reversed(files)}  # the first name was seen before any was deleted
    return sum(about.st_size for key, about in each.items() if not all_names or names[key] >= about.st_nlink)


def identity_of(about: os.stat_result) -> tuple[int, int]:
    """Return what all names of a file have in common."""
    return about.st_dev, about.st_ino


def clean(configuration: Configuration, remove: bool) -> None:
    """Print each folder with its size and state; delete the unused ones if `remove`, and what killed processes left."""
    freed: list[os.stat_result] = []
    seen: set[tuple[int, int]] = set()

    def show(path: Path, state: str | None, note: str) -> None:
        """Print a line. `state`: why a file or folder stays; None if nothing uses it, so that it is deleted."""
        files = files_of(path)
        if again := size_of([about for about in files if identity_of(about) in seen]):
            note = f"{note}  {again / 2**20:,.1f} MiB of it are hard links to files of a folder above".strip()
        seen.update(map(identity_of, files))
        if remove and not state:
            delete(path)
        there = os.path.lexists(path)
        if not state and not (remove and there):
            freed.extend(files)
        shown = state or ("unused" if not remove else "could not be removed" if there else "removed")
        print(f"{size_of(files) / 2**20:10,.1f} MiB  {shown:<8}  {path}  {note}".rstrip())

    elsewhere = places_elsewhere(configuration)
    for path in leftovers(PLACES, deep=True):
        show(path, None, "a killed process left it")
    for path, models in store.files():
        show(path, "in use" if models else None, f"by {len(models)} results" if models else "no model uses it")
    seen.clear()  # folders are compared with each other
    for folder in folders(CHECKPOINTS.glob("*/*")) + (of_tunings := folders(TUNINGS.glob("*/*/*"))):
        reason = unused_tuning if folder in of_tunings else unused
        if holder := Lock(folder).holder():
            show(folder, f"held by {holder}", "")
        else:
            why = reason(configuration, folder)
            show(folder, None if why else "in use", why or "")
    for url in elsewhere:
        print(f"{url}: not looked at; delete there what you no longer need ({url}/MODEL/RUN, named as above)")
    verb = "freed" if remove else "would be freed by --remove"
    print(f"{size_of(freed, all_names=True) / 2**20:10,.1f} MiB  {verb}")


def places_elsewhere(configuration: Configuration) -> list[str]:
    """Return what `run.checkpoints` is for the models, except those whose settings are wrong."""
    found = set()
    for name in {*configuration.targets(), *configuration.top.models}:
        with contextlib.suppress(UserError):
            found.add(configuration.model(name).run.checkpoints)
    return sorted(found - {None})


def folders(paths: Iterable[Path]) -> list[Path]:
    """Return the folders among some paths, sorted."""
    return sorted(path for path in paths if path.is_dir())


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("--remove", action="store_true", help="delete what is unused or half-written")
    loading.add_arguments(parser)


def run(args: argparse.Namespace) -> None:
    """List the checkpoint folders; with `--remove`, delete those that no setting uses."""
    clean(loading.from_arguments(args), args.remove)
