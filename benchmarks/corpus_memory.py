"""Measure how much memory the stage `corpus` takes for each document, besides a constant.

    python benchmarks/corpus_memory.py [--documents 10000000] [--near-duplicates] [--held-out 1000]

What grows with the documents are the numbers by which the stage chooses among them. This makes a spool of so many
documents, one in ten a copy and, with `--near-duplicates`, one in ten with five of 16 bands in common with another, and
prints the highest memory of NumPy while the stage chooses. The limits are 60 bytes, and 200 with near copies.
"""

import argparse
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "workflow"))
from babelmill.config.resolve import Configuration
from babelmill.corpus.choosing import Budget, Choice
from babelmill.corpus.near_copies import BANDS
from babelmill.corpus.record_batches import RowGroups, Spool
from babelmill.corpus.tally import Tally

ROWS = 100_000  # documents in a batch


def batch_of(start: int, draw: np.random.Generator, near: bool) -> pa.RecordBatch:
    """Return the numbers of documents, with a text if near copies are compared."""
    keys = draw.integers(0, 2**64, (ROWS, 2), np.uint64)
    keys[9::10] = keys[8::10]
    columns = dict(zip(("key0", "key1"), keys.T, strict=True)) | {"weight": np.full(ROWS, 9)}
    if near:
        bands = draw.integers(1, 2**64, (ROWS, len(BANDS)), np.uint64)
        bands[7::10, :5] = bands[6::10, :5]
        columns |= zip(BANDS, bands.T, strict=True)
    texts = [f"one two three four five six {i}" for i in range(start, start + ROWS)] if near else [""] * ROWS
    arrays = {name: pa.array(np.ascontiguousarray(column)) for name, column in columns.items()}
    return pa.RecordBatch.from_pydict({"text": pa.array(texts), **arrays})


def main() -> None:
    """Print bytes a document."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=10_000_000)
    parser.add_argument("--near-duplicates", action="store_true")
    parser.add_argument("--held-out", type=int, default=0, help="documents of the user's own validation text")
    asked = parser.parse_args()
    draw, near = np.random.default_rng(1), asked.near_duplicates
    corpus = Configuration([("benchmark", {"corpus": {"near_duplicates": 0.8 if near else None}})]).corpus("eng").corpus
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/spool.parquet"
        with RowGroups(path, batch_of(0, draw, near).schema, "lz4") as rows:
            for start in range(0, asked.documents, ROWS):
                batch = batch_of(start, draw, near)
                rows.write(batch, batch.nbytes)
        spool, budget = Spool(path), Budget(4 * asked.documents, "bytes")
        tracemalloc.start()
        began = time.process_time()
        Choice(spool, asked.held_out, corpus, budget, 0.02, Path(folder), Tally())
        peak = tracemalloc.get_traced_memory()[1] / spool.documents
    print(f"{spool.documents:,} documents: {peak:.1f} bytes each, {time.process_time() - began:.0f} CPU seconds")


if __name__ == "__main__":
    main()
