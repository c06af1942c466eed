"""Cut the files of a corpus into pieces that `work` reads, cleans and hashes independently of each other.

A piece is several small files, a block of about 1 MB of a large file of lines, or row groups of a Parquet file. Some
files cannot be cut: a large CSV file, which may have line ends in quotes, or a row group of hundreds of megabytes. This
process reads them, and each batch is a piece. It also decompresses files of lines and cuts them into blocks, which
other processes parse.

The pieces, and so the results, depend only on the files, never on the number of processes.
"""

import contextlib
import dataclasses
import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from babelmill.config import schema
from babelmill.core.escape import line
from babelmill.core.formats import split_name
from babelmill.corpus import readers
from babelmill.corpus.cleaning import clean
from babelmill.corpus.columns import Columns
from babelmill.corpus.digests import digests_of, with_digests
from babelmill.corpus.readers.lines import Block, blocks_to_parse, parse
from babelmill.corpus.readers.parquet import open_parquet, read_row_group
from babelmill.corpus.record_batches import BLOCK, ROWS
from babelmill.corpus.tally import Tally
from babelmill.text_files.opening import open_file

log = logging.getLogger("babelmill.corpus")
LARGE = 2 << 20  # bytes; files of at least this size are cut, smaller ones are read together
COST = 4096  # bytes to add to each small file: opening it takes as long as reading so many bytes
EXPANDS = 4  # bytes of text per byte of a compressed file
LARGEST = 32 << 20  # bytes; this process reads larger row groups, batch by batch
QUIET = 10  # seconds between progress messages


@dataclasses.dataclass(frozen=True)
class Reading:
    """Says how to read files.

    Attributes:
        corpus: the section `corpus` of the configuration.
        text_columns: {file: column} of the files that have their own column of text.
        scratch: folder for temporary files.
        raw_labels: whether labels stay as they stand.
    """

    corpus: schema.Corpus
    text_columns: dict[Path, str]
    scratch: Path
    raw_labels: bool = False

    def columns(self, path: Path) -> Columns:
        """Return the columns that are read from a file."""
        return Columns.of(self.corpus, self.text_columns.get(path), self.raw_labels)

    def suffix(self, path: Path) -> str:
        """Return the ending that says a file's format, such as `.txt`."""
        return split_name(path, self.corpus.format)[0]

    def read(self, path: Path, tally: Tally) -> Iterator[pa.RecordBatch]:
        """Yield the documents of a whole file."""
        return readers.read(path, tally, self.columns(path), document=self.corpus.document, scratch=self.scratch)


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
            for batch in reading.read(path, tally):
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
        """Return the bytes of text."""
        return len(self.block.raw)

    def read(self, reading: Reading, tally: Tally) -> Iterator[pa.RecordBatch]:
        """Yield the documents."""
        batch = parse(self.path, self.block, tally, reading.columns(self.path), reading.corpus.document)
        tally.read += batch.num_rows
        yield batch


@dataclasses.dataclass(frozen=True)
class RowGroups:
    """Holds row groups of a Parquet file, each as (index, number of its first row)."""

    path: Path
    groups: list[tuple[int, int]]
    size: int

    def read(self, reading: Reading, tally: Tally) -> Iterator[pa.RecordBatch]:
        """Yield the documents."""
        columns = reading.columns(self.path)
        with readers.reporting(self.path, tally):
            file = _opened(self.path, columns)
            for group, number in self.groups:
                for batch in read_row_group(self.path, file, group, number, tally, columns):
                    tally.read += batch.num_rows
                    yield batch


_open = threading.local()  # the Parquet file that a thread reads


def _opened(path: Path, columns: Columns) -> pq.ParquetFile:
    """Return an open Parquet file. The thread keeps it open, and so reads its footer (thousands of row groups) once."""
    if getattr(_open, "key", None) != (path, columns):
        _open.file = open_parquet(path, pa.OSFile(str(path)), columns)
        _open.key = path, columns
    return _open.file


Piece = TalliedBatches | SmallFiles | LineBlock | RowGroups


def work(piece: Piece, reading: Reading) -> TalliedBatches:
    """Read and clean a piece. Return batches with the digests of the documents as their last column."""
    tally = Tally(reading.corpus.on_error, held=[])
    batches = [clean(batch, reading.corpus, tally) for batch in piece.read(reading, tally)]
    return TalliedBatches([with_digests(batch, digests_of(batch)) for batch in batches], tally)


def pieces(paths: list[Path], reading: Reading) -> Iterator[Piece]:
    """Yield the pieces of files, in order."""
    small: list[Path] = []
    size, logged = 0, 0.0
    for i, path in enumerate(paths, 1):
        if time.monotonic() - logged > QUIET:
            log.info("reading %s (%d of %d)", line(path), i, len(paths))
            logged = time.monotonic()
        weight = text_size(path)
        if weight < LARGE or _is_one_document(path, reading):
            small.append(path)
            size += weight + COST
        if small and (size >= BLOCK or small[-1] is not path):
            yield SmallFiles(small, size)
            small, size = [], 0
        if weight >= LARGE and not _is_one_document(path, reading):
            yield from _of_large_file(path, reading)
    if small:
        yield SmallFiles(small, size)


def text_size(path: Path) -> int:
    """Return the approximate bytes of text in a file, or 0 if the file is missing (its reader will report this)."""
    try:
        return path.stat().st_size * (EXPANDS if split_name(path)[1] else 1)
    except OSError:
        return 0


def _is_one_document(path: Path, reading: Reading) -> bool:
    return reading.corpus.document == "file" and reading.suffix(path) == ".txt"


def _of_large_file(path: Path, reading: Reading) -> Iterator[Piece]:
    """Yield the pieces of a large file: blocks of lines, row groups, or batches that this process reads."""
    tally = Tally(reading.corpus.on_error, held=[])
    suffix, compression = split_name(path, reading.corpus.format)
    with readers.reporting(path, tally), contextlib.closing(open_file(path, suffix, compression)) as stream:
        if suffix in (".jsonl", ".json", ".txt"):
            found = blocks_to_parse(path, stream, tally, reading.columns(path), reading.corpus.document)
            yield from (LineBlock(path, block) for block in found)
        elif suffix == ".parquet" and not compression:
            yield from _of_parquet(path, stream, reading, tally)
        else:
            for batch in reading.read(path, tally):
                yield TalliedBatches([batch], tally.take())
    yield TalliedBatches([], tally)


def _of_parquet(path: Path, stream: pa.NativeFile, reading: Reading, tally: Tally) -> Iterator[Piece]:
    """Yield several small row groups together, and the batches of each large row group."""
    columns = reading.columns(path)
    together: list[tuple[int, int]] = []
    size, number = 0, 1
    with open_parquet(path, stream, columns) as file:
        for group in range(file.num_row_groups):
            facts = file.metadata.row_group(group)
            if together and size + facts.total_byte_size > BLOCK:
                yield RowGroups(path, together, size)
                together, size = [], 0
            if facts.total_byte_size > LARGEST:
                for batch in read_row_group(path, file, group, number, tally, columns):
                    tally.read += batch.num_rows
                    yield TalliedBatches([batch], tally.take())
            else:
                together.append((group, number))
                size += facts.total_byte_size
            number += facts.num_rows
    if together:
        yield RowGroups(path, together, size)
