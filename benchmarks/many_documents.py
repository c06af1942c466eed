"""Measure the memory of deduplication for very many documents: no other part of `corpus` remembers every document.

    python benchmarks/many_documents.py FOLDER [DOCUMENTS ...]

This gives the deduplication batches of short documents that are all different. A generator makes their digests, since
computing those of 1e8 texts would take an hour. Digests that do not fit into memory go to FOLDER. It prints the peak of
anonymous memory.
"""

import argparse
import multiprocessing
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "workflow"))
from babelmill.corpus.digests import with_digests
from babelmill.corpus.duplicates import without_duplicates
from babelmill.corpus.tally import Tally

ROWS = 8192


def documents(count: int) -> Iterator[pa.RecordBatch]:
    """Yield batches with digests."""
    generator = np.random.default_rng(0)
    for start in range(0, count, ROWS):
        rows = min(ROWS, count - start)
        keys = generator.integers(0, 2**63, (rows, 2), dtype=np.uint64) * np.uint64(2)
        yield with_digests(pa.record_batch({"text": pa.array(["a short document"] * rows)}), keys)


def measure(count: int, folder: Path) -> None:
    """Print a line of the table."""
    peak = [0]

    def watch() -> None:
        while True:
            status = Path("/proc/self/status").read_text().split("RssAnon:")[1]
            peak[0] = max(peak[0], int(status.split()[0]))
            time.sleep(0.2)

    threading.Thread(target=watch, daemon=True).start()
    began = time.monotonic()
    kept = sum(batch.num_rows for batch in without_duplicates(documents(count), Tally(), folder))
    print(f"| {count:.0e} | {kept:,} | {peak[0] / 1e6:.2f} | {time.monotonic() - began:.0f} |", flush=True)


def main() -> None:
    """Measure each number of documents in its own process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("documents", type=float, nargs="*", default=[1e6, 1e7, 1e8])
    args = parser.parse_args()
    print("| documents | kept | GB of anonymous memory | seconds |\n|---|---|---|---|", flush=True)
    for count in args.documents:
        process = multiprocessing.get_context("spawn").Process(target=measure, args=(int(count), args.folder))
        process.start()
        process.join()


if __name__ == "__main__":
    main()
