"""Files of a repository on the Hub, through the user's Hugging Face cache, their content compared with its hash."""

import functools
import glob
import logging
import os
import re
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import huggingface_hub
from huggingface_hub.repocard import metadata_load
from huggingface_hub.utils import tqdm

from babelmill.core.files import UserError, sha256
from babelmill.hub.client import explained, git_oid, patiently
from babelmill.hub.sources import COMMIT, Use, explanation

log = logging.getLogger("babelmill.hub.files")
FEW = 100  # files that are looked for by patterns
AT_ONCE = 4


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


def fetch(
    use: Use, repository: str, commit: str, names: list[str], arrived: Callable[[int], None] | None = None
) -> dict[str, Path]:
    """Download files to the cache and check their content. Returns their paths in the cache, by name.

    The first call leaves the list of all files in the cache (`sizes`), where it serves the next and later runs offline.

    Args:
        use, repository, commit: of the files.
        names: theirs.
        arrived: is told of bytes as they arrive, in place of the client's bars.
    """
    bars: dict[str, Any] = {"tqdm_class": counting(arrived)} if arrived else {}
    # Each pattern is compared with each file there is, so these are few. They may name files that are not there.
    few = [glob.escape(name) for name in names[:FEW]]
    folder = Path(
        patiently(
            lambda: huggingface_hub.snapshot_download(
                repository, repo_type=use.repo_type, revision=commit, allow_patterns=few, max_workers=AT_ONCE, **bars
            )
        )
    )
    _each(lambda name: _download(use, repository, commit, name, **bars), names[FEW:])
    paths = {name: folder / name for name in names}
    for name, path in paths.items():
        if not intact(path):
            log.warning("%s: what arrived is not what the Hub announced; next attempt", name)
            _download(use, repository, commit, name, force_download=True)
            if not intact(path):
                path.resolve().unlink()  # or the cache would serve it to others
                raise UserError(
                    f"{name} of the {use.noun} {repository} at {commit[:12]}: twice the content was not what its hash"
                    " says; try again later, or another network"
                )
    return paths


def _download(use: Use, repository: str, commit: str, name: str, **options: Any) -> None:
    """Download a file to the cache, if it is not there."""
    where = {"repo_type": use.repo_type, "revision": commit}
    patiently(lambda: huggingface_hub.hf_hub_download(repository, name, **where, **options))


def _each(act: Callable[[str], None], names: list[str]) -> None:
    """Do something with each name, with some at once. The first error ends it."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        futures = [pool.submit(act, name) for name in names]
        try:
            for future in as_completed(futures):
                future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def counting(arrived: Callable[[int], None]) -> type[tqdm]:
    """Return a class of bars that draw nothing, and tell `arrived` of bytes.

    Of a snapshot, the client has one bar for what is written and another for what comes over the network (Xet).
    """

    class Counting(tqdm):
        def __init__(self, *args: Any, **options: Any) -> None:
            network = str(options.get("name")).endswith(".transfer")
            self._counts = options.get("unit") == "B" and not network
            super().__init__(*args, **options | {"disable": True})

        def update(self, n: float | None = 1) -> None:
            if self._counts and n:
                arrived(int(n))

    return Counting


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


def licence_of(card: Path | None) -> str | None:
    """Return what a repository's card says of its licence; None if it says nothing, or several."""
    try:
        known = metadata_load(card) if card else None
    except Exception:  # whatever a card of somebody's holds, it is no reason to stop
        return None
    found = known and (known.get("license_name") or known.get("license"))
    return found if isinstance(found, str) else None


def link(source: Path, target: Path) -> None:
    """A hard link, or a copy where there can be none."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source.resolve(), target)
    except OSError:
        shutil.copyfile(source, target)
