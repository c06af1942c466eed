"""Find the local text files that a glob matches, and compute a digest of their content; read only changed files.

What is made of files depends on their content, not on their times. So nothing runs again after `touch`, `cp -r` or a
fresh clone, and an edit that keeps a file's size and time is noticed. Reading ten thousand files at every dry run would
take minutes. So `results/known_hashes.json` keeps the hash of each file (see `known_hashes.py`), and unchanged files are
not read.
"""

import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from babelmill.core import known_hashes
from babelmill.core.escape import line
from babelmill.core.files import UserError, not_found
from babelmill.core.formats import format_of
from babelmill.core.globs import expand_glob

HASHES = Path("results/known_hashes.json")


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


def hashes(paths: Iterable[str]) -> dict[str, str]:
    """Return {path: sha256} of local files; files that have not changed since they were last hashed are not read."""
    return known_hashes.hashes(paths, HASHES)


def snapshot(
    patterns: Mapping[str, str], what: str = "corpus", file_format: str | None = None
) -> dict[str, dict[str, Any]]:
    """Describe what globs match: {pattern: {"files": count, "bytes": sum, "sha256": digest over (path, content hash)}}.

    `patterns` are {glob: the configuration file that contains it, for errors}, and `what` is what the files belong to.
    A UserError says that a glob matches no file, or that one cannot be read.
    """
    return {
        pattern: of_files(files_of(pattern, f"{where}: {what} file", file_format))
        for pattern, where in patterns.items()
    }


def of_files(paths: list[str]) -> dict[str, Any]:
    """Return the entry of a glob in `snapshot` that matches some files."""
    content = hashes(paths)
    listing = "".join(f"{path}\0{content[path]}\n" for path in paths)
    digest = hashlib.sha256(listing.encode()).hexdigest()
    return {"files": len(paths), "bytes": sum(os.path.getsize(path) for path in paths), "sha256": digest}
