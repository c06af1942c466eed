"""Open a repository of the Hub: find its commit, list its files, and fetch those that are needed."""

import functools
import itertools
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from babelmill.core.words import plural
from babelmill.hub import revisions
from babelmill.hub.client import explained
from babelmill.hub.data_files import DataFiles, data_files, in_order
from babelmill.hub.files import fetch, licence_of, sizes
from babelmill.hub.sources import DATASET, explanation, resolve

log = logging.getLogger("babelmill.download")


@dataclass(frozen=True)
class Part:
    """Holds the files that are needed from a repository.

    Attributes:
        asked: the repository's entry in the settings.
        commit: the commit to fetch.
        files: names of the data files.
        sizes: {name: bytes} of all files of the repository.
        license: the licence that its card names, if it names one.
        paths: {name: path in the cache} of the files that were fetched.
    """

    asked: dict[str, Any]
    commit: str
    files: DataFiles
    sizes: dict[str, int]
    license: str | None = None
    paths: dict[str, Path] = field(default_factory=dict)

    @property
    def repository(self) -> str:
        """Return its name on the Hub, `owner/name`."""
        return self.asked["repository"]

    def fetch(self, names: list[str], arrived: Callable[[int], None] | None = None) -> dict[str, Path]:
        """Download those of the named files that are missing. Return {name: path in the cache} of all named files.

        While bytes arrive, `arrived` is called with their number.
        """
        if lacking := [name for name in names if name not in self.paths]:
            with explained(functools.partial(explanation, DATASET, self.repository, self.asked["revision"])):
                self.paths.update(fetch(DATASET, self.repository, self.commit, lacking, arrived))
        return {name: self.paths[name] for name in names}


def open_part(asked: dict[str, Any], key: str) -> Part:
    """Find the commit and the data files of a repository. `key` names its remembered commit (`revisions.py`)."""
    repository, revision = asked["repository"], asked["revision"]
    commit = asked["commit"] or revisions.recorded(key, repository, revision)
    commit = commit or resolve(DATASET, repository, revision)
    where = f"the dataset {repository} at {commit[:12]}"
    with explained(functools.partial(explanation, DATASET, repository, revision)):
        small = fetch(DATASET, repository, commit, ["README.md", ".gitattributes"])
        size = sizes(DATASET, repository, commit)
    card = small["README.md"] if "README.md" in size else None
    files = data_files(list(size), asked, card, where)
    total = sum(size[name] for name in files.train + files.validation)
    count = plural(len(files.train + files.validation), "file")
    log.info("%s at %s has %s, %.1f MB (%s)", repository, commit, count, total / 1e6, files)
    return Part(asked, commit, files, size, licence_of(card))


def wanted(parts: list[Part], split: str) -> list[tuple[Part, str]]:
    """Return the files of a split in the order in which a budget needs them: one file of each part in turn."""
    rounds = itertools.zip_longest(*([(p, name) for name in in_order(getattr(p.files, split))] for p in parts))
    return [file for files in rounds for file in files if file is not None]
