"""Measure speed and memory of the stage `corpus` on real text.

    python benchmarks/corpus.py [--texts FOLDER] [--megabytes 128]
    python benchmarks/corpus.py --documents 1000000 4000000 10000000 [--keys '{"near_duplicates": 0.7}']

The first makes JSONL and Parquet files of `--megabytes` MB, and files three times as large. One document in ten is an
exact duplicate. It runs the stage on them, with default settings and with all cleaning on. It prints MB/s of text per
core (CPU time of the whole process, including its start), the ratio to bare reading in the same run, and the peak
memory. The second prints the peak memory of the stage for so many documents of 12 words, one in five nearly the same as
the one before it, and the bytes by which each document beyond the smallest number raises it.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from real_text import documents, enlarge
from workflow_run import write_job

ROOT = Path(__file__).parents[1]
CLEANING = {"normalization": "NFC", "control_characters": "remove", "min_characters": 20}
BARE = {
    "jsonl": "import json, sys; [json.loads(line)['text'] for line in open(sys.argv[1], encoding='utf-8')]",
    "parquet": "import pyarrow.parquet as q, sys; [b for b in q.ParquetFile(sys.argv[1]).iter_batches(1000)]",
}
SETTINGS = """
import json, sys
from babelmill.config.resolve import Configuration
from babelmill.graph import Graph
values = {"languages": {"eng": {"corpus": json.loads(sys.argv[1])}}}
print(json.dumps(Graph(Configuration([("benchmark", values)])).result("corpus", "eng").asked))
"""


def make(texts: list[str], size: int, folder: Path) -> tuple[float, int]:
    """Write corpus.jsonl and corpus.parquet. Return the megabytes of text and the number of documents."""
    total = count = 0
    schema = pa.schema({"text": pa.string(), "category": pa.string()})
    with (
        open(folder / "corpus.jsonl", "w", encoding="utf-8") as file,
        pq.ParquetWriter(folder / "corpus.parquet", schema, compression="snappy") as parquet,
    ):
        group = []
        for i, text in enumerate(enlarge(texts, size)):
            copies = 2 if i % 9 == 0 else 1
            group += [{"text": text, "category": f"category-{i % 5}"}] * copies
            total += copies * len(text.encode())
            count += copies
            if len(group) >= 1000:
                file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in group)
                parquet.write_table(pa.Table.from_pylist(group, schema=schema))
                group = []
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in group)
        parquet.write_table(pa.Table.from_pylist(group, schema=schema))
    return total / 1e6, count


def measure(command: list[str], folder: Path) -> tuple[float, float]:
    """Return (CPU seconds, peak MB) of a command."""
    environment = os.environ | {"PYTHONPATH": str(ROOT / "workflow")}
    process = subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"failed: {' '.join(command)}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def run_stage(folder: Path, corpus: dict[str, Any]) -> tuple[float, float]:
    """Run the stage in a folder, with these keys of the section `corpus`. Return (CPU seconds, peak MB)."""
    environment = os.environ | {"PYTHONPATH": str(ROOT / "workflow")}
    settings = [sys.executable, "-c", SETTINGS, json.dumps(corpus)]
    done = subprocess.run(settings, cwd=folder, env=environment, capture_output=True, check=True)
    path = write_job(folder, "corpus", json.loads(done.stdout))
    return measure([sys.executable, "-m", "babelmill.corpus", path], folder)


def memory(counts: list[int], keys: dict[str, Any]) -> None:
    """Print the peak memory for these numbers of short documents."""
    draw, before = random.Random(1), None
    vocabulary = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(2, 8))) for _ in range(5000)]
    for count in counts:
        with tempfile.TemporaryDirectory() as name:
            words = draw.choices(vocabulary, k=12)
            with open(Path(name, "a.txt"), "w", encoding="utf-8") as file:
                for _ in range(count):
                    near = draw.random() < 0.2
                    words = [*words[:-1], draw.choice(vocabulary)] if near else draw.choices(vocabulary, k=12)
                    file.write(" ".join(words) + "\n")
            _, peak = run_stage(Path(name), {"files": ["a.txt"], "document": "line"} | keys)
        each = f"{(peak - before[1]) * 2**20 / (count - before[0]):.0f} bytes a document" if before else ""
        print(f"{count:>11,} documents {peak:>7.0f} MB {each}", flush=True)
        before = before or (count, peak)


def main() -> None:
    """Run all cases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=Path, default=Path.home() / ".cache/babelmill/texts", help="see real_text.py")
    parser.add_argument("--megabytes", type=int, default=128)
    parser.add_argument("--documents", type=int, nargs="+", help="numbers of short documents, the smallest first")
    parser.add_argument("--keys", type=json.loads, default={}, help="keys of the section `corpus` as JSON")
    args = parser.parse_args()
    if args.documents:
        return memory(args.documents, args.keys)
    texts = documents(args.texts)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        columns = {"documents": 11, "cleaning": 10, "MB/s/core": 11, "of bare": 9, "peak MB": 9}
        print(f"{'input':<10}{'MB':>6}" + "".join(f"{name:>{width}}" for name, width in columns.items()))
        for factor in (1, 3):
            size, count = make(texts, factor * args.megabytes * 10**6, folder)
            for kind, program in BARE.items():
                bare = measure([sys.executable, "-c", program, f"corpus.{kind}"], folder)[0]
                for cleaning in ({}, CLEANING):
                    cpu, peak = run_stage(folder, {"files": [f"corpus.{kind}"]} | cleaning)
                    print(
                        f"{kind:<10}{size:>6.0f}{count:>11,}{'all' if cleaning else 'none':>10}"
                        f"{size / cpu:>11.1f}{bare / cpu:>9.2f}{peak:>9.0f}",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
