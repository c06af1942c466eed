"""Cut the files of a corpus into pieces that `work` reads, cleans and hashes independently of each other.

A piece is several small files, a block of about 1 MB of a large file of lines, or row groups of a Parquet file. Some
files cannot be cut: a large CSV file, which may have line ends in quotes, or a row group of hundreds of megabytes. This
process reads them, and each batch is a piece. It also decompresses files of lines and cuts them into blocks, which
other processes parse.

The pieces, and so the results, depend only on the files, never on the number of processes.
"""

import dataclasses
import functools
import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from babelmill.core.escape import line
from babelmill.core.formats import split_name
from babelmill.corpus import readers
from babelmill.corpus.cleaning import clean
from babelmill.corpus.digests import digests_of, with_digests
from babelmill.corpus.near_duplicates import with_bands
from babelmill.corpus.readers.lines import Block, blocks_to_parse, parse
from babelmill.corpus.readers.parquet import open_parquet, read_row_group
from babelmill.corpus.reading import Reading, SourceFile
from babelmill.corpus.record_batches import BLOCK, ROWS
from babelmill.corpus.tally import Tally
from babelmill.text_files.opening import open_file

log = logging.getLogger("babelmill.corpus")
LARGE = 2 << 20  # bytes; files of at least this size are cut, smaller ones are read together
COST = 4096  # bytes to add to each small file: opening it takes as long as reading so many bytes
EXPANDS = 4  # bytes of text per byte of a compressed file
LARGEST = 32 << 20  # bytes; this process reads larger row groups, batch by batch
QUIET = 10  # seconds between progress messages


@dataclasses.dataclass
class TalliedBatches:
    """Holds batches of documents and their tally: a piece that is already read, or the result of `work`."""

    batches: list[pa.RecordBatch]
    tally: Tally

    @property
    def size(self) -> int:
        """Return the approximate bytes of text. All kinds of pieces have this property."""
        return sum(batch.nbytes for batch in self.batches)

    def read(self, _reading: Reading, tally: Tally) -> Iterator[pa.RecordBatch]:
        """Yield the batches, and add their counts to `tally`."""
        tally.merge(self.tally)
        yield from self.batches

    def __getstate__(self) -> dict[str, Any]:
        """Pack the batches in Arrow's own format. (If a slice is pickled, it is as large as the whole batch.)"""
        sink = pa.BufferOutputStream()
        if self.batches:
            with pa.ipc.new_stream(sink, self.batches[0].schema) as stream:
                for batch in self.batches:
                    stream.write_batch(batch)
        return {"packed": sink.getvalue(), "tally": self.tally}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.tally = state["tally"]
        self.batches = list(pa.ipc.open_stream(state["packed"])) if len(state["packed"]) else []


@dataclasses.dataclass(frozen=True)
class SmallFiles:
    """Holds small files that are read together."""

    paths: list[Path]
    size: int

    def read(self, reading: Reading, tally: Tally) -> Iterator[pa.RecordBatch]:
        """Yield the documents in batches of about 1 MB. A batch may hold the documents of several files."""
        waiting: list[pa.RecordBatch] = []
        size = rows = 0
        for path in self.paths:
            for batch in readers.read(path, reading, tally):
                waiting.append(batch)
                size += batch.get_total_buffer_size()
                rows += batch.num_rows
                if size >= BLOCK or rows >= ROWS:
                    yield pa.concat_batches(waiting)
                    waiting, size, rows = [], 0, 0
        if waiting:
            yield pa.concat_batches(waiting)


@dataclasses.dataclass(frozen=True)
class LineBlock:
    """Holds lines (or paragraphs) of a file."""

    path: Path
    block: Block

    @property
    def size(self) -> int:
        return len(self.block.raw)

    def read(self, reading: Reading, tally: Tally) -> Iterator[pa.RecordBatch]:
        batch = parse(SourceFile(self.path, reading, tally), self.block)
        tally.read += batch.num_rows
        yield batch


@dataclasses.dataclass(frozen=True)
class RowGroups:
    """Holds row groups of a Parquet file, each as (index, number of its first row)."""

    path: Path
    groups: list[tuple[int, int]]
    size: int

    def read(self, reading: Reading, tally: Tally) -> Iterator[pa.RecordBatch]:
        file = SourceFile(self.path, reading, tally)
        with readers.reporting(self.path, tally):
            parquet = _opened(file)
            for group, number in self.groups:
                for batch in read_row_group(file, parquet, group, number):
                    tally.read += batch.num_rows
                    yield batch


_open = threading.local()  # the Parquet file that a thread reads


def _opened(file: SourceFile) -> pq.ParquetFile:
    """Return an open Parquet file. The thread keeps it open, and so reads its footer (thousands of row groups) once."""
    if getattr(_open, "key", None) != (file.path, file.reading):
        _open.parquet = open_parquet(file, pa.OSFile(str(file.path)))
        _open.key = file.path, file.reading
    return _open.parquet


Piece = TalliedBatches | SmallFiles | LineBlock | RowGroups


def work(piece: Piece, reading: Reading) -> TalliedBatches:
    """Read and clean a piece. Return batches with the digests of the documents, and the bands of `with_bands`.

    If the reading has a view, return what it makes of the batches with digests.
    """
    tally = Tally(reading.corpus.on_error, held=[])
    steps = reading.boilerplate, reading.identification, reading.decontamination
    batches = [clean(batch, reading.corpus, tally, *steps) for batch in piece.read(reading, tally)]
    batches = [with_digests(batch, digests_of(batch)) for batch in batches]
    view = reading.view or functools.partial(with_bands, corpus=reading.corpus)
    return TalliedBatches([view(batch) for batch in batches], tally)


def pieces(paths: list[Path], reading: Reading) -> Iterator[Piece]:
    """Yield the pieces of files, in order."""
    small: list[Path] = []
    size, logged = 0, 0.0
    for number, path in enumerate(paths, 1):
        if time.monotonic() - logged > QUIET:
            log.info("reading %s (%d of %d)", line(path), number, len(paths))
            logged = time.monotonic()
        weight = text_size(path)
        is_one_document = reading.corpus.document == "file" and split_name(path, reading.corpus.format)[0] == ".txt"
        is_cut = weight >= LARGE and not is_one_document
        if not is_cut:
            small.append(path)
            size += weight + COST
        if small and (size >= BLOCK or is_cut):
            yield SmallFiles(small, size)
            small, size = [], 0
        if is_cut:
            yield from _of_large_file(SourceFile(path, reading, Tally(reading.corpus.on_error, held=[])))
    if small:
        yield SmallFiles(small, size)


def text_size(path: Path) -> int:
    """Return the approximate bytes of text in a file, or 0 if the file is missing (its reader will report this)."""
    try:
        return path.stat().st_size * (EXPANDS if split_name(path)[1] else 1)
    except OSError:
        return 0


def _of_large_file(file: SourceFile) -> Iterator[Piece]:
    """Yield the pieces of a large file: blocks of lines, row groups, or batches that this process reads."""
    path, tally = file.path, file.tally
    with readers.reporting(path, tally), open_file(path, file.suffix, file.compression) as stream:
        if file.suffix in (".jsonl", ".json", ".txt"):
            yield from (LineBlock(path, block) for block in blocks_to_parse(file, stream))
        elif file.suffix == ".parquet" and not file.compression:
            yield from _of_parquet(file, stream)
        else:
            for batch in readers.read(path, file.reading, tally):
                yield TalliedBatches([batch], tally.take())
    yield TalliedBatches([], tally)


def _of_parquet(file: SourceFile, stream: pa.NativeFile) -> Iterator[Piece]:
    """Yield several small row groups together, and the batches of each large row group."""
    path, tally = file.path, file.tally
    together: list[tuple[int, int]] = []
    size, number = 0, 1
    with open_parquet(file, stream) as parquet:
        for group in range(parquet.num_row_groups):
            facts = parquet.metadata.row_group(group)
            if together and size + facts.total_byte_size > BLOCK:
                yield RowGroups(path, together, size)
                together, size = [], 0
            if facts.total_byte_size > LARGEST:
                for batch in read_row_group(file, parquet, group, number):
                    tally.read += batch.num_rows
                    yield TalliedBatches([batch], tally.take())
            else:
                together.append((group, number))
                size += facts.total_byte_size
            number += facts.num_rows
    if together:
        yield RowGroups(path, together, size)
