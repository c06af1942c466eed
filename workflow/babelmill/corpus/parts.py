"""Make a part of a corpus, and read the parts again (`corpus.parts`).

The text of a language may be too much for one machine. Then several jobs each read and clean some of its files, and
write the documents with their digests and the bands of near copies. One job reads what they wrote in place of the
files, and does what needs all documents: it drops duplicates and near copies, draws the sample and chooses the
validation documents. It takes the same steps on the same batches as a job that reads all files itself. So the corpus
has the same bytes for any number of parts.

A part has whole files. Files are not cut, and small files that are read together stay together.
"""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from babelmill.config.corpus_parts import number_of
from babelmill.config.stage_settings import CorpusSettings
from babelmill.core import manifest
from babelmill.core.bars import Bar
from babelmill.core.files import UserError
from babelmill.corpus.pieces import groups
from babelmill.corpus.reading import Reading
from babelmill.corpus.record_batches import Spool
from babelmill.corpus.tally import Tally
from babelmill.corpus.workers import progress

DOCUMENTS = "documents.arrow"


def files_of(name: str, paths: list[Path], reading: Reading) -> list[Path]:
    """Return the files of a part: successive ones, about as many bytes as in each other part."""
    _, number, count = number_of(name)
    found = [*groups(paths, reading)]
    sizes = np.array([group.size for group in found], np.int64)
    middles = np.cumsum(sizes) - sizes / 2
    parts = np.floor(middles / max(1, sizes.sum()) * count)
    return [path for group, part in zip(found, parts, strict=True) if part == number - 1 for path in group.paths]


def write(
    folder: Path,
    name: str,
    paths: list[Path],
    documents: Iterator[pa.RecordBatch],
    tally: Tally,
    settings: CorpusSettings,
    upstream: list[Path],
) -> dict[str, Any]:
    """Write the documents of a part, which `workers.read_all` yields for its files; return what its manifest says."""
    with open(folder / DOCUMENTS, "wb") as file:
        spool = Spool(file)
        for batch in documents:
            spool.write(batch)
        spool.close()
    figures = {"part": name, "read": list(map(str, paths)), "tally": tally.to_json()}
    manifest.write(folder, settings, [DOCUMENTS], upstream, figures)
    return figures


def check(folders: Sequence[Path], paths: list[Path], settings: CorpusSettings, upstream: list[Path]) -> None:
    """Raise a UserError unless these are all parts of the corpus, made from these files with these settings."""
    remedy = "delete it, and run the workflow again"
    read: list[str] = []
    for number, folder in enumerate(folders, 1):
        about = manifest.read(folder)
        if about["settings"] != settings.raw or about["figures"]["part"] != folder.name:
            raise UserError(f"{folder}: this part of the corpus was made with other settings; {remedy}")
        if number_of(folder.name)[1:] != (number, len(folders)):
            raise UserError(f"{folder}: is part {folder.name}, but part {number} of {len(folders)} is needed here")
        manifest.verify_upstream(folder, *upstream)
        read += about["figures"]["read"]
    if read != list(map(str, paths)):
        raise UserError(
            f"{folders[0].parent}: the files of {settings.name} are not those that the parts were made from;"
            " delete this folder, and run the workflow again"
        )


def read_all(folders: Sequence[Path], tally: Tally) -> Iterator[pa.RecordBatch]:
    """Yield the documents of all parts, in order, as `workers.read_all` yields those of all files."""
    total, before = sum((folder / DOCUMENTS).stat().st_size for folder in folders), 0
    with contextlib.closing(Bar(total)) as bar:
        for folder in folders:
            about = manifest.verify(folder)
            tally.merge(Tally.from_json(about["figures"]["tally"]))
            with pa.OSFile(str(folder / DOCUMENTS)) as file:
                for batch in pa.ipc.open_stream(file) if file.size() else ():
                    bar.show(before + file.tell(), progress(tally, before + file.tell()))
                    yield batch
                before += file.size()
