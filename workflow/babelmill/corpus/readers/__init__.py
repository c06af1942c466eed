"""Readers of .txt, .jsonl (or .json), .csv, .tsv and .parquet files, plain or compressed, as streams of record batches.

Every reader yields batches of about 1 MB with the columns of `Reading.of_documents`, whatever the file's size. The
standard library parses text formats: unlike the loaders of `datasets`, which are faster, it never turns the text `NA`
into a missing value or a column of `007` into 7, and errors name the line (`benchmarks/README.md`, "By hand or by a
library"). `text_files` opens the files: it unpacks them, and says if a file is not what its name says.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from babelmill.core.formats import format_of
from babelmill.corpus.readers.csv_table import read_csv
from babelmill.corpus.readers.lines import blocks_to_parse, parse, read_text
from babelmill.corpus.readers.parquet import read_parquet
from babelmill.corpus.reading import Reading, SourceFile
from babelmill.corpus.tally import Tally
from babelmill.text_files.opening import Unreadable, damage_as_unreadable, open_file


def read(path: Path, reading: Reading, tally: Tally) -> Iterator[pa.RecordBatch]:
    """Yield the documents of a file, in order, as record batches. See `SourceFile`.

    A UserError says that there is no such file or column, or, unless it is skipped, that input is bad or ends early.
    """
    file = SourceFile(path, reading, tally)
    with reporting(path, tally):
        for batch in _batches(file):
            tally.read += batch.num_rows
            yield batch


@contextlib.contextmanager
def reporting(path: Path, tally: Tally) -> Iterator[None]:
    """Turn errors in reading a file into a UserError, or note a damaged file in `tally`."""
    try:
        with damage_as_unreadable(path):
            yield
    except Unreadable as problem:
        tally.bad_file(path, str(problem), problem.whole)


def _batches(file: SourceFile) -> Iterator[pa.RecordBatch]:
    """Yield the batches of the reader for the file's format."""
    format_of(file.path, file_format=file.corpus.format)  # refuses other formats
    if not file.path.stat().st_size and file.compression:
        file.tally.bad_file(file.path, "the compressed file is empty", whole=True)
        return
    with open_file(file.path, file.suffix, file.compression) as stream:
        if file.suffix == ".parquet":
            yield from read_parquet(file, stream)
        elif file.suffix in (".csv", ".tsv"):
            yield from read_csv(file, stream)
        elif file.suffix == ".txt" and file.corpus.document == "file":
            yield from read_text(file, stream)
        else:
            for block in blocks_to_parse(file, stream):
                yield parse(file, block)
