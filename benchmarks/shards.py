"""Compare speed and memory of the stage `shards` on real text with bare tokenization and the published recipe.

    python benchmarks/shards.py [--texts FOLDER] [--megabytes 128] [--threads N]

This makes a corpus of that size from real text in five languages (`real_text.py`) and trains a tokenizer on a part of
it. It measures the time of three cases in turn, `--rounds` times, on the same cores:

* bare: only `encode_batch_fast` and `ids` on batches of 1,000 documents that are in memory;
* stage: `python -m babelmill.shards` with its start, checks, reading, writing and hashing;
* recipe: the published preprocessing, a pool of 8 processes that reload the tokenizer for each batch of 1,000
  documents (and append the results in the order in which they arrive).

It prints the best of each in MB of text per second, the ratios, the stage's peak memory for this size and for three
times this size, and whether the result had the same bytes on every run and with 1, N and 2 N threads.
"""

import argparse
import hashlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from real_text import documents, enlarge
from workflow_run import write_job

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "workflow"))

from babelmill.config.resolve import Configuration  # noqa: E402
from babelmill.core import manifest  # noqa: E402
from babelmill.graph import Graph  # noqa: E402
from babelmill.stages import CorpusStage  # noqa: E402
from babelmill.tokens.documents import Documents  # noqa: E402
from babelmill.tokens.tokenizer_file import load_tokenizer, use_threads  # noqa: E402

VOCAB_SIZE = 16384
RECIPE_WORKERS, RECIPE_BATCH = 8, 1000


def first(stream: Iterator[str], size: int) -> Iterator[str]:
    """Yield documents from the beginning of a stream: `size` bytes and the rest of the last document."""
    for text in stream:
        yield text
        size -= len(text.encode())
        if size <= 0:
            return


def write_corpus(folder: Path, texts: list[str], size: int) -> None:
    """Write a corpus like that of the stage `corpus`, with `size` bytes for training."""
    folder.mkdir()
    for split, amount in (("train", size), ("validation", 10**6)):
        with pq.ParquetWriter(folder / f"{split}.parquet", pa.schema({"text": pa.string()}), compression="zstd") as out:
            stream = first(enlarge(texts, amount, seed=len(split)), amount)
            while group := list(itertools.islice(stream, 5000)):
                out.write_table(pa.table({"text": pa.array(group, pa.string())}))
    manifest.write(
        folder, CorpusStage.model_construct(raw={"stage": "corpus"}), ["train.parquet", "validation.parquet"]
    )


def stage(folder: Path, name: str, threads: int, **made_from: str) -> tuple[float, float, float]:
    """Run a stage. Return (wall seconds, CPU seconds, peak MB)."""
    configuration = Configuration([("benchmark", {"tokenizer": {"vocab_size": VOCAB_SIZE}})])
    asked = Graph(configuration).result(name, "eng", "eng" if name == "shards" else "").asked
    settings = write_job(folder, name, asked | {"made_from": {role: [path] for role, path in made_from.items()}})
    command = [sys.executable, "-m", f"babelmill.{name}", settings, "--threads", str(threads)]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "workflow")}
    start = time.perf_counter()
    process = subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"failed: {' '.join(command)}")
    return time.perf_counter() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def build(folder: Path, corpus: str, threads: int) -> tuple[float, float, float]:
    """Run the stage `shards`. Return (wall seconds, CPU seconds, peak MB)."""
    return stage(folder, "shards", threads, tokenizer="results/tokenizer/out", corpus=corpus)


def bare(tokenizer: Path, batches: list[list[str]]) -> tuple[float, float]:
    """Return (wall seconds, CPU seconds) of only the tokenization."""
    loaded = load_tokenizer(tokenizer)
    start, cpu = time.perf_counter(), time.process_time()
    for texts in batches:
        for encoding in loaded.encode_batch_fast(texts, add_special_tokens=False):
            encoding.ids  # noqa: B018
    return time.perf_counter() - start, time.process_time() - cpu


def recipe_batch(tokenizer: Path, texts: list[str]) -> list[int]:
    """Do what a worker of the published recipe does."""
    loaded = load_tokenizer(tokenizer)
    return [i for encoding in loaded.encode_batch(texts, add_special_tokens=False) for i in encoding.ids]


def recipe(tokenizer: Path, batches: list[list[str]], out: Path) -> float:
    """Return the seconds of the published preprocessing."""
    start = time.perf_counter()
    with ProcessPoolExecutor(RECIPE_WORKERS) as pool, open(out, "wb") as file:
        for future in as_completed([pool.submit(recipe_batch, tokenizer, texts) for texts in batches]):
            np.array(future.result(), np.int64).tofile(file)
    return time.perf_counter() - start


def main() -> None:
    """Run all cases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=Path, default=Path.home() / ".cache/babelmill/texts", help="see real_text.py")
    parser.add_argument("--megabytes", type=int, default=128)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=2)
    args = parser.parse_args()
    texts = documents(args.texts)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_corpus(folder / "corpus", texts, args.megabytes * 10**6)
        write_corpus(folder / "large", texts, 3 * args.megabytes * 10**6)
        write_corpus(folder / "small", texts, 20 * 10**6)
        stage(folder, "tokenizer", args.threads, corpora="small")
        tokenizer, out = folder / "results/tokenizer/out/tokenizer.json", folder / "results/shards/out"

        # Only other processes tokenize, so it is safe to fork a pool here.
        corpus = Documents(folder / "corpus/train.parquet")
        size = corpus.bytes() / 1e6
        stream = itertools.chain.from_iterable(texts for texts, _ in corpus.batches())
        batches = []
        while batch := list(itertools.islice(stream, RECIPE_BATCH)):
            batches.append(batch)
        wall: dict[str, list[float]] = {"bare": [], "stage": [], "recipe": []}
        cpu: dict[str, list[float]] = {"bare": [], "stage": []}
        digests = set()
        for _ in range(args.rounds):
            wall["recipe"].append(recipe(tokenizer, batches, folder / "recipe.bin"))
            seconds, cpu_seconds, peak = build(folder, "corpus", args.threads)
            wall["stage"].append(seconds)
            cpu["stage"].append(cpu_seconds)
            digests.add(digest(out))
            with ProcessPoolExecutor(1, initializer=use_threads, initargs=(args.threads,)) as pool:
                seconds, cpu_seconds = pool.submit(bare, tokenizer, batches).result()
            wall["bare"].append(seconds)
            cpu["bare"].append(cpu_seconds)
        *_, peak_large = build(folder, "large", args.threads)
        for threads in (1, 2 * args.threads):
            build(folder, "corpus", threads)
            digests.add(digest(out))
        rate = {name: size / min(times) for name, times in wall.items()}
        print(f"{size:.0f} MB of text, {corpus.count:,} documents, {args.threads} threads, {args.rounds} rounds")
        print(", ".join(f"{name} {value:.1f} MB/s" for name, value in rate.items()))
        work = min(cpu["bare"]) / min(cpu["stage"])
        print(f"stage / bare   {rate['stage'] / rate['bare']:.2f} (by CPU time {work:.2f})")
        print(f"stage / recipe {rate['stage'] / rate['recipe']:.2f}")
        print(f"peak memory {peak:.0f} MB, with three times the text {peak_large:.0f} MB")
        same = "identical" if len(digests) == 1 else "DIFFERENT"
        print(f"bytes on {args.rounds} runs and with 1 and {2 * args.threads} threads: {same}")


def digest(folder: Path) -> str:
    """Return one digest of a folder's files."""
    names = sorted(path.name for path in folder.iterdir())
    return json.dumps({name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names})


if __name__ == "__main__":
    main()
