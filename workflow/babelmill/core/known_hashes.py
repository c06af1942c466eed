"""Keep hashes of files in a JSON file, so that unchanged files are not read again.

Each hash is kept with the file's size, modification time, change time and inode. If all four are the same, the file is
not read. So after `touch` or `cp -r` a file is read once more, and an edit that keeps size and modification time is
noticed.
"""

import contextlib
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from babelmill.core import bars, escape
from babelmill.core.files import UserError, read_json, sha256, write_json

QUIET = 10.0  # seconds between messages of progress
LARGE = 1 << 30  # bytes; a message names a file of at least this size before it is read


def identity(path: str | Path) -> list[int]:
    """Return size, modification time, change time and inode of a file: an edit changes at least one of them."""
    status = os.stat(path)
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]


def read(store: Path) -> dict[str, dict[str, Any]]:
    """Return {path: {"identity", "sha256"}} of the files hashed before; {} if `store` is missing or not valid."""
    try:
        entries = read_json(store)
        return {path: {"identity": entry["identity"], "sha256": entry["sha256"]} for path, entry in entries.items()}
    except (UserError, AttributeError, KeyError, TypeError):
        return {}


def hashes(paths: Iterable[str], store: Path) -> dict[str, str]:
    """Return {path: sha256} of files, and keep it in `store`; files that have not changed since are not read."""
    known = read(store)
    return keep(hash_changed(paths, known, store), known, store)


def hash_changed(paths: Iterable[str], known: dict[str, dict[str, Any]], store: Path) -> dict[str, dict[str, Any]]:
    """Return the entries of files as they are now, in the form that `read` returns; unchanged files are not read."""
    entries, spoken = {}, time.monotonic()
    for number, path in enumerate(paths, 1):
        now, entry = identity(path), known.get(path)
        if entry is None or entry["identity"] != now:
            if now[0] >= LARGE:
                bars.say(f"reading {escape.line(path)} ({now[0] / 1e9:.1f} GB) to hash it, once")
            entry = {"identity": now, "sha256": sha256(path)}
            if time.monotonic() - spoken > QUIET:
                bars.say(f"hashing files for {store}: {number} so far")
                spoken = time.monotonic()
        entries[path] = entry
    return entries


def keep(entries: dict[str, dict[str, Any]], known: dict[str, dict[str, Any]], store: Path) -> dict[str, str]:
    """Write entries to `store` if they differ from those `known` before; return {path: sha256}."""
    if any(known.get(path) != entry for path, entry in entries.items()):
        with contextlib.suppress(OSError, UserError):  # the folder is read-only: the next call hashes again
            write_json(store, known | entries)
    return {path: entry["sha256"] for path, entry in entries.items()}
