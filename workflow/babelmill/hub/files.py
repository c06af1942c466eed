"""Fetch files of a repository on the Hub, at one commit, through the user's Hugging Face cache."""

import fnmatch
import functools
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import huggingface_hub

from babelmill.core.escape import line, some
from babelmill.core.files import UserError, read_json
from babelmill.core.yaml_file import front_matter
from babelmill.hub import revisions
from babelmill.hub.client import explained, patiently
from babelmill.hub.sources import Use, explanation, resolve

AT_ONCE = 8  # files that are downloaded at the same time


@dataclass(frozen=True)
class Files:
    """The files of a folder or a repository."""

    # {name: bytes} of all files, sorted by names; of a model, only those that are not in subfolders.
    sizes: dict[str, int]
    get: Callable[[list[str]], dict[str, Path]]  # fetches some files, by their names, and returns {name: path}
    where: str  # a description of the place, which begins errors
    # Where the files come from, for the manifest; of a repository, its name, revision and commit.
    figures: dict[str, Any]

    @property
    def names(self) -> list[str]:
        return list(self.sizes)

    def matching(self, patterns: list[str], what: str) -> list[str]:
        """Return the names of the files that match globs, in the order of these.

        A UserError says that there are none of `what`.
        """
        found = list(dict.fromkeys(name for glob in patterns for name in fnmatch.filter(self.names, glob)))
        if not found:
            has = some(self.names) or "no files"
            raise UserError(f"{self.where} has no file {some(patterns)} for {what}; it has {has}")
        return found

    def json(self, name: str) -> Any:
        return read_json(self.get([name])[name], f"{self.where}: {name}")

    def some(self, *names: str) -> dict[str, Path]:
        """Fetch those of the files that exist; return {name: path}."""
        found = [name for name in names if name in self.names]
        return self.get(found) if found else {}

    def path(self, name: str) -> Path | None:
        """Fetch a file if it exists; return its path."""
        return self.some(name).get(name)


def in_a_folder(folder: Path) -> Files:
    """Return the files of a folder."""
    sizes = {path.name: path.stat().st_size for path in sorted(folder.iterdir()) if path.is_file()}
    return Files(sizes, lambda names: {n: folder / n for n in names}, f"the model in {folder}", {"folder": str(folder)})


def of_source(use: Use, source: dict[str, Any], below: bool = False) -> Files:
    """Return the files of the repository that a stage's settings name (`source`); for the others, see `of_repository`.

    The commit is the one recorded for the revision (`revisions.py`), or else the revision's present one. (A stage that
    has fetched all it needs records the files' `figures`.)
    """
    repository, revision = source["repository"], source["revision"]
    commit = revisions.recorded(use.repo_type, repository, revision) or resolve(use, repository, revision)
    return of_repository(use, repository, commit, revision, below)


def of_repository(use: Use, repository: str, commit: str, revision: str, below: bool = False) -> Files:
    """Return the files of a repository at a commit, which the user named as `revision`; with `below`, of all folders.

    A UserError says why the files cannot be fetched.
    """
    known: dict[str, Any] = {"repo_type": use.repo_type, "revision": commit}
    because = functools.partial(explanation, use, repository, revision)

    def path_of(name: str) -> Path:
        return Path(patiently(lambda: huggingface_hub.hf_hub_download(repository, name, **known)))

    def get(names: list[str]) -> dict[str, Path]:
        with explained(because), ThreadPoolExecutor(AT_ONCE) as pool:
            return dict(zip(names, pool.map(path_of, names), strict=True))

    where = f"the {use.noun} {repository} at {commit[:12]}"
    with explained(because):  # the listing comes into the cache with a first file, so that later runs need no network
        patiently(lambda: huggingface_hub.snapshot_download(repository, allow_patterns=".gitattributes", **known))
        tree = huggingface_hub.get_cached_repo_tree(repository, **known)
    sizes = {entry.path: entry.size for entry in tree if below or "/" not in entry.path}
    for name in sizes:  # text from outside, which becomes paths here
        if ".." in (parts := re.split(r"[/\\]", name)) or not parts[0]:
            raise UserError(f"{where} lists a file outside of its own folder, '{line(name, 100)}'")
    figures = {"repository": repository, "revision": revision, "commit": commit}
    return Files(dict(sorted(sizes.items())), get, where, figures)


def licence_of(card: Path | None) -> str | None:
    """Return the licence that a repository's card names; None if the card names no licence, or several."""
    try:
        known = front_matter(card, "README.md") if card else {}
    except UserError:  # a card that cannot be read must not stop the run
        return None
    found = known.get("license_name") or known.get("license")
    return found if isinstance(found, str) and len(found) <= 255 else None
