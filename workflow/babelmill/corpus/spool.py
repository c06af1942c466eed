"""Keep all clean documents on disk until it is known which of them stay, and write those.

The spool is a Parquet file of the documents in their order. Beside each stand the numbers that decide on it: its
digests, its size and, if they are asked for, what it weighs in a budget and the bands of near copies. One column of
numbers is in memory at a time, never the text.
"""

# pyright: reportAttributeAccessIssue=false
# (pyarrow creates the functions of pyarrow.compute at import: a type checker cannot see them.)

from collections import Counter
from collections.abc import Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import IO, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from babelmill.corpus.record_batches import LABELS, METADATA, PROMPT, has_prompt
from babelmill.tokens.label_text import NO_LABEL

ROW_GROUP = 16 << 20  # bytes: of text in the results, of everything in the spool
MEASURES = ("bytes", "words")


class RowGroups:
    """Writes record batches as Parquet, in row groups of about 16 MB, which fit into the memory of their readers.

    A thread compresses a row group (without Python's lock) while the next is collected.
    """

    def __init__(self, file: IO[bytes] | str, columns: pa.Schema, compression: str) -> None:
        self._parquet = pq.ParquetWriter(
            file,
            columns,
            compression=compression,
            use_dictionary=list(METADATA),  # pyright: ignore[reportArgumentType] (pyarrow takes names of columns, too)
            write_statistics=False,
        )
        self._thread = ThreadPoolExecutor(1)
        self._writing: Future[None] | None = None
        self._waiting: list[pa.RecordBatch] = []
        self._size = 0

    def write(self, batch: pa.RecordBatch, size: int) -> None:
        """Write a batch that counts as so many bytes."""
        if batch.num_rows:
            self._waiting.append(batch)
            self._size += size
        if self._size >= ROW_GROUP:
            self._flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error: type[BaseException] | None, _value: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        """Write what is waiting and the file's footer."""
        try:
            if error is None:
                self._flush()
                self._flush()
        finally:
            self._thread.shutdown()
            self._parquet.close()

    def _flush(self) -> None:
        """Start to write what is waiting, after the row group before it is written."""
        if self._writing:
            self._writing.result()
        self._writing = None
        if self._waiting:
            table = pa.Table.from_batches(self._waiting)
            self._writing = self._thread.submit(self._parquet.write_table, table, row_group_size=table.num_rows)
        self._waiting, self._size = [], 0


class Spool:
    """The documents that were written to a spool. Each has a number: its place."""

    def __init__(self, path: str) -> None:
        self._parquet = pq.ParquetFile(path)
        self.documents: int = self._parquet.metadata.num_rows
        self.columns: list[str] = self._parquet.schema_arrow.names

    def numbers(self, column: str) -> np.ndarray:
        """Return a column of numbers, [documents]."""
        found, at = np.empty(self.documents, self._parquet.schema_arrow.field(column).type.to_pandas_dtype()), 0
        for group in range(self._parquet.num_row_groups):
            for chunk in self._parquet.read_row_group(group, columns=[column])[column].chunks:
                found[at : at + len(chunk)] = chunk.to_numpy()
                at += len(chunk)
        return found

    def batches(self, columns: Sequence[str]) -> Generator[tuple[int, pa.RecordBatch]]:
        """Yield these columns in batches, each with the number of its first document."""
        at = 0
        for group in range(self._parquet.num_row_groups):
            table = self._parquet.read_row_group(group, columns=list(columns))
            for batch in table.combine_chunks().to_batches(max_chunksize=max(1, len(table) // 16)):
                yield at, batch
                at += len(batch)


def without_labels(labels: pa.ListArray) -> int:
    """Return the number of documents without any label, or with `NA` and its like in place of one."""
    missing = pc.is_in(labels.flatten(), pa.array([None, *sorted(NO_LABEL)])).to_numpy(zero_copy_only=False)
    return int(missing.reshape(len(labels), -1).all(1).sum())


class Split(RowGroups):
    """Writes the documents of a split, and counts what it writes."""

    def __init__(self, file: IO[bytes], columns: pa.Schema) -> None:
        super().__init__(file, columns, "zstd")
        self._columns = columns.names
        self.documents = self.bytes = self.words = self.with_prompt = self.without_labels = 0
        self.by_category: Counter[str] = Counter()
        self.by_license: Counter[str] = Counter()

    def add(self, batch: pa.RecordBatch) -> None:
        """Write a batch of the spool, which has `MEASURES`."""
        if not batch.num_rows:
            return
        size, words = (int(pc.sum(batch[name]).as_py()) for name in MEASURES)
        self.documents += batch.num_rows
        self.bytes += size
        self.words += words
        if PROMPT in batch.schema.names:
            self.with_prompt += int(has_prompt(batch).sum())
        if LABELS in batch.schema.names:
            self.without_labels += without_labels(batch[LABELS])
        for name, counter in (("category", self.by_category), ("license", self.by_license)):
            if batch[name].null_count < batch.num_rows:
                found = batch[name].drop_null().value_counts().to_pylist()
                counter.update({pair["values"]: pair["counts"] for pair in found})
        self.write(batch.select(self._columns), size)
