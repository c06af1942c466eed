"""Stage `download`: a dataset repository of the Hugging Face Hub, at one commit, as files on disk.

    python -m babelmill.download --settings results/settings/eng/download.json --out results/downloads/eng

A branch such as `main` is resolved to a commit once, which stands in the manifest and is remembered
(`revisions.py`), so that a branch that moves changes no run.

Files come through the user's Hugging Face cache (`HF_HOME`) and are hard links into it where the file system allows.
`HF_ENDPOINT`, `HF_TOKEN` and `HF_HUB_OFFLINE` mean what they mean to huggingface_hub. What the client does not do is
done here: answers of the server that mean "later" are asked for again, and content is compared with its sha256.

This runs where there is a network, which compute nodes often lack; the stage `corpus` reads what it leaves.
"""

import argparse
import functools
import logging
import re
import sys
from pathlib import PurePosixPath

from huggingface_hub.utils import disable_progress_bars

from babelmill.core import manifest, stage_entry
from babelmill.core.files import UserError, atomic_folder
from babelmill.core.formats import split_name
from babelmill.core.words import plural
from babelmill.hub import revisions
from babelmill.hub.client import explained
from babelmill.hub.files import fetch, link, sizes
from babelmill.hub.sources import DATASET, explanation, resolve
from babelmill.settings import read_settings
from babelmill.stages import DownloadSettings

log = logging.getLogger("babelmill.download")
PREFERRED = (".parquet", ".jsonl", ".csv", ".txt")  # where a dataset comes in several formats, the first is taken
# How `datasets` recognises splits: words in the path, between anything but letters and digits.
VALIDATION = re.compile(r"(?<![a-z0-9])(validation|valid|val|dev)(?![a-z0-9])", re.IGNORECASE)
TEST = re.compile(r"(?<![a-z0-9])(test|testing|eval|evaluation)(?![a-z0-9])", re.IGNORECASE)


def data_files(names: list[str]) -> dict[str, list[str]]:
    """Which files of a repository are data: {"train": names, "validation": names}, sorted.

    Those of one format: the first of Parquet, JSONL, CSV, text that is there, since the others tend to be the same
    data again or no data at all (requirements.txt). Splits are told by words in the path; test splits are left out.
    """
    for kind in PREFERRED:
        found = sorted(name for name in names if split_name(PurePosixPath(name))[0] == kind)
        data = [name for name in found if not TEST.search(name)]
        if data:
            validation = [name for name in data if VALIDATION.search(name)]
            return {"train": [name for name in data if name not in validation], "validation": validation}
    return {"train": [], "validation": []}


def run(args: argparse.Namespace) -> None:
    """Download the dataset of a language."""
    settings = read_settings(args.settings, DownloadSettings)
    language, source = settings.name, settings.source
    repository, revision = source["repository"], source["revision"]
    if not sys.stderr.isatty():
        disable_progress_bars()
    commit = source["commit"] or revisions.recorded(language, repository, revision)
    commit = commit or resolve(DATASET, repository, revision)
    log.info("%s at %s", repository, commit)
    with explained(functools.partial(explanation, DATASET, repository, revision)):
        fetch(DATASET, repository, commit, ["README.md", ".gitattributes"])
        size = sizes(DATASET, repository, commit)
        files = data_files(list(size))
        names = files["train"] + files["validation"]
        if not files["train"]:
            known = ", ".join(f"{kind}[.gz|.zst]" for kind in PREFERRED)
            raise UserError(
                f"the dataset {repository} at {commit[:12]} has no training data in a format that is read here"
                f" ({known}); it has {', '.join(sorted(size)[:10]) or 'no files'}"
            )
        log.info("%s, %.1f MB", plural(len(names), "file"), sum(size[name] for name in names) / 1e6)
        if strange := [name for name in names if name.startswith("/") or ".." in name.split("/")]:
            raise UserError(f"the dataset {repository} names a file outside of itself, {strange[0]!r}; not downloaded")
        paths = fetch(DATASET, repository, commit, names)
    with atomic_folder(args.out) as folder:
        for name, path in paths.items():
            link(path, folder / name)
        figures = {"repository": repository, "revision": revision, "commit": commit, **files}
        manifest.write(folder, settings, names, figures=figures)
    revisions.record(language, repository, revision, commit)


def main() -> None:
    """Entry point."""
    parser = stage_entry.arguments(__doc__)
    parser.add_argument(
        "--out", required=True, type=stage_entry.folder, help="output folder, results/downloads/{language}"
    )
    sys.exit(stage_entry.run(run, parser.parse_args()))


if __name__ == "__main__":
    main()
