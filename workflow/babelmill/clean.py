"""`python -m babelmill.clean`: list the checkpoint folders, and with `--remove` delete those that no setting uses.

A finished run keeps its last checkpoint, so that going back to earlier settings costs seconds and disk space. This
command gives it back. A folder is in use if the present configuration, code and data would train in it, and held if a
process is training in it now; both stay.
"""

import argparse
import shutil
import sys
from pathlib import Path

from babelmill import config
from babelmill.files import UserError, read_json
from babelmill.training.identity import fingerprint, identity
from babelmill.training.lock import Lock

RESULTS = Path("results")


def in_use(configuration: config.Configuration, folder: Path) -> bool:
    """Whether the present settings would train in a run's folder. Where the data is missing the settings decide."""
    model = folder.parent.name
    if not configuration.is_model(model):
        return False
    settings = configuration.settings(model, "train")
    tokenizer = RESULTS / "tokenizers" / model
    shards = [RESULTS / "shards" / model / language for language in configuration.languages_of(model)]
    if all((source / "manifest.json").is_file() for source in (tokenizer, *shards)):
        return fingerprint(identity(settings, tokenizer, shards)) == folder.name
    return (folder / "identity.json").is_file() and read_json(folder / "identity.json")["settings"] == settings


def clean(configuration: config.Configuration, remove: bool) -> None:
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


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m babelmill.clean", description=__doc__.split("\n\n")[0])
    parser.add_argument("--remove", action="store_true", help="delete the unused folders")
    config.add_arguments(parser)
    args = parser.parse_args()
    try:
        clean(config.from_arguments(args), args.remove)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
