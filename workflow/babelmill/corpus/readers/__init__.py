"""Readers of .txt, .jsonl (or .json), .csv, .tsv and .parquet files, plain or compressed, as streams of record batches.

Every reader yields batches of about 1 MB with the columns of `Columns.of_documents`, whatever the file's size. The
standard library parses text formats: unlike the loaders of `datasets`, which are faster, it never turns the text `NA`
into a missing value or a column of `007` into 7, and errors name the line (`benchmarks/README.md`, "By hand or by a
library"). `text_files` opens the files: it unpacks them, and says if a file is not what its name says.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from babelmill.core.formats import format_of
from babelmill.corpus.columns import Columns
from babelmill.corpus.readers.csv_table import read_csv
from babelmill.corpus.readers.lines import Document, blocks_to_parse, parse, read_text
from babelmill.corpus.readers.parquet import read_parquet
from babelmill.corpus.tally import Tally
from babelmill.text_files.opening import Unreadable, damage_as_unreadable, open_file


def read(
    path: Path,
    tally: Tally,
    columns: Columns,
    *,
    document: Document = "file",
    scratch: Path | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the documents of a file, in order, as record batches.

    Args:
        path: the file; its name tells format and compression, unless `columns.format` says the format.
        tally: counts the documents read, and says whether bad input is an error or a drop.
        columns: the columns (of tables) or keys (of JSON lines) that are read, and the file's delimiter and encoding.
        document: whether the file, each paragraph or each line of a .txt file is a document.
        scratch: folder for the temporary copy of a compressed Parquet file.

    Raises:
        UserError: no such file; no such column; and, unless skipped, undecodable or truncated input.
    """
    with reporting(path, tally):
        for batch in _batches(path, tally, columns, document, scratch):
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


def _batches(
    path: Path, tally: Tally, columns: Columns, document: Document, scratch: Path | None
) -> Iterator[pa.RecordBatch]:
    """Yield the batches of the reader for the file's format."""
    suffix, compression = format_of(path, file_format=columns.format)
    if not path.stat().st_size and compression:
        tally.bad_file(path, "the compressed file is empty", whole=True)
        return
    with contextlib.closing(open_file(path, suffix, compression)) as stream:
        if suffix == ".parquet":
            yield from read_parquet(path, stream, tally, columns, scratch)
        elif suffix in (".csv", ".tsv"):
            yield from read_csv(path, stream, tally, columns)
        elif suffix == ".txt" and document == "file":
            yield from read_text(path, stream, tally, columns)
        else:
            for block in blocks_to_parse(path, stream, tally, columns, document):
                yield parse(path, block, tally, columns, document)
