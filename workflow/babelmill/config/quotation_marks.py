"""Decide what settings files say about quotation marks around the fields of .csv and .tsv files (`quoting`).

Before this key existed, quotation marks enclosed fields in every .tsv. Settings files of local tables still mean this
(`csv`) where they have no such key. Now a .tsv is read without quoting unless the user asks for it. Settings files say
so (`format`) where a .tsv has a quotation mark. So only those results change that depend on it.
"""

import functools
import mmap
import os
from collections.abc import Iterable

from babelmill.core.formats import FORMATS, split_name
from babelmill.core.globs import expand_glob

NAMES = [f"{suffix}{packed}" for suffix in FORMATS for packed in ("", ".gz", ".zst")]


def in_settings(asked: str, patterns: Iterable[str], local: bool = True, said: str | None = None) -> str | None:
    """Return what a settings file says about quoting, or None where it says nothing.

    Args:
        asked: the value of the key `quoting`.
        patterns: the globs of the files.
        local: whether the files are local. Of a repository, only the globs are known.
        said: the format of the files, if their names do not say it (a key that came with this one).
    """
    if asked != "format":
        return "none" if asked == "none" else None
    if said is not None:
        return "format" if said == "tsv" else None
    possible = filter(_may_be_tsv, patterns)
    if not local:
        return "format" if any(possible) else None
    found = (path for pattern in possible for path in expand_glob(pattern))
    return "format" if any(_has_mark(path) for path in found if split_name(path)[0] == ".tsv") else None


def _may_be_tsv(pattern: str) -> bool:
    """Return whether a glob can match a .tsv file: it names the format, or none."""
    ending = pattern[max(pattern.rfind(mark) for mark in "*?]/") + 1 :]
    return ".tsv" in pattern or not ending.endswith(tuple(NAMES))


def _has_mark(path: str) -> bool:
    """Return whether a file has a quotation mark. A compressed file is not read: most text has one."""
    if split_name(path)[1]:
        return True
    try:
        about = os.stat(path)
        return about.st_size > 0 and _contains_mark(path, about.st_size, about.st_mtime_ns)
    except OSError:
        return False  # the stage reports it


@functools.cache
def _contains_mark(path: str, _size: int, _changed: int) -> bool:
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(b'"') >= 0
