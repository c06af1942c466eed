"""Find and record the commit of a repository on the Hub that a text, a tokenizer or a model comes from.

A branch such as `main` is resolved to a commit once. The commit is kept in `results/revisions/{key}.json`, which no
rule deletes, so new commits on the branch change no run. `babelmill lock` writes the same facts into
`config/lock.yaml`, for other people. An entry is valid only for the repository and the revision that it was made for.

The key of a text is its language. The key of a part of a text, a tokenizer or a model is its repository and revision,
so all that use the same repository and revision get the same commit.
"""

import functools
from pathlib import Path
from typing import Any

import yaml

from babelmill.core.files import UserError, read_json, write_json, write_text
from babelmill.core.yaml_file import read_yaml

RECORDS = Path("results/revisions")
LOCK = Path("config/lock.yaml")
HEADER = (
    "# Written by `babelmill lock`: the commits that texts, tokenizers, models and suites on the Hub are pinned to.\n"
)


def dataset_key(repository: str, revision: str) -> str:
    """Return the key of a dataset that is a part of a language's text (see `schema.DatasetPart`)."""
    return f"datasets/{repository}@{revision}"


def tokenizer_key(repository: str, revision: str) -> str:
    """Return the key of a tokenizer."""
    return f"tokenizers/{repository}@{revision}"


def model_key(repository: str, revision: str) -> str:
    """Return the key of a model that other models continue."""
    return f"models/{repository}@{revision}"


def record(key: str, repository: str, revision: str, commit: str) -> None:
    """Record the commit that a revision was resolved to."""
    write_json(RECORDS / f"{key}.json", {"repository": repository, "revision": revision, "commit": commit})


def recorded(key: str, repository: str, revision: str) -> str | None:
    """Return the commit that was downloaded; None if nothing was downloaded."""
    path = RECORDS / f"{key}.json"
    return _commit(read_json(path), repository, revision) if path.exists() else None


@functools.cache
def read_lock() -> dict[str, dict[str, Any]]:
    """Return the entries of the lock file: {key: {"repository", "revision", "commit"}}; {} if there is no file."""
    if not LOCK.exists():
        return {}
    try:
        entries = read_yaml(LOCK)
        fields = ("repository", "revision", "commit")
        return {key: {field: entry[field] for field in fields} for key, entry in entries.items()}
    except (AttributeError, KeyError, TypeError):
        raise UserError(
            f"{LOCK}: does not have the form that `babelmill lock` writes; delete the file and lock again"
        ) from None


def write_lock(entries: dict[str, dict[str, Any]]) -> None:
    """Add entries to the lock file; they replace entries with the same keys."""
    write_text(LOCK, HEADER + yaml.safe_dump(read_lock() | entries))
    read_lock.cache_clear()


def source(key: str, repository: str, revision: str, settings: Path) -> dict[str, Any]:
    """Return what a stage fetches: {"repository", "revision", "commit"}. A commit of None means: resolve the revision.

    The commit comes from the lock file, or else it is the one that was downloaded. There is one exception. If the
    settings file of the stage (`settings`) asks for a branch, and the stage got this same commit, the commit stays
    None: locking the downloaded commit must not change the settings, or everything after this stage would run again.
    """
    known = recorded(key, repository, revision)
    commit = in_lock(key, repository, revision) or known
    wanted = {"repository": repository, "revision": revision, "commit": commit}
    as_asked = wanted | {"commit": None}
    if commit == known and settings.is_file():
        asked = read_json(settings)
        parts = [part for part in [*asked.get("parts", []), asked.get("source")] if part]
        if as_asked in [{key: part[key] for key in wanted} for part in parts]:
            return as_asked
    return wanted


def in_lock(key: str, repository: str, revision: str) -> str | None:
    """Return the commit in the lock file; None if it has none."""
    return _commit(read_lock().get(key), repository, revision)


def _commit(entry: dict[str, Any] | None, repository: str, revision: str) -> str | None:
    if entry and (entry["repository"], entry["revision"]) == (repository, revision):
        return entry["commit"]
    return None
