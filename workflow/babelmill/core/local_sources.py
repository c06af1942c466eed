"""Find the local text files that a glob matches, and compute a digest of their content; read only changed files.

A corpus depends on the content of its files, not on their times. So nothing runs again after `touch`, `cp -r` or a
fresh clone, and an edit that keeps a file's size and time is noticed. Reading ten thousand files at every dry run would
take minutes. So `source_hashes.json`, beside the corpus that was made from the files, keeps the hash of each file (see
`known_hashes.py`), and unchanged files are not read.

Before the first corpus there is nothing to compare with, so nothing is hashed. The settings then contain only the
number of files and bytes, and the stage hashes the files that it reads. As long as their content stays the same, the
settings stay the same.
"""

import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from babelmill.core import known_hashes, manifest
from babelmill.core.escape import line
from babelmill.core.files import UserError, not_found
from babelmill.core.formats import format_of
from babelmill.core.globs import expand_glob

HASHES = "source_hashes.json"


def files_of(pattern: str, label: str, file_format: str | None = None) -> list[str]:
    """Return the files that a glob matches, sorted, and check that they can be read; `label` begins an error.

    `file_format`: that of the files, if their names do not say it (`corpus.format`). A UserError says that no
    file matches, or that one cannot be read.
    """
    paths = expand_glob(pattern)
    if not paths:
        folder = f"no such file; this is a folder: write {pattern.rstrip('/')}/*.txt" if os.path.isdir(pattern) else ""
        raise UserError(f"{label} {pattern}: {folder or not_found(pattern)}")
    for path in paths:
        format_of(path, f"{label} ", file_format)
        try:
            os.fsencode(path).decode("utf-8")  # settings files, manifests and logs are UTF-8, whatever the locale
        except UnicodeDecodeError:
            raise UserError(f"{label} {line(path)}: this name is not UTF-8; rename the file or its folder") from None
        if not os.access(path, os.R_OK, effective_ids=os.access in os.supports_effective_ids):
            raise UserError(f"{label} {path}: cannot be read: permission denied")
    return paths


def hashes(paths: Iterable[str], corpus: Path) -> dict[str, str]:
    """Return {path: sha256} of local files; files that have not changed since they were last hashed are not read."""
    return known_hashes.hashes(paths, corpus / HASHES)


def snapshot(
    patterns: Mapping[str, str],
    corpus: Path,
    before: dict[str, Any] | None = None,
    what: str = "corpus",
    file_format: str | None = None,
) -> dict[str, dict[str, Any]]:
    """Describe what globs match: {pattern: {"files": count, "bytes": sum, "sha256": digest over (path, content hash)}}.

    `patterns` are {glob: the configuration file that contains it, for errors}, and `what` is what the files belong to.
    If the manifest of `corpus` says that the corpus was made from exactly this content, its description is returned.
    (Its sha256 is None if there was no earlier corpus when the corpus was made.) If there is no corpus, those entries
    of `before`, the description of an earlier run, are returned whose number of files and bytes are still right. So if
    a corpus is deleted, only the corpus is made again. A UserError says that a glob matches no file, or that one cannot
    be read.
    """
    files = {pattern: files_of(pattern, f"{where}: {what} file", file_format) for pattern, where in patterns.items()}
    return snapshot_of_files(files, corpus, before)


def snapshot_of_files(
    files: Mapping[str, list[str]], corpus: Path, before: dict[str, Any] | None = None
) -> dict[str, dict[str, Any]]:
    """Return what `snapshot` returns, for the files that were found for each pattern: {pattern: paths}."""
    made = recorded(corpus)
    content = None if made is None else hashes(sorted({p for paths in files.values() for p in paths}), corpus)
    if made is not None and content == made["content"] and made["sources"].keys() >= files.keys():
        return {pattern: made["sources"][pattern] for pattern in files}
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


def recorded(corpus: Path) -> dict[str, Any] | None:
    """Return what the present corpus was made from, or None if there is no corpus.

    The form is {"sources": as in the settings of the corpus, "content": {path: sha256}}.
    """
    try:
        about = manifest.read(corpus)
        listing = {entry["path"]: entry["sha256"] for entry in about["figures"]["sources"]}
        return {"sources": about["settings"]["sources"], "content": listing}
    except (UserError, KeyError, TypeError):
        return None
