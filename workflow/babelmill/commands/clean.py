"""List the results that no present setting asks for, and with `--remove` delete them.

    babelmill clean             # list them
    babelmill clean --remove    # delete them

A result stays when settings change, so that going back costs nothing; this command frees the disk space. It looks at
all models of the configuration: targets, `models:`, experiments, and languages that have run or are in `converted/`.
What lies in `results/checkpoints` is kept for as long as its model is asked for; a folder in which a process works now
stays.

What `run.checkpoint_mirror` keeps elsewhere stays.
"""

import argparse
import shutil
from collections.abc import Iterator
from pathlib import Path

from babelmill.config import loading
from babelmill.core.files import UserError
from babelmill.core.words import plural
from babelmill.graph import ASKED, LINKS, Graph
from babelmill.runtime.run_lock import holder
from babelmill.stages import CHECKPOINTS, RESULTS, SETTINGS, STAGES, UNFINISHED


def unused(graph: Graph) -> Iterator[Path]:
    """Yield the files and folders in `results` that no model asks for. A UserError says what is wrong with a model."""
    names: dict[str, set[str]] = {stage: set() for stage in STAGES}
    ran = {path.stem for path in ASKED.glob("*.json")} | {path.name for path in Path("converted").glob("*")}
    configuration = graph.configuration
    models = {*configuration.targets(), *configuration.top.models, *filter(configuration.is_model, ran)}
    for model in models:
        for each in graph.of_model(model):
            names[each.stage.stage].add(each.name)
        for stage in ("predict", "submission"):
            parts = STAGES[stage].parts(configuration.model(model))
            names[stage] |= {".".join(filter(None, (model, part))) for part in parts}
        names["publish"].add(model)
    kept = {top / stage: named for stage, named in names.items() for top in (RESULTS, UNFINISHED, SETTINGS)}
    kept |= {SETTINGS / "run": names["train"], CHECKPOINTS: names["train"], LINKS: models}
    for folder, named in kept.items():
        for path in sorted(folder.glob("[!.]*")):  # what begins with a dot is being written
            if path.name.removesuffix(".json") not in named and not holder(path):
                yield path


def size_of(path: Path) -> int:
    """Return the bytes of a file, or of all files in a folder."""
    files = [path] if path.is_file() else path.rglob("*")
    return sum(each.lstat().st_size for each in files if each.is_file() and not each.is_symlink())


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("--remove", action="store_true", help="delete what is listed")
    loading.add_arguments(parser)


def run(args: argparse.Namespace) -> None:
    """List what is unused with its size; with `--remove`, delete it, unless a run may be making it."""
    if args.remove and any(Path(".snakemake/locks").glob("*")):
        raise UserError(".snakemake/locks: a run works in this folder; wait for it (after a kill: snakemake --unlock)")
    graph = Graph(loading.from_arguments(args))
    found = {path: size_of(path) for path in unused(graph)}
    for path, size in found.items():
        if path.parent.parent != SETTINGS:  # settings files are small, and many
            print(f"{size / 2**20:10,.1f} MiB  {path}")
        if args.remove:
            path.unlink() if path.is_file() or path.is_symlink() else shutil.rmtree(path)
    count = plural(sum(path.parent.parent != SETTINGS for path in found), "result")
    verb = "deleted" if args.remove else "unused: --remove deletes them"
    print(f"{sum(found.values()) / 2**20:10,.1f} MiB  {count} {verb}")
