"""Fetch files of a repository on the Hub through the user's Hugging Face cache, and check them by their hashes."""

import fnmatch
import functools
import glob
import logging
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import huggingface_hub
from huggingface_hub.utils import tqdm

from babelmill.core.escape import line, some
from babelmill.core.files import UserError, read_json, sha256
from babelmill.core.yaml_file import front_matter
from babelmill.hub import revisions
from babelmill.hub.client import explained, git_oid, patiently
from babelmill.hub.sources import COMMIT, Use, explanation, resolve

log = logging.getLogger("babelmill.hub.files")
FEW = 100  # files that one call fetches by patterns
AT_ONCE = 4  # files that are downloaded at the same time
LONGEST = 255  # bytes of a name, in nearly all file systems


@dataclass(frozen=True)
class Files:
    """The files of a folder or a repository."""

    # {name: bytes} of all files, sorted by names; of a model, only those that are not in subfolders.
    sizes: dict[str, int]
    # A function that fetches some files, by their names, and returns {name: path}. While bytes arrive, it calls its
    # second argument, if there is one, with their number.
    get: Callable[..., dict[str, Path]]
    where: str  # a description of the place, which begins errors
    # Where the files come from, for the manifest; of a repository, its name, revision and commit.
    figures: dict[str, Any]

    @property
    def names(self) -> list[str]:
        return list(self.sizes)

    def matching(self, patterns: list[str], what: str) -> list[str]:
        """Return the names of the files that match globs; raise a UserError if there are none of `what`."""
        found = [name for name in self.names if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]
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

    def get(names: list[str], arrived: Callable[[int], None] | None = None) -> dict[str, Path]:
        with explained(functools.partial(explanation, use, repository, revision)):
            return fetch(use, repository, commit, names, arrived)

    get([".gitattributes"])  # which also stores the list of all files in the cache, so that later runs need no network
    with explained(functools.partial(explanation, use, repository, revision)):
        tree = huggingface_hub.get_cached_repo_tree(repository, repo_type=use.repo_type, revision=commit)
    sizes = {entry.path: entry.size for entry in tree if below or "/" not in entry.path}
    figures = {"repository": repository, "revision": revision, "commit": commit}
    return Files(dict(sorted(sizes.items())), get, f"the {use.noun} {repository} at {commit[:12]}", figures)


def fetch(
    use: Use, repository: str, commit: str, names: list[str], arrived: Callable[[int], None] | None = None
) -> dict[str, Path]:
    """Download files to the cache and check their content; return {name: path in the cache}.

    `arrived` is called with the number of bytes that have arrived; without it, the client shows progress bars.
    """
    check_names(names, f"the {use.noun} {repository} at {commit[:12]}")
    bars: dict[str, Any] = {"tqdm_class": counting(arrived)} if arrived else {}
    # The client compares each pattern with each file, so there are few patterns. They may name files that do not exist.
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
            log.warning("%s: the content does not have the hash that the Hub announced; next attempt", line(name, 100))
            _download(use, repository, commit, name, force_download=True)
            if not intact(path):
                path.resolve().unlink()  # otherwise other programs would get the damaged file from the cache
                raise UserError(
                    f"{line(name, 100)} of the {use.noun} {repository} at {commit[:12]}: the content did not have the"
                    " right hash in two attempts; try again later, or use another network"
                )
    return paths


def check_names(names: list[str], where: str) -> None:
    """Raise a UserError if a file of a repository would be outside of its own folder here, or has too long a name."""
    for name in names:
        parts = re.split(r"[/\\]", name)
        if ".." in parts or not parts[0]:
            raise UserError(
                f"{where} lists a file outside of its own folder, '{line(name, 100)}'; nothing is downloaded"
            )
        longest = max((part.encode() for part in name.split("/")), key=len)
        if len(longest) > LONGEST:
            raise UserError(
                f"{where} has a file with a name of {len(longest):,} bytes, '{line(name, 60)}'; file systems allow"
                f" {LONGEST}: name the other files in the configuration"
            )


def _download(use: Use, repository: str, commit: str, name: str, **options: Any) -> None:
    """Download a file to the cache, unless it is in the cache."""
    where = {"repo_type": use.repo_type, "revision": commit}
    patiently(lambda: huggingface_hub.hf_hub_download(repository, name, **where, **options))


def _each(act: Callable[[str], None], names: list[str]) -> None:
    """Call `act` with each name, `AT_ONCE` calls at the same time; after an error, do not begin further calls."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        futures = [pool.submit(act, name) for name in names]
        try:
            for future in as_completed(futures):
                future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def counting(arrived: Callable[[int], None]) -> type[tqdm]:
    """Return a class of progress bars that draw nothing, but call `arrived` with numbers of bytes.

    For a snapshot, the client has one bar for written bytes and another for bytes from the network (Xet). Only the
    first counts here.
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


def intact(path: Path) -> bool:
    """Return whether a file in the cache has the hash that is its name there: sha256 for large files, else git's hash.

    The client itself compares only the sizes.
    """
    announced = path.resolve().name
    if re.fullmatch(r"[0-9a-f]{64}", announced):
        return sha256(path) == announced
    if COMMIT.fullmatch(announced):
        return git_oid(path) == announced
    return True  # a cache without links has no hashes as names, on a file system that has no links


def licence_of(card: Path | None) -> str | None:
    """Return the licence that a repository's card names; None if the card names no licence, or several."""
    try:
        known = front_matter(card, "README.md") if card else {}
    except UserError:  # a card that cannot be read must not stop the run
        return None
    found = known.get("license_name") or known.get("license")
    return found if isinstance(found, str) and len(found) <= LONGEST else None
