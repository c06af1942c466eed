"""Read the documents of a corpus as a stream: a split's Parquet file, one row group (about 16 MB) at a time."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

BATCH_BYTES = 1 << 20
CONTEXT, LABELS, ORIGIN = "context", "labels", "origin"  # columns of labelled text, all with a value in each row


class Documents:
    """Reads the documents of one Parquet file, in order; with `contexts`, also those of labelled text."""

    def __init__(self, path: str | Path, contexts: bool = False):
        self.path = Path(path)
        with pq.ParquetFile(path) as parquet:
            self.count = parquet.metadata.num_rows
            names = parquet.schema_arrow.names
        first = [name for name in ("prompt", *([CONTEXT] if contexts else [])) if name in names]
        # labelled: whether the documents have labels
        self._names, self.labelled = [*first, "text"], LABELS in names
        self.prompted = "prompt" in names  # whether the documents have prompts
        # number of texts per document. If documents have prompts or contexts, this is 2 (the prompt or context, which
        # may be empty, and the text). Otherwise it is 1.
        self.pieces = len(self._names)

    def _columns(self) -> Iterator[tuple[pa.RecordBatch, np.ndarray]]:
        """Yield the texts, and the UTF-8 bytes of each, [documents, pieces] int64."""
        with pq.ParquetFile(self.path) as parquet:
            for group in range(parquet.num_row_groups):
                for batch in parquet.read_row_group(group, columns=self._names).select(self._names).to_batches():
                    sizes = [pc.call_function("binary_length", [column]) for column in batch.columns]
                    yield batch, np.stack([size.to_numpy(zero_copy_only=False) for size in sizes], 1).astype(np.int64)

    def labels(self) -> Iterator[tuple[list[str | None], str]]:
        """Yield the content of each document's columns of labels, and its origin, such as `texts/a.csv: line 7`."""
        with pq.ParquetFile(self.path) as parquet:
            for batch in parquet.iter_batches(columns=[LABELS, ORIGIN]):
                yield from zip(batch[LABELS].to_pylist(), batch[ORIGIN].to_pylist(), strict=True)

    def bytes(self) -> int:
        """Return the UTF-8 bytes of all documents (one pass over the file)."""
        return sum(int(sizes.sum()) for _, sizes in self._columns())

    def batches(self) -> Iterator[tuple[list[str], np.ndarray]]:
        """Yield (texts, UTF-8 bytes of each text, int64) in batches of about 1 MB, each with one or more documents.

        A document with a prompt or a context is two texts: the prompt or context, and then the text.
        """
        for batch, sizes in self._columns():
            marks = np.cumsum(sizes.sum(1)) // BATCH_BYTES
            cuts = [0, *(np.flatnonzero(np.diff(marks)) + 1), batch.num_rows]
            for start, end in itertools.pairwise(cuts):
                if start < end:
                    columns = [column.to_pylist() for column in batch[start:end].columns]
                    texts = list(itertools.chain.from_iterable(zip(*columns, strict=True)))
                    yield texts, sizes[start:end].reshape(-1)
