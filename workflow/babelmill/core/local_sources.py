"""Local text files: which files a glob matches, and a digest of their content that reads only changed files.

A corpus depends on the content of its files, not on their times: `touch`, `cp -r` and a fresh clone repeat nothing, and
an edit that keeps size and time is seen. Reading ten thousand files at every dry run would take minutes. So the hash of
each file is kept beside the corpus that was made of it, in `source_hashes.json` (see `known_hashes.py`): a file that is
as it was is not read.

Before the first corpus there is nothing to compare with, and nothing is hashed: the settings then say how many files
and bytes there are, the stage hashes what it reads, and as long as the content is the same, the settings stay the same.
"""

import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from babelmill.core import known_hashes
from babelmill.core.files import UserError, read_json
from babelmill.core.formats import format_of
from babelmill.core.globs import expand_glob

HASHES = "source_hashes.json"


def files_of(pattern: str, label: str) -> list[str]:
    """Return the files that a glob matches, sorted, and see that they can be read; `label` begins an error.

    Raises:
        UserError: there is no file, one may not be read, or is of no format that is read here.
    """
    paths = expand_glob(pattern)
    if not paths:
        hint = f"; it is a folder, write {pattern.rstrip('/')}/*.txt" if os.path.isdir(pattern) else ""
        raise UserError(f"{label} {pattern}: no such file{hint}")
    for path in paths:
        format_of(path, f"{label} ")
        if not os.access(path, os.R_OK, effective_ids=os.access in os.supports_effective_ids):
            raise UserError(f"{label} {path}: cannot be read: permission denied")
    return paths


def hashes(paths: Iterable[str], corpus: Path) -> dict[str, str]:
    """Return {path: sha256} of local files; those that are as they were when they were last hashed are not read."""
    return known_hashes.hashes(paths, corpus / HASHES)


def snapshot(
    patterns: Mapping[str, str], corpus: Path, before: dict[str, Any] | None = None, what: str = "corpus"
) -> dict[str, dict[str, Any]]:
    """What globs match: {pattern: {"files": count, "bytes": sum, "sha256": digest over (path, content hash)}}.

    Args:
        patterns: the globs, and the configuration file that names each, for the error.
        corpus: the folder of the corpus that is made of the files. If its manifest says that it was made of exactly
            this content, its own record is returned; the sha256 of that is None if there was no corpus before it.
        before: what was returned for an earlier run. Without a corpus, its entries stay where count and bytes agree, so
            that a deleted corpus repeats no more than itself.
        what: the files are of, for the error.

    Raises:
        UserError: see `files_of`.
    """
    files = {pattern: files_of(pattern, f"{where}: {what} file") for pattern, where in patterns.items()}
    return snapshot_of_files(files, corpus, before)


def snapshot_of_files(
    files: Mapping[str, list[str]], corpus: Path, before: dict[str, Any] | None = None
) -> dict[str, dict[str, Any]]:
    """Do what `snapshot` does with {what the user named: paths}."""
    recorded = _recorded(corpus)
    content = None if recorded is None else hashes(sorted({p for paths in files.values() for p in paths}), corpus)
    if recorded is not None and content == recorded["content"] and recorded["sources"].keys() >= files.keys():
        return {pattern: recorded["sources"][pattern] for pattern in files}
    entries = {pattern: _entry(paths, content) for pattern, paths in files.items()}
    if content is None:
        for pattern, entry in (before or {}).items():
            if pattern in entries and entry == entries[pattern] | {"sha256": entry["sha256"]}:
                entries[pattern] = entry
    return entries


def _entry(paths: list[str], content: dict[str, str] | None) -> dict[str, Any]:
    digest = None
    if content is not None:
        listing = "".join(f"{path}\0{content[path]}\n" for path in paths)
        digest = hashlib.sha256(listing.encode()).hexdigest()
    return {"files": len(paths), "bytes": sum(os.path.getsize(path) for path in paths), "sha256": digest}


def _recorded(corpus: Path) -> dict[str, Any] | None:
    """What the present corpus was made of: {"sources": as in its settings, "content": {path: sha256}}; None without."""
    try:
        manifest = read_json(corpus / "manifest.json")
        listing = {entry["path"]: entry["sha256"] for entry in manifest["figures"]["sources"]}
        return {"sources": manifest["settings"]["sources"], "content": listing}
    except (UserError, KeyError, TypeError):
        return None
