"""Drop exact duplicates among any number of documents: digests are in memory, and on disk if there are very many.

A `DigestSet` remembers the first `IN_MEMORY` different documents (up to 1 GB). Later documents that it does not contain
wait in a temporary file (compressed text), and their digests in others, one for each part of all possible digests. At
the end duplicates are found in each part alone, and the new documents are read again in their order. Each document
after the first `IN_MEMORY` needs 41 bytes and about half the bytes of its text on disk; the digests of one part are in
memory at a time. The same documents are kept, in the same order, as if all were in memory.
"""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from babelmill.corpus.cleaning import keep
from babelmill.corpus.digests import DigestSet, keys_of
from babelmill.corpus.record_batches import Spool
from babelmill.corpus.tally import Tally

IN_MEMORY = 10_000_000  # digests; with more than 0.6 of 2^24, the table of the Python set would double
PARTS = 128  # open files; at 1e9 documents, a part takes 0.8 GB


def without_duplicates(
    documents: Iterator[pa.RecordBatch], tally: Tally, scratch: Path | None
) -> Iterator[pa.RecordBatch]:
    """Yield the first of each set of equal documents. `scratch` is the folder for temporary files."""
    seen = DigestSet()
    for batch in documents:
        yield keep(batch, seen.add(keys_of(batch)), "duplicate", tally)
        if len(seen) >= IN_MEMORY:
            yield from _on_disk(documents, seen, tally, scratch)


def _on_disk(
    documents: Iterator[pa.RecordBatch], seen: DigestSet, tally: Tally, scratch: Path | None
) -> Iterator[pa.RecordBatch]:
    """Drop documents in `seen`. Among the others, keep only the first of several equal documents."""
    with contextlib.ExitStack() as files:
        text, flags, *parts = [files.enter_context(tempfile.TemporaryFile(dir=scratch)) for _ in range(2 + PARTS)]
        spool = Spool(text)
        count = 0
        for batch in documents:
            batch = keep(batch, ~seen.contains(keys_of(batch)), "duplicate", tally)
            spool.write(batch)
            keys = keys_of(batch)
            part = keys[:, 0] % np.uint64(PARTS)
            order = np.argsort(part, kind="stable")
            rows = np.column_stack((keys, np.arange(count, count + len(keys), dtype=np.uint64)))[order]
            ends = np.searchsorted(part[order], np.arange(1, PARTS))
            for file, its_rows in zip(parts, np.split(rows, ends), strict=True):
                file.write(its_rows.data)
            count += len(keys)
        if not count:
            return
        new = np.memmap(flags, bool, "w+", shape=(count,))  # in a file, since memory must not grow with the documents
        for file in parts:
            file.seek(0)
            rows = np.frombuffer(file.read(), np.uint64).reshape(-1, 3)
            new[rows[DigestSet().add(rows[:, :2]), 2]] = True
        start = 0
        for batch in spool.read():
            yield keep(batch, new[start : start + batch.num_rows], "duplicate", tally)
            start += batch.num_rows
