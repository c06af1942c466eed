"""The documents of a corpus as a stream: a split's Parquet file, read one row group (about 16 MB) at a time."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from babelmill.core.files import UserError

BATCH_BYTES = 1 << 20


class Documents:
    """The documents of one Parquet file, in order.

    Attributes:
        path: the file.
        count: number of documents, which the file states.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        try:
            with pq.ParquetFile(path) as parquet:
                self.count = parquet.metadata.num_rows
                names = parquet.schema_arrow.names
        except FileNotFoundError:
            raise UserError(f"{path}: no such file") from None
        except (pa.ArrowInvalid, OSError) as error:
            raise UserError(f"{path}: not a Parquet file ({error}); delete it and run the workflow again") from None
        if "text" not in names:
            raise UserError(f"{path}: no column `text`; delete it and run the workflow again")

    def _columns(self) -> Iterator[tuple[pa.Array, np.ndarray]]:
        with pq.ParquetFile(self.path) as parquet:
            for group in range(parquet.num_row_groups):
                for column in parquet.read_row_group(group, columns=["text"])["text"].chunks:
                    yield (
                        column,
                        pc.call_function("binary_length", [column]).to_numpy(zero_copy_only=False).astype(np.int64),
                    )

    def bytes(self) -> int:
        """UTF-8 bytes of all documents (one pass over the file)."""
        return sum(int(sizes.sum()) for _, sizes in self._columns())

    def batches(self) -> Iterator[tuple[list[str], np.ndarray]]:
        """Yields (texts, UTF-8 bytes of each, [documents] int64) in batches of about 1 MB, at least one document."""
        for column, sizes in self._columns():
            marks = np.cumsum(sizes) // BATCH_BYTES
            cuts = [0, *(np.flatnonzero(np.diff(marks)) + 1), len(column)]
            for start, end in itertools.pairwise(cuts):
                if start < end:
                    yield column[start:end].to_pylist(), sizes[start:end]
