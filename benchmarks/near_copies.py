"""Measure how fast near copies and languages are found, beside the bare libraries, and the memory for many documents.

    python benchmarks/near_copies.py speed [--texts FOLDER] [--megabytes 40]
    python benchmarks/near_copies.py memory FOLDER [DOCUMENTS ...]
    python benchmarks/near_copies.py copies FOLDER [DOCUMENTS]
    python benchmarks/near_copies.py recall

`speed` prints MB/s of one core for each part of the work, on real text (`real_text.py`). Near copies: the bare library
is rensa on shingles that are strings, as its documentation has it, and datasketch would take the same strings. Its
time on our hashes is printed, too. Languages: the bare library is py3langid or fastText on the same texts.

`memory` gives `NearCopies` random bands, where one document in ten has those of the document before it, and prints the
peak of anonymous memory and the size of the temporary files in FOLDER. `copies` does it with real bands of copies of
one page, each with another number.

`recall` counts how many of 300 planted copies are found among 300 pages that share a part of their text.
"""

import argparse
import contextlib
import itertools
import multiprocessing
import random
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from real_text import documents, enlarge
from rensa import RMinHash

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "workflow"))
from babelmill.corpus.identification import BEST, Identification, in_the_language, load
from babelmill.corpus.near_copies import BANDS, BANDS_TYPE, SEED, NearCopies, bands_of, rows_of
from babelmill.corpus.shingles import shingles
from babelmill.corpus.tally import Tally

ROOT = Path(__file__).resolve().parents[1]
ROWS = 8192
WORDS = np.array([f"word{i}" for i in range(1000)])


def speed(texts: list[str]) -> None:
    """Print MB/s of each part, and the ratio of ours to the bare library."""
    size = sum(len(text.encode()) for text in texts) / 1e6
    batches = [pa.array(texts[i : i + 200]) for i in range(0, len(texts), 200)]
    parts = [texts[i : i + 200] for i in range(0, len(texts), 200)]
    count = BANDS * rows_of(0.8)

    def timed(name: str, work, of) -> float:
        began = time.process_time()
        for each in of:
            work(each)
        took = time.process_time() - began
        print(f"| {name} | {size / took:.1f} |", flush=True)
        return took

    def as_strings(part: list[str]) -> None:
        words = [text.split() for text in part]
        strings = [[" ".join(each[i : i + 5]) for i in range(len(each) - 4)] for each in words]
        RMinHash.digest_matrix_from_token_sets(strings, count, SEED)

    def on_hashes(given: tuple[np.ndarray, np.ndarray]) -> None:
        RMinHash.digest_matrix_from_flat_token_hashes(given[0], given[1].astype(np.uint64), count, SEED)

    print("| part | MB/s of one core |\n|---|---|")
    bare = timed("rensa on strings of five words", as_strings, parts)
    timed("our shingles", shingles, batches)
    timed("rensa on our shingles", on_hashes, [shingles(batch) for batch in batches])
    ours = timed("shingles, signatures and bands", lambda batch: bands_of(batch, 0.8), batches)
    print(f"ours / bare: {ours / bare:.2f}\n\n| part | MB/s of one core |\n|---|---|")
    for name, cleans in (("py3langid", False), (str(ROOT / "tests/data/languages.bin"), False)):
        model = load(name, cleans)
        asked = Identification(name, cleans, frozenset(["en", "eng_Latn"]), "Latn", 0.8, "document")
        first = [[text[:5000].replace("\n", " ") for text in part] for part in parts]
        if name == "py3langid":
            bare = timed("py3langid", lambda part, model=model: [model._identifier.rank(text) for text in part], first)
        else:
            bare = timed(
                "fastText (tiny)", lambda part, model=model: [model._model.predict(t, k=BEST) for t in part], first
            )
        in_the_language(batches[0], asked, Tally())  # makes the tables of letters, once: 0.1 s
        ours = timed("our filter with it", lambda batch, asked=asked: in_the_language(batch, asked, Tally()), batches)
        print(f"ours / bare: {ours / bare:.2f}")


def watched(work, *arguments) -> None:
    """Run `work`, and print its peak of anonymous memory and its CPU time."""
    peak = [0]

    def watch() -> None:
        while True:
            peak[0] = max(peak[0], int(Path("/proc/self/status").read_text().split("RssAnon:")[1].split()[0]))
            time.sleep(0.2)

    threading.Thread(target=watch, daemon=True).start()
    began = time.process_time()
    found, disk = work(*arguments)
    print(f"{found} | {peak[0] / 1e6:.2f} | {disk / 1e9:.2f} | {time.process_time() - began:.0f} |", flush=True)


def random_bands(count: int, folder: Path) -> tuple[str, int]:
    """Look for near copies by random bands."""
    generator = np.random.default_rng(0)
    copies = 0
    with contextlib.ExitStack() as files:
        near = NearCopies(0.8, folder, files)
        for start in range(0, count, ROWS):
            bands = generator.integers(0, 2**63, (min(ROWS, count - start), BANDS), dtype=np.uint64)
            bands[9::10] = bands[8::10][: len(bands[9::10])]
            near.add(pa.FixedSizeBinaryArray.from_buffers(BANDS_TYPE, len(bands), [None, pa.py_buffer(bands)]))
        disk = sum(part.tell() for part in near._parts)
        near.group()
        for start in range(0, count, ROWS):
            rows = min(ROWS, count - start)
            chosen = WORDS[generator.integers(0, 1000, (rows, 12))]
            chosen[9::10] = chosen[8::10][: len(chosen[9::10])]
            copies += len(near.judge(pa.array([" ".join(words) for words in chosen]), np.zeros(rows)))
    return f"| {count:.0e} | {copies:,}", disk


def real_copies(count: int, folder: Path) -> tuple[str, int]:
    """Look for near copies among copies of one page."""
    page = " ".join(WORDS[:150])
    with contextlib.ExitStack() as files:
        near = NearCopies(0.8, folder, files)
        batches = [range(start, min(count, start + ROWS)) for start in range(0, count, ROWS)]
        for numbers in batches:
            near.add(bands_of(pa.array([f"{page} {number}" for number in numbers]), 0.8))
        disk = sum(part.tell() for part in near._parts)
        near.group()
        found = 0
        for numbers in batches:
            found += len(near.judge(pa.array([f"{page} {number}" for number in numbers]), np.zeros(len(numbers))))
    return f"| {count:.0e} | {found:,}", disk


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
    text = pa.array([" ".join(each) for each in originals + copies])
    with contextlib.ExitStack() as files:
        near = NearCopies(0.8, None, files)
        near.add(bands_of(text, 0.8))
        near.group()
        found = near.judge(text, np.zeros(len(text)))
    real = {pages + i for i in range(pages) if similarity(originals[i], copies[i]) >= 0.8}
    print(f"| {similarity(*originals[:2]):.2f} | {len(real & set(found))} of {len(real)} |", flush=True)


def similarity(one: list[str], other: list[str]) -> float:
    """Return the Jaccard index of the five words in a row of two texts."""
    first, second = ({tuple(text[i : i + 5]) for i in range(len(text) - 4)} for text in (one, other))
    return len(first & second) / len(first | second)


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["speed", "memory", "copies", "recall"])
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("documents", type=float, nargs="*", default=[1e6])
    parser.add_argument("--texts", type=Path, default=Path.home() / ".cache/babelmill/texts", help="see real_text.py")
    parser.add_argument("--megabytes", type=int, default=40)
    args = parser.parse_args()
    if args.what == "speed":
        speed(list(enlarge(documents(args.texts), args.megabytes * 10**6)))
        return
    if args.what == "recall":
        print("| similarity of the pages | copies found |\n|---|---|", flush=True)
        for alike in (0.0, 0.5, 0.6, 0.7, 0.74, 0.78):
            recall(alike)
        return
    print(
        "| documents | near copies | GB of memory | GB of bands on disk | CPU seconds |\n|---|---|---|---|---|",
        flush=True,
    )
    for count in args.documents:
        work = random_bands if args.what == "memory" else real_copies
        arguments = (work, int(count), args.folder)
        process = multiprocessing.get_context("spawn").Process(target=watched, args=arguments)
        process.start()
        process.join()


if __name__ == "__main__":
    main()
