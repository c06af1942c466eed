"""A repository of which files are wanted: its commit, its listing, and its files as they arrive."""

import functools
import itertools
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from babelmill.core.files import UserError
from babelmill.core.words import plural
from babelmill.download.data_files import DataFiles, data_files, in_order
from babelmill.hub import revisions
from babelmill.hub.client import explained
from babelmill.hub.files import fetch, licence_of, sizes
from babelmill.hub.sources import DATASET, explanation, resolve

log = logging.getLogger("babelmill.download")


@dataclass(frozen=True)
class Part:
    """What is wanted of a repository: `asked` as the settings say it, the commit, its data files, sizes and paths, and
    the licence that its card names."""

    asked: dict[str, Any]
    commit: str
    files: DataFiles
    sizes: dict[str, int]
    license: str | None = None
    paths: dict[str, Path] = field(default_factory=dict)

    @property
    def repository(self) -> str:
        """Its name on the Hub, `owner/name`."""
        return self.asked["repository"]

    def fetch(self, names: list[str], arrived: Callable[[int], None] | None = None) -> dict[str, Path]:
        """Download those files of the repository that are not here yet; return their paths in the cache, by name.

        `arrived`: is told of bytes as they arrive.
        """
        if lacking := [name for name in names if name not in self.paths]:
            with explained(functools.partial(explanation, DATASET, self.repository, self.asked["revision"])):
                self.paths.update(fetch(DATASET, self.repository, self.commit, lacking, arrived))
        return {name: self.paths[name] for name in names}


def open_part(asked: dict[str, Any], key: str) -> Part:
    """Find the commit and the data files of a repository. `key`: of its remembered commit (`revisions.py`)."""
    repository, revision = asked["repository"], asked["revision"]
    commit = asked["commit"] or revisions.recorded(key, repository, revision)
    commit = commit or resolve(DATASET, repository, revision)
    where = f"the dataset {repository} at {commit[:12]}"
    with explained(functools.partial(explanation, DATASET, repository, revision)):
        small = fetch(DATASET, repository, commit, ["README.md", ".gitattributes"])
        size = sizes(DATASET, repository, commit)
    if strange := [name for name in size if name.startswith("/") or ".." in name.split("/")]:
        raise UserError(f"{where} names a file outside of itself, {strange[0]!r}; not downloaded")
    card = small["README.md"] if "README.md" in size else None
    files = data_files(list(size), asked, card, where)
    total = sum(size[name] for name in files.train + files.validation)
    count = plural(len(files.train + files.validation), "file")
    log.info("%s at %s has %s, %.1f MB", repository, commit, count, total / 1e6)
    return Part(asked, commit, files, size, licence_of(card))


def wanted(parts: list[Part], split: str) -> list[tuple[Part, str]]:
    """Return the files of a split in the order in which a budget takes them: of each part in turn the next one."""
    rounds = itertools.zip_longest(*([(p, name) for name in in_order(getattr(p.files, split))] for p in parts))
    return [file for files in rounds for file in files if file is not None]
