"""Files of a repository on the Hub, through the user's Hugging Face cache, their content compared with its hash."""

import functools
import glob
import logging
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import huggingface_hub

from babelmill.core.files import UserError, sha256
from babelmill.hub.client import explained, git_oid, patiently
from babelmill.hub.sources import COMMIT, Use, explanation

log = logging.getLogger("babelmill.hub.files")


@dataclass(frozen=True)
class Files:
    """The files of a folder or a repository.

    Attributes:
        names: of all of them, but for those in folders.
        get: gives the paths of some, by name, after fetching them.
        where: begins errors.
        figures: where they are from, for the manifest.
    """

    names: list[str]
    get: Callable[[list[str]], dict[str, Path]]
    where: str
    figures: dict[str, Any]

    def some(self, *names: str) -> dict[str, Path]:
        """Return the paths of those that there are, by name."""
        found = [name for name in names if name in self.names]
        return self.get(found) if found else {}


def of_repository(use: Use, repository: str, commit: str, revision: str) -> Files:
    """Return the files of a repository at a commit, which the user knows as `revision`. A UserError says what fails."""

    def get(names: list[str]) -> dict[str, Path]:
        with explained(functools.partial(explanation, use, repository, revision)):
            return fetch(use, repository, commit, names)

    get([".gitattributes"])
    names = sorted(name for name in sizes(use, repository, commit) if "/" not in name)
    figures = {"repository": repository, "revision": revision, "commit": commit}
    return Files(names, get, f"the {use.noun} {repository} at {commit[:12]}", figures)


def fetch(use: Use, repository: str, commit: str, names: list[str]) -> dict[str, Path]:
    """Download files to the cache and check their content. Returns their paths in the cache, by name.

    The first call leaves the list of all files in the cache (`sizes`), where it serves the next and later runs offline.
    """
    patterns = [glob.escape(name) for name in names]
    folder = Path(
        patiently(
            lambda: huggingface_hub.snapshot_download(
                repository, repo_type=use.repo_type, revision=commit, allow_patterns=patterns, max_workers=4
            )
        )
    )
    paths = {name: folder / name for name in names}
    for name, path in paths.items():
        if not intact(path):
            log.warning("%s: what arrived is not what the Hub announced; next attempt", name)
            patiently(
                lambda name=name: huggingface_hub.hf_hub_download(
                    repository, name, repo_type=use.repo_type, revision=commit, force_download=True
                )
            )
            if not intact(path):
                path.resolve().unlink()  # or the cache would serve it to others
                raise UserError(
                    f"{name} of the {use.noun} {repository} at {commit[:12]}: twice the content was not what its hash"
                    " says; try again later, or another network"
                )
    return paths


def sizes(use: Use, repository: str, commit: str) -> dict[str, int]:
    """Return the size of each file of a repository of which something was fetched before, by name."""
    tree = huggingface_hub.get_cached_repo_tree(repository, repo_type=use.repo_type, revision=commit)
    return {entry.path: entry.size for entry in tree}


def intact(path: Path) -> bool:
    """Whether a file of the cache has the hash that it is filed under: sha256 of large files, git's of small ones.

    The client compares the sizes alone.
    """
    announced = path.resolve().name
    if re.fullmatch(r"[0-9a-f]{64}", announced):
        return sha256(path) == announced
    if COMMIT.fullmatch(announced):
        return git_oid(path) == announced
    return True  # a cache without links, on a file system that has none


def link(source: Path, target: Path) -> None:
    """A hard link, or a copy where there can be none."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source.resolve(), target)
    except OSError:
        shutil.copyfile(source, target)
