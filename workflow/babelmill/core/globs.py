"""Find the files that a glob matches: each real file once, and an error for a folder that cannot be read.

`glob` of the standard library silently skips folders that it may not read. It also follows a symbolic link to a folder
above it forty times, so it would return each text below that folder forty times.
"""

import errno
import fnmatch
import glob
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from babelmill.core.files import UserError

FOLDERS = "**"


def at_home(path: str) -> str:
    """Return a path with the user's home folder in place of a `~` at its beginning, as a shell does it."""
    found = os.path.expanduser(path)
    if found == path and (path == "~" or path.startswith("~/")):
        raise UserError(f"{path}: your home folder is not known (HOME is not set); write the whole path")
    return found


def expand_glob(pattern: str) -> list[str]:
    """Return the files that a glob matches, sorted; `**` crosses folders.

    A UserError says that a folder cannot be read.
    """
    parts = parts_of(pattern)
    return distinct(_below("", parts)) if parts else []


def parts_of(pattern: str) -> tuple[str, ...]:
    """Return the parts of a glob, without a `**` that follows another: it would match the same in more ways."""
    parts = PurePosixPath(pattern).parts
    return tuple(part for i, part in enumerate(parts) if part != FOLDERS or parts[i - 1 : i] != (FOLDERS,))


def matches(path: str, pattern: str) -> bool:
    """Return whether a path matches a glob, part by part: `*` stays within a folder, `**` crosses folders.

    The time grows with the number of parts of both: a glob from elsewhere may contain many `**`.
    """
    names = PurePosixPath(path).parts
    fitting = {0}  # how many of the names the parts so far can stand for
    for part in parts_of(pattern):
        if part == FOLDERS:
            fitting = set(range(min(fitting), len(names) + 1))
        else:
            fitting = {n + 1 for n in fitting if n < len(names) and fnmatch.fnmatchcase(names[n], part)}
        if not fitting:
            return False
    return len(names) in fitting


def distinct(paths: Iterable[str]) -> list[str]:
    """Return each real file once, sorted. Of several paths to a file, keep the one with the fewest folders."""
    real_folders: dict[str, str] = {}
    found: dict[str, str] = {}
    for path in sorted(set(paths), key=lambda path: (path.count("/"), path)):
        folder, name = os.path.split(path)
        if folder not in real_folders:
            real_folders[folder] = os.path.realpath(folder or ".")
        real = os.path.realpath(path) if os.path.islink(path) else os.path.join(real_folders[folder], name)
        found.setdefault(real, path)
    return sorted(found.values())


def _below(folder: str, parts: tuple[str, ...]) -> Iterator[str]:
    """Yield the files in a folder ("" is the working folder) that match a glob's parts."""
    first, rest = parts[0], parts[1:]
    if first == FOLDERS:
        for inner in _folders(folder):
            yield from _below(inner, rest or ("*",))
        return
    names = [first]
    if glob.has_magic(first):
        names = fnmatch.filter(_listing(folder, hidden=first.startswith(".")), first)
    for name in names:
        path = os.path.join(folder, name)
        kind = _kind(path)
        if rest and kind == stat.S_IFDIR:
            yield from _below(path, rest)
        elif not rest and kind == stat.S_IFREG:
            yield path


def _folders(top: str) -> Iterator[str]:
    """Yield a folder and all folders below it, each real folder once. A path without links is preferred."""
    seen: set[str] = set()
    links = [top]
    while links:
        waiting = [links.pop(0)]
        while waiting:
            folder = waiting.pop()
            real = os.path.realpath(folder or ".")
            if real in seen:
                continue
            seen.add(real)
            yield folder
            for path in (os.path.join(folder, name) for name in _listing(folder)):
                if _kind(path) == stat.S_IFDIR:
                    (links if os.path.islink(path) else waiting).append(path)


def _listing(folder: str, hidden: bool = False) -> list[str]:
    """Return the names in a folder, sorted: those that begin with a dot if `hidden`, otherwise the others."""
    try:
        return sorted(name for name in os.listdir(folder or ".") if name.startswith(".") == hidden)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise UserError(f"{folder or '.'}: cannot be read: {error.strerror}") from None


def _kind(path: str) -> int | None:
    """Return the type of a path, as `stat.S_IFMT` gives it; None if there is nothing at the path."""
    try:
        return stat.S_IFMT(os.stat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:  # a link to itself
            return None
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
