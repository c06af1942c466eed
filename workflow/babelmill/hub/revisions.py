"""Which commit of a repository on the Hub a text, a tokenizer or a model comes from: asked, resolved, locked.

A branch such as `main` is resolved once. The answer is kept in `results/revisions/{key}.json`, which no rule deletes,
so that a branch that moves changes no run. `config/lock.yaml`, written by `babelmill lock`, holds the same
facts for other people. An entry counts for the repository and the revision that it was made for, no other.

The key of a text is its language; that of a part of one, a tokenizer or a model is its repository and revision: those
that share one agree.
"""

import functools
from pathlib import Path
from typing import Any

import yaml

from babelmill.core.files import UserError, atomic_write, read_json, write_json
from babelmill.core.yaml_file import read_yaml

RECORDS = Path("results/revisions")
LOCK = Path("config/lock.yaml")
HEADER = (
    "# Written by `babelmill lock`: the commits that texts, tokenizers, models and suites on the Hub are pinned to.\n"
)


def dataset_key(repository: str, revision: str) -> str:
    """The key of a dataset that is a part of a language's text (see `corpus_section.DatasetPart`)."""
    return f"datasets/{repository}@{revision}"


def tokenizer_key(repository: str, revision: str) -> str:
    """The key of a tokenizer."""
    return f"tokenizers/{repository}@{revision}"


def model_key(repository: str, revision: str) -> str:
    """The key of a model that others go on from."""
    return f"models/{repository}@{revision}"


def record(key: str, repository: str, revision: str, commit: str) -> None:
    """Note what a revision was resolved to."""
    write_json(RECORDS / f"{key}.json", {"repository": repository, "revision": revision, "commit": commit})


def recorded(key: str, repository: str, revision: str) -> str | None:
    """The commit that was downloaded, None if there was none."""
    path = RECORDS / f"{key}.json"
    return _commit(read_json(path), repository, revision) if path.exists() else None


@functools.cache
def read_lock() -> dict[str, dict[str, Any]]:
    """Return the entries of the lock file: {key: {"repository", "revision", "commit"}}; none if there is no file."""
    if not LOCK.exists():
        return {}
    try:
        entries = read_yaml(LOCK)
        fields = ("repository", "revision", "commit")
        return {key: {field: entry[field] for field in fields} for key, entry in entries.items()}
    except (AttributeError, KeyError, TypeError):
        raise UserError(f"{LOCK}: not as `babelmill lock` writes it; delete it and lock again") from None


def write_lock(entries: dict[str, dict[str, Any]]) -> None:
    """Add entries to the lock file, over those of the same keys."""
    with atomic_write(LOCK, "w") as file:
        file.write(HEADER + yaml.safe_dump(read_lock() | entries))
    read_lock.cache_clear()


def source(key: str, repository: str, revision: str, settings: Path) -> dict[str, Any]:
    """Say what a stage is to fetch: {"repository", "revision", "commit"}, where no commit says: resolve the revision.

    The commit is the lock file's, or else the one that was downloaded. But a stage whose settings file (`settings`)
    asked for a branch, and which got this very commit, stays as it was asked: locking what was downloaded must not
    change its settings, or everything after it would run again.
    """
    known = recorded(key, repository, revision)
    commit = in_lock(key, repository, revision) or known
    wanted = {"repository": repository, "revision": revision, "commit": commit}
    as_asked = wanted | {"commit": None}
    if commit == known and settings.is_file():
        said = read_json(settings)
        parts = [part for part in [*said.get("parts", []), said.get("source")] if part]
        if as_asked in [{key: part[key] for key in wanted} for part in parts]:
            return as_asked
    return wanted


def in_lock(key: str, repository: str, revision: str) -> str | None:
    """The commit that the lock file has, None if it has none."""
    return _commit(read_lock().get(key), repository, revision)


def _commit(entry: dict[str, Any] | None, repository: str, revision: str) -> str | None:
    if entry and (entry["repository"], entry["revision"]) == (repository, revision):
        return entry["commit"]
    return None
