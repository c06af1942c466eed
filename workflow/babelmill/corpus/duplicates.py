"""Drop exact duplicates among any number of documents: digests are in memory, and on disk if there are very many.

A `DigestSet` remembers the first `IN_MEMORY` different documents (up to 1 GB, 1.5 GB while it grows). Later documents
that it does not contain are written to a temporary file (compressed text), and their digests to another one, both in
the order of the documents. At the end the digests are sorted into parts by their first bits, and duplicates are found
in each part alone; one bit per document says whether it is new. Then the new documents are read again in their order.
Each document after the first `IN_MEMORY` needs 56 bytes and about half the bytes of its text on disk, and one bit in
memory; one part is in memory at a time. The same documents are kept, in the same order, as if all were in memory.
"""

import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import numpy as np
import pyarrow as pa

from babelmill.corpus.cleaning import keep
from babelmill.corpus.digests import DIGEST, DigestSet, with_digests, without_digests
from babelmill.corpus.tally import Tally

IN_MEMORY = 36 << 20  # digests; with more than 0.6 of 2^26, the table of 16-byte slots would double
PART = 1 << 21  # digests per part, approximately
AT_ONCE = 1 << 18  # digests that are sorted into parts at once

Documents = Iterator[tuple[pa.RecordBatch, np.ndarray]]


def without_duplicates(documents: Documents, tally: Tally, scratch: Path) -> Documents:
    """Drop duplicates. Take and yield (batch, digests [rows, 2]). `scratch` is the folder for temporary files."""
    seen = DigestSet()
    for batch, keys in documents:
        new = seen.add(keys)
        yield keep(batch, new, "duplicate", tally), keys[new]
        if seen.count >= IN_MEMORY:
            yield from _on_disk(documents, seen, tally, scratch)


def _on_disk(documents: Documents, seen: DigestSet, tally: Tally, scratch: Path) -> Documents:
    """Drop documents in `seen`. Among the others, keep only the first of several equal documents."""
    with tempfile.TemporaryFile(dir=scratch) as text, tempfile.TemporaryFile(dir=scratch) as digests:
        count, stream = 0, None
        for batch, keys in documents:
            new = ~seen.contains(keys)
            batch, keys = keep(batch, new, "duplicate", tally), keys[new]
            if stream is None:
                options = pa.ipc.IpcWriteOptions(compression="lz4")
                stream = pa.ipc.new_stream(text, batch.schema.append(DIGEST), options=options)
            stream.write_batch(with_digests(batch, keys))
            digests.write(keys.tobytes())
            count += len(keys)
        if stream is None:
            return
        stream.close()
        new = _first_of_each(digests, count, scratch)
        text.seek(0)
        start = 0
        for batch, keys in map(without_digests, pa.ipc.open_stream(text)):
            bits = np.unpackbits(new[start >> 3 : (start + len(keys) + 7 >> 3)], bitorder="little")
            mask = bits[start & 7 :][: len(keys)].astype(bool)
            yield keep(batch, mask, "duplicate", tally), keys[mask]
            start += len(keys)


def _first_of_each(digests: IO[bytes], count: int, scratch: Path) -> np.ndarray:
    """Return one bit per digest of a file, uint8 [count / 8 + 1]. The bit is 1 at the first of equal digests."""
    parts = 1 << max(0, (count // PART).bit_length())
    new = np.zeros(count // 8 + 1, np.uint8)
    with tempfile.TemporaryFile(dir=scratch) as sorted_file:
        table = _sort_into_parts(digests, count, parts, sorted_file)
        for start, end in itertools.pairwise(table):
            sorted_file.seek(int(start) * 24)
            rows = np.frombuffer(sorted_file.read(int(end - start) * 24), np.uint64).reshape(-1, 3)
            order = np.lexsort((rows[:, 1], rows[:, 0]))  # stable: equal digests stay in the order of the documents
            a, b = rows[order[1:]], rows[order[:-1]]
            first = np.append(True, (a[:, 0] != b[:, 0]) | (a[:, 1] != b[:, 1]))[: len(order)]
            numbers = rows[order[first], 2]
            np.bitwise_or.at(
                new,
                (numbers >> np.uint64(3)).astype(np.int64),
                np.uint8(1) << (numbers & np.uint64(7)).astype(np.uint8),
            )
    return new


def _sort_into_parts(digests: IO[bytes], count: int, parts: int, target: IO[bytes]) -> np.ndarray:
    """Write (digest, number of the document), grouped by the digest's first bits. Return each group's first row."""
    shift = np.uint64(64 - (parts.bit_length() - 1))

    def blocks() -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        digests.seek(0)
        for start in range(0, count, AT_ONCE):
            keys = np.frombuffer(digests.read(16 * AT_ONCE), np.uint64).reshape(-1, 2)
            yield start, keys, (keys[:, 0] >> shift if parts > 1 else np.zeros(len(keys), np.uint64)).astype(np.int64)

    counts = sum((np.bincount(part, minlength=parts) for _, _, part in blocks()), np.zeros(parts, np.int64))
    begin = np.concatenate(([0], np.cumsum(counts)))
    place = begin[:-1].copy()
    for start, keys, part in blocks():
        rows = np.column_stack((keys, np.arange(start, start + len(keys), dtype=np.uint64)))
        order = np.argsort(part, kind="stable")
        rows, sizes = rows[order], np.bincount(part, minlength=parts)
        ends = np.cumsum(sizes)
        for i in np.flatnonzero(sizes):
            target.seek(24 * int(place[i]))
            target.write(rows[ends[i] - sizes[i] : ends[i]].tobytes())
        place += sizes
    return begin
