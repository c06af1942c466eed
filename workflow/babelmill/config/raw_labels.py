"""Decide whether settings files say that labels stay as they stand (`raw_labels`).

Before this key existed, the stage `corpus` read the cell `250.0` as `250`, and `NA` as empty, which are other classes
than a table has. Settings files say that labels stay as they stand where a file may have such a cell. So only those
results change that depend on it.
"""

import functools
import mmap
import os
import re
from pathlib import Path

from babelmill.config.earlier_downloads import downloaded, manifest_of
from babelmill.config.schema import Corpus
from babelmill.core.formats import DELIMITERS, split_name
from babelmill.core.globs import expand_glob

CHANGED = r"(?:[+-]?[0-9]+\.0|NA|nan|NaN|null|NULL)"  # cells that `tokens.label_text.label_text` reads otherwise
UNSEEN = r"(?:[ \t\v\f\x1c-\x1f\x80-\xff]|\\[tnrf]|\\u[0-9a-fA-F]{4})*"  # in bytes: what it removes, and more


def stay_as_they_stand(corpus: Corpus, for_classes: bool, made: Path, download: Path | None) -> bool:
    """Return whether settings files say that labels stay as they stand.

    Args:
        corpus: its section.
        for_classes: whether a model learns the labels as classes. Spelt codes are the same in both ways, so a corpus
            that only models of them read is not made again.
        made: the folder of the corpus.
        download: the folder of the download, if the text comes from the Hub.
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
        return _in_text(path, ends, *identity)
    except OSError:
        return False  # the stage reports it


@functools.cache
def _in_text(path: str, ends: str, _size: int, _changed: int) -> bool:
    end = f"[{re.escape(ends)}]"
    pattern = re.compile(f"{end}{UNSEEN}{CHANGED}{UNSEEN}(?:{end}|\\Z)".encode("latin-1"))
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return pattern.search(content) is not None


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
