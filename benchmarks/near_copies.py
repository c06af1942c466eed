"""Measure which near copies are found, and the memory and time for many documents.

    python benchmarks/near_copies.py memory FOLDER [DOCUMENTS ...]
    python benchmarks/near_copies.py copies FOLDER [DOCUMENTS]
    python benchmarks/near_copies.py recall

`memory` looks for near copies among documents of 20 words, of which one in ten is like the one before it. It prints the
peak of anonymous memory and the size of the temporary files in FOLDER. `copies` does it with copies of one page, each
with another number.

`recall` plants a copy of each of 1,000 texts, and compares what is found with the exact Jaccard index. Then it counts
how many of 300 planted copies are found among 300 pages that share a part of their text.
"""

import argparse
import contextlib
import itertools
import multiprocessing
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "workflow"))
from babelmill.corpus.near_copies import NearCopies, bands_of

ROWS = 8192
WORDS = pa.array([f"word{i}" for i in range(1000)])


def watched(work, *arguments) -> None:
    """Run `work`, and print its peak of anonymous memory and its CPU time."""
    peak = [0]

    def watch() -> None:
        while True:
            peak[0] = max(peak[0], int(Path("/proc/self/status").read_text().split("RssAnon:")[1].split()[0]))
            time.sleep(0.05)

    threading.Thread(target=watch, daemon=True).start()
    began = time.process_time()
    found, disk = work(*arguments)
    print(f"{found} | {peak[0] / 1e6:.2f} | {disk / 1e9:.2f} | {time.process_time() - began:.0f} |", flush=True)


def short_documents(count: int) -> Iterator[pa.StringArray]:
    """Yield documents of 20 words. One in ten is the document before it with another last word."""
    generator = np.random.default_rng(0)
    for start in range(0, count, ROWS):
        rows = min(ROWS, count - start)
        words = generator.integers(0, len(WORDS), (rows, 20))
        words[9::10, :-1] = words[8::10, :-1][: len(words[9::10])]
        ends = pa.array(np.arange(0, words.size + 1, 20, dtype=np.int32))
        yield pc.binary_join(pa.ListArray.from_arrays(ends, WORDS.take(pa.array(words.ravel()))), " ")


def copies_of_one_page(count: int) -> Iterator[pa.StringArray]:
    """Yield copies of one page, each with another number."""
    page = " ".join(WORDS[:150].to_pylist())
    for start in range(0, count, ROWS):
        yield pa.array([f"{page} {number}" for number in range(start, min(count, start + ROWS))])


def near_copies(of: Callable[[int], Iterator[pa.StringArray]], count: int, folder: Path) -> tuple[str, int]:
    """Look for near copies. Return how many were found, for the table, and the bytes of the temporary files."""
    with contextlib.ExitStack() as files:
        near = NearCopies(0.8, folder, files)
        for text in of(count):
            near.add(bands_of(text, 0.8))
        disk = sum(part.tell() for part in near._parts)
        near.group()
        disk += sum(each.tell() for each in near._ranges) + near._members.nbytes
        found = sum(len(near.judge(text, np.zeros(len(text)))) for text in of(count))
    return f"| {count:.0e} | {found:,}", disk + near._end


def planted(similar: float, pairs: int = 1000) -> tuple[list[str], list[float]]:
    """Return texts of 60 to 400 words, each followed by a copy of about this similarity, and the true similarities."""
    draw, texts, true = random.Random(2), [], []
    for _ in range(pairs):
        text = [f"word{draw.randrange(5000)}" for _ in range(draw.randrange(60, 400))]
        copy, least = list(text), similar + draw.uniform(-0.03, 0.03)
        while similarity(text, copy) > least:
            copy[draw.randrange(len(copy))] = f"new{draw.randrange(10**9)}"
        texts += [" ".join(text), " ".join(copy)]
        true.append(similarity(text, copy))
    return texts, true


def found_among(texts: list[str], threshold: float) -> set[int]:
    """Return the indices of the near copies."""
    text = pa.array(texts)
    with contextlib.ExitStack() as files:
        near = NearCopies(threshold, None, files)
        near.add(bands_of(text, threshold))
        near.group()
        return set(near.judge(text, np.zeros(len(text))))


def recall_of_planted() -> None:
    """Print how many planted copies are found at each threshold, and how many that are none."""
    print(
        "| planted at | `near_duplicates` | copies by the exact index | found | false alarms |\n|---|---|---|---|---|"
    )
    for similar in (0.7, 0.8, 0.9):
        texts, true = planted(similar)
        for threshold in (0.7, 0.8, 0.9):
            real = {2 * i + 1 for i, similarity in enumerate(true) if similarity >= threshold}
            found = found_among(texts, threshold)
            print(f"| {similar} | {threshold} | {len(real)} | {len(found & real)} | {len(found - real)} |", flush=True)


def recall(alike: float, pages: int = 300, words: int = 200) -> None:
    """Print how many copies (0.8 and more) are found of pages of one template, any two of which are `alike`."""
    draw = random.Random(1)
    number = itertools.count()
    shared = 4 + round(2 * alike / (1 + alike) * (words - 4))
    template = [f"word{draw.randrange(5000)}" for _ in range(shared)]
    originals = [[*template, *(f"own{next(number)}" for _ in range(words - shared))] for _ in range(pages)]
    copies = []
    for page in originals:
        copy = list(page)
        while similarity(page, copy) > 0.82:
            copy[draw.randrange(words)] = f"new{next(number)}"
        copies.append(copy)
    found = found_among([" ".join(each) for each in originals + copies], 0.8)
    real = {pages + i for i in range(pages) if similarity(originals[i], copies[i]) >= 0.8}
    print(f"| {similarity(*originals[:2]):.2f} | {len(real & found)} of {len(real)} |", flush=True)


def similarity(one: list[str], other: list[str]) -> float:
    """Return the Jaccard index of the five words in a row of two texts."""
    first, second = ({tuple(text[i : i + 5]) for i in range(len(text) - 4)} for text in (one, other))
    return len(first & second) / len(first | second)


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["memory", "copies", "recall"])
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("documents", type=float, nargs="*", default=[1e6])
    args = parser.parse_args()
    if args.what == "recall":
        recall_of_planted()
        print("\n| similarity of the pages | copies found |\n|---|---|", flush=True)
        for alike in (0.0, 0.5, 0.6, 0.7, 0.74, 0.78):
            recall(alike)
        return
    print(
        "| documents | near copies | GB of memory | GB on disk | CPU seconds |\n|---|---|---|---|---|",
        flush=True,
    )
    for count in args.documents:
        of = short_documents if args.what == "memory" else copies_of_one_page
        arguments = (near_copies, of, int(count), args.folder)
        process = multiprocessing.get_context("spawn").Process(target=watched, args=arguments)
        process.start()
        process.join()


if __name__ == "__main__":
    main()
