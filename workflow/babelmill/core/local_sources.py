"""Find the local files that a glob matches, and compute hashes of their content; read only changed files.

What is made of files depends on their content, not on their times. So nothing runs again after `touch`, `cp -r` or a
fresh clone, and an edit that keeps a file's size and time is noticed. Reading ten thousand files at every dry run would
take minutes. So `results/known_hashes.json` keeps the hash of each file, with its size, modification time, change time
and inode: if all four are the same, the file is not read.
"""

import contextlib
import functools
import glob
import hashlib
import itertools
import os
import time
import unicodedata
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Any

from babelmill.core import bars
from babelmill.core.escape import line
from babelmill.core.files import UNREADABLE, UserError, not_found, read_json, sha256, write_json
from babelmill.core.formats import format_of

HASHES = Path("results/known_hashes.json")
QUIET = 10.0  # seconds between messages of progress
LARGE = 1 << 30  # bytes; a message names a file of at least this size before it is read


def expand_glob(pattern: str) -> list[str]:
    """Return the files that a glob matches, sorted, each real file once; `**` crosses folders.

    A file or folder with brackets in its name is meant, if there is one, and letters with accents are the same however
    they are composed. A UserError names a folder that `**` cannot cross: its text would silently be missing.
    """
    pattern = _literal(PurePosixPath(pattern))
    before, stars, _ = pattern.partition("**")
    for folder in glob.iglob(f"{before}**/", recursive=True) if stars else ():
        if not os.access(folder, os.R_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
            raise UserError(f"{folder.rstrip('/')}: cannot be read: permission denied")
    spellings = {pattern, *(unicodedata.normalize(form, pattern) for form in ("NFC", "NFD"))}
    found = itertools.chain.from_iterable(glob.iglob(each, recursive=True) for each in spellings)
    return distinct(filter(os.path.isfile, found))


def _literal(pattern: PurePosixPath) -> str:
    """Return a glob in which names of files and folders that are there, such as `a[1].txt`, stand for themselves."""
    there, found = PurePosixPath(), PurePosixPath()
    for part in pattern.parts:
        there /= part
        found /= glob.escape(part) if "[" in part and os.path.exists(there) else part
    return str(found)


def distinct(paths: Iterable[str]) -> list[str]:
    """Return each real file once, sorted. Of several paths to a file, keep the one with the fewest folders."""
    found: dict[str, str] = {}
    for path in sorted(set(paths), key=lambda path: (path.count("/"), path)):
        found.setdefault(os.path.realpath(path), path)
    return sorted(found.values())


def files_of(pattern: str, label: str, file_format: str | None = None) -> list[str]:
    """Return the files that a glob matches, sorted, and check that they can be read; `label` begins an error.

    `file_format`: that of the files, if their names do not say it (`corpus.format`). A UserError says that no
    file matches, or that one cannot be read.
    """
    paths = expand_glob(pattern)
    if not paths:
        folder = f"no such file; this is a folder: write {pattern.rstrip('/')}/*" if os.path.isdir(pattern) else ""
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


@functools.cache
def matched(pattern: str, label: str, file_format: str | None = None) -> dict[str, Any]:
    """Describe what a glob matches, as `of_files` does; a process looks once. The arguments are those of `files_of`."""
    return of_files(files_of(pattern, label, file_format))


def of_files(paths: list[str]) -> dict[str, Any]:
    """Describe files: {"files": count, "bytes": sum, "sha256": digest over (path, content hash)}."""
    content = hashes(paths)
    listing = b"".join(b"%s\0%s\n" % (os.fsencode(path), content[path].encode()) for path in paths)
    digest = hashlib.sha256(listing).hexdigest()
    return {"files": len(paths), "bytes": sum(os.path.getsize(path) for path in paths), "sha256": digest}


def hashes(paths: Iterable[str], store: Path = HASHES) -> dict[str, str]:
    """Return {path: sha256} of files, and keep it in `store`; files that have not changed since are not read."""
    try:
        known = {path: {"identity": old["identity"], "sha256": old["sha256"]} for path, old in read_json(store).items()}
    except (*UNREADABLE, AttributeError):  # it is missing or damaged
        known = {}
    entries, spoken = {}, time.monotonic()
    names = {os.fsencode(path).decode("utf-8", "replace"): path for path in paths}  # in any locale
    for number, (name, path) in enumerate(names.items(), 1):
        status = os.stat(path)
        now = [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]  # an edit changes one of them
        if name in known and known[name]["identity"] == now:
            entries[name] = known[name]
            continue
        if now[0] >= LARGE or time.monotonic() - spoken > QUIET:
            bars.say(f"hashing {line(path)} ({now[0] / 1e9:.1f} GB), file {number}")
            spoken = time.monotonic()
        entries[name] = {"identity": now, "sha256": sha256(path)}
    if any(known.get(name) != entry for name, entry in entries.items()):
        with contextlib.suppress(OSError, UserError):  # the folder is read-only: the next call hashes again
            write_json(store, {name: each for name, each in (known | entries).items() if os.path.exists(name.encode())})
    return {names[name]: entry["sha256"] for name, entry in entries.items()}
