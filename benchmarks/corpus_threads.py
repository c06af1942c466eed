"""Measure how much faster the stage `corpus` is with a second core, for each kind of file.

    python benchmarks/corpus_threads.py FOLDER [--texts FOLDER] [--megabytes 600] [--threads 1 2]

This writes real text (`real_text.py`) to files of each kind, runs the stage with each number of threads, and
prints the seconds.
"""

import argparse
import gzip
import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from corpus import ROOT, SETTINGS
from real_text import documents, enlarge
from workflow_run import write_job

KINDS = {
    "one .jsonl": "one.jsonl",
    "one .jsonl.gz": "one.jsonl.gz",
    "one .parquet": "one.parquet",
    "200 .jsonl.zst": "zst/*",
    "20,000 .txt": "txt/*",
}


def make(texts: list[str], folder: Path) -> None:
    """Write the same text as files of each kind."""
    lines = [json.dumps({"text": text}, ensure_ascii=False).encode() + b"\n" for text in texts]
    (folder / "one.jsonl").write_bytes(b"".join(lines))
    (folder / "one.jsonl.gz").write_bytes(gzip.compress(b"".join(lines), 1))
    pq.write_table(pa.table({"text": texts}), folder / "one.parquet", row_group_size=1000)
    for name, count in (("zst", 200), ("txt", 20_000)):
        (folder / name).mkdir(exist_ok=True)
        for i in range(count):
            path = folder / name / f"{i:05}.{'jsonl.zst' if name == 'zst' else 'txt'}"
            text = b"".join(lines[i::count]) if name == "zst" else "\n\n".join(texts[i::count]).encode()
            path.write_bytes(pa.Codec("zstd").compress(text, asbytes=True) if name == "zst" else text)


def seconds(pattern: str, threads: int, folder: Path) -> tuple[float, str]:
    """Run the stage. Return the seconds, and the hash of its result."""
    environment = os.environ | {"PYTHONPATH": str(ROOT / "workflow")}
    settings = [sys.executable, "-c", SETTINGS, json.dumps({"files": [pattern]})]
    done = subprocess.run(settings, cwd=folder, env=environment, capture_output=True, check=True)
    command = [sys.executable, "-m", "babelmill.corpus", write_job(folder, "corpus", json.loads(done.stdout))]
    began = time.monotonic()
    subprocess.run([*command, "--threads", str(threads)], cwd=folder, env=environment, check=True, capture_output=True)
    took = time.monotonic() - began
    return took, hashlib.sha256((folder / "results/corpus/out/train.parquet").read_bytes()).hexdigest()


def main() -> None:
    """Print a line for each kind."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--texts", type=Path, default=Path.home() / ".cache/babelmill/texts", help="see real_text.py")
    parser.add_argument("--megabytes", type=int, default=600)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    make(list(enlarge(documents(args.texts), args.megabytes * 10**6)), args.folder)
    print("| files | " + " | ".join(f"{n} threads, s" for n in args.threads) + " | ratio | the same bytes |")
    print("|---|" + "---|" * (len(args.threads) + 2))
    for kind, pattern in KINDS.items():
        found = [seconds(pattern, threads, args.folder) for threads in args.threads]
        took = [f"{time:.1f}" for time, _ in found]
        same = "yes" if len({digest for _, digest in found}) == 1 else "NO"
        print(f"| {kind} | {' | '.join(took)} | {found[0][0] / found[-1][0]:.2f} | {same} |", flush=True)


if __name__ == "__main__":
    main()
