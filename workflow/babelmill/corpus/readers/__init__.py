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

from babelmill.core import escape
from babelmill.core.files import UserError, not_found
from babelmill.core.formats import format_of
from babelmill.corpus.columns import Columns
from babelmill.corpus.readers.csv_table import read_csv
from babelmill.corpus.readers.jsonl import read_jsonl
from babelmill.corpus.readers.parquet import read_parquet
from babelmill.corpus.readers.text import OF_PLAIN_TEXT, Document
from babelmill.corpus.tally import Tally
from babelmill.text_files.opening import Unreadable, damage, open_file


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
        yield
    except Unreadable as problem:
        tally.bad_file(path, str(problem), problem.whole)
    except FileNotFoundError:
        raise UserError(f"{escape.line(path)}: {not_found(path)}") from None
    except (PermissionError, IsADirectoryError) as error:
        raise UserError(f"{escape.line(path)}: cannot be read: {error.strerror}") from None
    except (pa.ArrowInvalid, OSError) as error:
        # Arrow reports damage as OSError without an errno; with one, a disk fails or the scratch folder is full.
        if getattr(error, "errno", None):
            raise
        tally.bad_file(path, damage(error))


def _batches(
    path: Path, tally: Tally, columns: Columns, document: Document, scratch: Path | None
) -> Iterator[pa.RecordBatch]:
    """Yield the batches of the reader for the file's format."""
    suffix, compression = format_of(path, said=columns.format)
    if not path.stat().st_size and compression:
        tally.bad_file(path, "the compressed file is empty", whole=True)
        return
    with contextlib.closing(open_file(path, suffix, compression)) as stream:
        if suffix == ".parquet":
            yield from read_parquet(path, stream, tally, columns, scratch)
        elif suffix in (".jsonl", ".json"):
            yield from read_jsonl(path, stream, tally, columns)
        elif suffix in (".csv", ".tsv"):
            yield from read_csv(path, stream, tally, columns)
        else:
            columns.refuse_plain_text(path)
            yield from OF_PLAIN_TEXT[document](path, stream, tally, columns.encoding)
