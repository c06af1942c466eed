"""Which commit of its Hub dataset a language's text comes from: what was asked, what was resolved, what is locked.

A branch such as `main` is resolved once. The answer is kept in `results/revisions/{language}.json`, which no rule
deletes, so that a branch that moves changes no run. `config/lock.yaml`, written by `python -m babelmill.lock`, holds
the same facts for other people. An entry counts for the repository and the revision that it was made for, no other.
"""

import functools
from pathlib import Path

import yaml

from babelmill.files import UserError, atomic_write, read_json, write_json

RECORDS = Path("results/revisions")
SETTINGS = Path("results/settings")
LOCK = Path("config/lock.yaml")
HEADER = "# Written by `python -m babelmill.lock`: the commits that the Hub datasets are pinned to.\n"


def record(language: str, repository: str, revision: str, commit: str) -> None:
    """Note what a revision was resolved to."""
    write_json(RECORDS / f"{language}.json", {"repository": repository, "revision": revision, "commit": commit})


def recorded(language: str, repository: str, revision: str) -> str | None:
    """The commit that was downloaded for a language, None if there was none."""
    path = RECORDS / f"{language}.json"
    return _commit(read_json(path), repository, revision) if path.exists() else None


@functools.cache
def read_lock() -> dict[str, dict]:
    """The entries of the lock file: {language: {"repository", "revision", "commit"}}; none if there is no file."""
    if not LOCK.exists():
        return {}
    try:
        entries = yaml.safe_load(LOCK.read_text(encoding="utf-8")) or {}
        keys = ("repository", "revision", "commit")
        return {code: {key: entry[key] for key in keys} for code, entry in entries.items()}
    except (yaml.YAMLError, AttributeError, KeyError, TypeError):
        raise UserError(f"{LOCK}: not as `python -m babelmill.lock` writes it; delete it and lock again") from None


def write_lock(entries: dict[str, dict]) -> None:
    """Add entries to the lock file, over those of the same languages."""
    with atomic_write(LOCK, "w") as file:
        file.write(HEADER + yaml.safe_dump(read_lock() | entries))
    read_lock.cache_clear()


def locked(language: str, repository: str, revision: str) -> str | None:
    """The commit to ask for: the lock file's, or else the one that was downloaded; None: the branch is to be resolved.

    A download that was asked for a branch, and is at this very commit, stays as it was asked: locking what was
    downloaded must not change its settings, or everything after it would run again.
    """
    known = recorded(language, repository, revision)
    commit = in_lock(language, repository, revision) or known
    asked = SETTINGS / language / "download.json"
    if commit == known and asked.is_file():
        source = read_json(asked)["source"]
        if source == {"repository": repository, "revision": revision, "commit": None}:
            return None
    return commit


def in_lock(language: str, repository: str, revision: str) -> str | None:
    """The commit that the lock file has for a language, None if it has none."""
    return _commit(read_lock().get(language), repository, revision)


def _commit(entry: dict | None, repository: str, revision: str) -> str | None:
    if entry and (entry["repository"], entry["revision"]) == (repository, revision):
        return entry["commit"]
    return None
