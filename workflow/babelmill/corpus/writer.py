"""Write a split of a corpus as Parquet, in row groups that fit into the memory of its readers."""

# pyright: reportAttributeAccessIssue=false
# (pyarrow creates the functions of pyarrow.compute at import: a type checker cannot see them.)

from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import IO, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from babelmill.core.words import count_words
from babelmill.corpus.digests import has_prompt
from babelmill.corpus.record_batches import LABELS, METADATA, PROMPT, SCHEMA, sizes_of, texts_of
from babelmill.tokens.label_text import NO_LABEL

ROW_GROUP = 16 << 20  # bytes of text


def without_labels(labels: pa.ListArray) -> int:
    """Return the number of documents without any label, or with `NA` and its like in place of one."""
    missing = pc.is_in(labels.flatten(), pa.array([None, *sorted(NO_LABEL)])).to_numpy(zero_copy_only=False)
    return int(missing.reshape(len(labels), -1).all(1).sum())


class Writer:
    """Writes record batches to a Parquet file in row groups of about 16 MB, and counts what it writes.

    With more than one thread, one of them compresses a row group (without Python's lock) while the next is collected.
    """

    def __init__(self, file: IO[bytes], columns: pa.Schema = SCHEMA, threads: int = 1) -> None:
        self._parquet = pq.ParquetWriter(
            file,
            columns,
            compression="zstd",
            use_dictionary=list(METADATA),  # pyright: ignore[reportArgumentType] (pyarrow takes names of columns, too)
            write_statistics=False,
        )
        self._columns = columns.names
        self._waiting: list[pa.RecordBatch] = []
        self._size = 0
        self._thread = ThreadPoolExecutor(1) if threads > 1 else None
        self._writing: Future[None] | None = None
        self.documents = self.bytes = self.words = self.with_prompt = self.without_labels = 0
        self.by_category: Counter[str] = Counter()
        self.by_license: Counter[str] = Counter()

    def write(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        size = int(sizes_of(batch).sum())
        self.documents += batch.num_rows
        if PROMPT in batch.schema.names:
            self.with_prompt += int(has_prompt(batch).sum())
        if LABELS in batch.schema.names:
            self.without_labels += without_labels(batch[LABELS])
        self.bytes += size
        self.words += sum(count_words(column.to_pylist()) for column in texts_of(batch).values())
        for name, counter in (("category", self.by_category), ("license", self.by_license)):
            if batch[name].null_count < batch.num_rows:
                found = batch[name].drop_null().value_counts().to_pylist()
                counter.update({pair["values"]: pair["counts"] for pair in found})
        self._waiting.append(batch.select(self._columns))
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
            if self._thread:
                self._thread.shutdown()
            self._parquet.close()

    def _flush(self) -> None:
        """Start to write the waiting batches, after the previous row group is written."""
        if self._writing:
            self._writing.result()
            self._writing = None
        if self._waiting:
            table = pa.Table.from_batches(self._waiting)
            if self._thread:
                self._writing = self._thread.submit(self._parquet.write_table, table, row_group_size=table.num_rows)
            else:
                self._parquet.write_table(table, row_group_size=table.num_rows)
        self._waiting, self._size = [], 0
