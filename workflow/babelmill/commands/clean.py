"""`babelmill clean`: list the checkpoint folders, and with `--remove` delete those that no setting uses.

A finished run keeps its last checkpoint, so that going back to earlier settings costs seconds and disk space. This
command frees that space. A folder is in use if the present configuration, code and data would train in it, and held if
a process is training in it now; both stay.
"""

import argparse
import shutil
from pathlib import Path

from babelmill.config import loading
from babelmill.config.resolve import Configuration
from babelmill.core.files import read_json
from babelmill.runtime.identity import fingerprint, identity
from babelmill.runtime.run_lock import Lock
from babelmill.settings import settings_of
from babelmill.stages import STAGES

RESULTS = Path("results")


def in_use(configuration: Configuration, folder: Path) -> bool:
    """Whether the present settings would train in a run's folder. Where the data is missing the settings decide."""
    model = folder.parent.name
    if not configuration.is_model(model):
        return False
    settings = settings_of(configuration, model, "train")
    tokenizer = STAGES["tokenizer"].path(model, "")
    shards = [STAGES["shards"].path(model, language) for language in configuration.languages_of(model)]
    if all((source / "manifest.json").is_file() for source in (tokenizer, *shards)):
        return fingerprint(identity(settings, tokenizer, shards)) == folder.name
    return (folder / "identity.json").is_file() and read_json(folder / "identity.json")["settings"] == settings


def clean(configuration: Configuration, remove: bool) -> None:
    """Print each folder with its size and state; remove the unused ones if asked."""
    unused = 0
    for folder in sorted(path for path in (RESULTS / "checkpoints").glob("*/*") if path.is_dir()):
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        if holder := Lock(folder).holder():
            state = f"held by {holder}"
        elif in_use(configuration, folder):
            state = "in use"
        else:
            state = "removed" if remove else "unused"
            unused += size
            if remove:
                shutil.rmtree(folder)
        print(f"{size / 2**20:10,.1f} MiB  {state:<8}  {folder}")
    verb = "freed" if remove else "would be freed by --remove"
    print(f"{unused / 2**20:10,.1f} MiB  {verb}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("--remove", action="store_true", help="delete the unused folders")
    loading.add_arguments(parser)


def run(args: argparse.Namespace) -> None:
    """List the checkpoint folders; with `--remove`, delete those that no setting uses."""
    clean(loading.from_arguments(args), args.remove)
