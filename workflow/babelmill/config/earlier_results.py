"""Decide which results of earlier releases depend on a rule that is another one now, so that only these are made again.

Settings files say which rule holds only where a result depends on it. There are three such rules:

* **Quotation marks** (`quoting`) enclosed fields in every .tsv, and settings files of local tables still mean this
  (`csv`) where they have no such key. Now a .tsv is read without quoting unless the user asks for it. Settings files
  say so (`format`) where a .tsv has a quotation mark, or a corpus of a download read one.
* **Labels** (`raw_labels`): the stage `corpus` read the cell `250.0` as `250`, and `NA` as empty, which are other
  classes than a table has. Settings files say that labels stay as they stand where a file may have such a cell.
* **Downloads** (`chosen_again`) may have files that words in their names leave out now.
"""

import functools
import glob
import mmap
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from babelmill.config.schema import Corpus
from babelmill.core import manifest
from babelmill.core.files import UserError, read_json
from babelmill.core.formats import DELIMITERS, FORMATS, split_name
from babelmill.core.globs import expand_glob
from babelmill.hub.data_files import chosen_by_words

NAMES = [f"{suffix}{packed}" for suffix in FORMATS for packed in ("", ".gz", ".zst")]


def quoting_in_settings(
    asked: str, patterns: Iterable[str], local: bool = True, file_format: str | None = None
) -> str | None:
    """Return what a settings file says about quoting, or None where it says nothing.

    `asked`: the value of the key `quoting`. Of files in a repository (`local=False`), only the globs are known.
    `file_format`: that of files whose names do not say it (a key that came with this one).
    """
    if asked != "format":
        return "none" if asked == "none" else None
    if file_format is not None:
        return "format" if file_format == "tsv" else None
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
        return about.st_size > 0 and _contains(path, b'"', about.st_size, about.st_mtime_ns)
    except OSError:
        return False  # the stage reports it


@functools.cache
def _contains(path: str, pattern: bytes, _size: int, _changed: int) -> bool:
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return re.search(pattern, content) is not None


CHANGED = r"(?:[+-]?[0-9]+\.0|NA|nan|NaN|null|NULL)"  # cells that `tokens.label_text.label_text` reads otherwise
UNSEEN = r"(?:[ \t\v\f\x1c-\x1f\x80-\xff]|\\[tnrf]|\\u[0-9a-fA-F]{4})*"  # in bytes: what it removes, and more


def labels_stay_as_they_stand(corpus: Corpus, for_classes: bool, made: Path, download: Path | None) -> bool:
    """Return whether settings files say that labels stay as they stand.

    `for_classes`: whether a model learns the labels as classes. Spelt codes are the same in both ways, so a corpus that
    only models of them read is not made again. `made`, `download`: the folders of the corpus, and of the text if it
    comes from the Hub.
    """
    before = "settings" in (about := manifest_of(made)) and "raw_labels" not in about["settings"]
    if before and not for_classes:
        return False
    if download and not before:
        return True  # its files are not known yet
    patterns = [*corpus.files, *corpus.validation_files, *(downloaded(download) if download else ())]
    paths = (path for pattern in patterns for path in expand_glob(pattern))
    return any(_may_change(path, corpus) for path in paths)


def _may_change(path: str, corpus: Corpus) -> bool:
    """Return whether a file may have such a label. A compressed file is not read."""
    suffix, compression = split_name(path, corpus.format)
    if compression:
        return True
    try:
        about = os.stat(path)
        if not about.st_size:
            return False
        identity = about.st_size, about.st_mtime_ns
        if suffix == ".parquet":
            return _in_parquet(path, tuple(corpus.label_columns), *identity)
        # In JSON only text is read otherwise, and quotation marks are around it.
        ends = '"' + (f"\r\n{corpus.delimiter}\t" if suffix in DELIMITERS else "")
        end = f"[{re.escape(ends)}]"
        return _contains(path, f"{end}{UNSEEN}{CHANGED}{UNSEEN}(?:{end}|\\Z)".encode("latin-1"), *identity)
    except OSError:
        return False  # the stage reports it


@functools.cache
def _in_parquet(path: str, names: tuple[str, ...], _size: int, _changed: int) -> bool:
    import pyarrow as pa  # takes a while, and few tables are Parquet
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            return any(
                isinstance(value, str) and re.fullmatch(rf"\W*{CHANGED}\W*", value) is not None
                for batch in file.iter_batches(columns=list(names))
                for column in batch.columns
                for value in column.unique().to_pylist()
            )
    except (pa.ArrowException, LookupError, TypeError, ValueError):
        return True  # not known: what cannot be read may be skipped


def quoting_of_download(corpus: Corpus, made: Path, download: Path) -> str | None:
    """Return `format` if a corpus (`made`) read a .tsv of a download with quoting, and would not now; else None."""
    about = manifest_of(made)
    if about.get("settings", {}).get("corpus", {}).get("quoting") == "format":
        return "format"
    if not _is_earlier(about):
        return None
    return quoting_in_settings("format", downloaded(download), file_format=corpus.format)


def chosen_otherwise(download: Path) -> bool:
    """Return whether a download has files that words in their names leave out now. (A card may have named them.)"""
    about = manifest_of(download)
    if about.get("settings", {}).get("chosen_again"):
        return True
    if not _is_earlier(about):
        return False
    figures = about.get("figures", {})
    return any(map(_drops_files, figures.get("parts") or [figures]))


def _drops_files(part: dict[str, Any]) -> bool:
    if part.get("config") or not part.get("train"):
        return False
    names = [*part["train"], *part.get("validation", [])]
    return chosen_by_words(names, part.get("files"), part.get("format")).train != sorted(part["train"])


def downloaded(download: Path) -> list[str]:
    """Return globs for the files of a download."""
    return [glob.escape(str(download / name)) for name in manifest_of(download).get("files", {})]


def manifest_of(folder: Path) -> dict[str, Any]:
    """Return the manifest of a folder; {} without one, or if it is damaged, which is an error when it is used."""
    path = folder / manifest.NAME
    try:
        content = read_json(path)
        manifest.unsealed(content, path, "")
    except UserError:
        return {}
    return content if isinstance(content, dict) else {}


def _is_earlier(about: dict[str, Any]) -> bool:
    """Return whether release 0.2.0 wrote a manifest, which had no sha256 of its own."""
    return bool(about) and "sha256" not in about
