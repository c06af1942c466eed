"""Glob patterns of a configuration: the files they match, and a fingerprint of these."""

import functools
import glob
import hashlib
import os

from babelmill.files import UserError


def expand_glob(pattern: str) -> list[str]:
    """The files that a glob matches, sorted; `**` crosses folders."""
    return sorted(path for path in glob.glob(pattern, recursive=True) if os.path.isfile(path))


@functools.cache
def snapshot(pattern: str, where: str = "") -> dict:
    """What a glob matches now: {"files": count, "bytes": sum, "sha256": digest over (path, size, modification time)}.

    Ten thousand files are one line of settings, and an older file in a newer one's place is seen.
    """
    paths = expand_glob(pattern)
    if not paths:
        hint = f"; it is a folder, write {pattern.rstrip('/')}/*.txt" if os.path.isdir(pattern) else ""
        raise UserError(f"{where}: corpus file {pattern}: no such file{hint}")
    listing, size = hashlib.sha256(), 0
    for path in paths:
        status = os.stat(path)
        size += status.st_size
        listing.update(f"{path}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    return {"files": len(paths), "bytes": size, "sha256": listing.hexdigest()}
