"""Measure the rows per second of `babelmill predict`, and of plain loops over the pipeline of transformers.

    python benchmarks/predict.py converted/occ [--rows 5000] [--different 0.5] [--threads 2]

This makes a table of descriptions of one to eight words. `--different` is the share of different descriptions. It
predicts the table with the command, by spelt codes (`blocks`) and by classes (`linear`). The loops ask
`pipeline("text-classification")` for the classes of each row, one by one and in batches of 64, with the same number of
threads; they never spell codes. Start and loading do not count.

    python benchmarks/predict.py converted/occ --memory 100000 1000000 [--different 0.01]

This predicts tables of these numbers of rows by their classes. It prints the largest memory of the command's processes
(RssAnon) and the total time.
"""

import argparse
import contextlib
import csv
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]


def descriptions(vocabulary: list[str], rows: int, different: float) -> list[str]:
    """Return texts of words that the tokenizer knows."""
    values = random.Random(0)
    texts = [" ".join(values.choices(vocabulary, k=values.randint(1, 8))) for _ in range(max(1, int(rows * different)))]
    return texts + values.choices(texts, k=rows - len(texts))


def command(folder: Path, table: Path, method: str, threads: int) -> subprocess.Popen[str]:
    """Start the command."""
    out = table.with_name(f"{method}.csv")
    words = [sys.executable, "-m", "babelmill", "predict", folder, table, "--text", "text", "--out", out]
    words += ["--method", method, "--threads", threads]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "workflow"), "OMP_NUM_THREADS": str(threads)}
    return subprocess.Popen(list(map(str, words)), env=environment, stderr=subprocess.PIPE, text=True)


def ours(folder: Path, table: Path, method: str, threads: int) -> float:
    """Return the rows per second of the command."""
    output = command(folder, table, method, threads).communicate()[1]
    found = re.search(r"([\d,]+) rows, ([\d,]+) different texts.* ([\d,]+) texts/s", output)
    if not found:
        sys.exit(output)
    rows, texts, speed = (float(each.replace(",", "")) for each in found.groups())
    return speed * rows / texts


def loop(folder: Path, texts: list[str], threads: int, batch: int) -> float:
    """Return the rows per second of the pipeline."""
    import torch
    import transformers

    torch.set_num_threads(threads)
    classifier = transformers.pipeline("text-classification", str(folder), top_k=5, trust_remote_code=True)
    classifier(texts[0])
    begin = time.perf_counter()
    if batch == 1:
        for text in texts:
            classifier(text)
    else:
        classifier(texts, batch_size=batch)
    return len(texts) / (time.perf_counter() - begin)


def own_memory(parent: int) -> int:
    """Return the bytes of memory that a process and its children have for themselves."""
    total, ours = 0, {parent}
    for status in sorted(Path("/proc").glob("[0-9]*/status"), key=lambda path: int(path.parent.name)):
        with contextlib.suppress(OSError):
            fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
            if int(fields["PPid"]) in ours or int(fields["Pid"]) in ours:
                ours.add(int(fields["Pid"]))
                total += 1024 * int(fields.get("RssAnon", "0").split()[0])
    return total


def measure_memory(folder: Path, vocabulary: list[str], counts: list[int], different: float, threads: int) -> None:
    """Print memory and seconds of tables of so many rows."""
    for count in counts:
        with tempfile.TemporaryDirectory() as scratch:
            table = Path(scratch, "table.csv")
            write(table, descriptions(vocabulary, count, different))
            begin, peak, process = time.monotonic(), 0, command(folder, table, "linear", threads)
            while process.poll() is None:
                peak = max(peak, own_memory(process.pid))
                time.sleep(0.1)
            last = process.communicate()[1].splitlines()[-1]
            print(f"{count:,} rows: {peak / 1e6:,.0f} MB, {time.monotonic() - begin:,.0f} s; {last}", flush=True)


def write(path: Path, texts: list[str]) -> None:
    """Write a table of one column."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["text"], *([text] for text in texts)])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=5000)
    parser.add_argument("--different", type=float, default=0.5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--memory", type=int, nargs="+", metavar="ROWS", help="measure memory with so many rows")
    args = parser.parse_args()
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(args.folder, trust_remote_code=True)
    words = sorted({word.strip("Ġ▁") for word in tokenizer.get_vocab()})
    vocabulary = [word for word in words if word.isalnum()]
    if args.memory:
        return measure_memory(args.folder, vocabulary, args.memory, args.different, args.threads)
    texts = descriptions(vocabulary, args.rows, args.different)
    with tempfile.TemporaryDirectory() as scratch:
        table = Path(scratch, "table.csv")
        write(table, texts)
        speed = {method: ours(args.folder, table, method, args.threads) for method in ("blocks", "linear")}
    plain = {batch: loop(args.folder, texts[: args.rows // 5], args.threads, batch) for batch in (1, 64)}
    for batch, found in plain.items():
        print(f"pipeline, batch_size {batch}: {found:,.0f} rows/s")
    for method, found in speed.items():
        times = " and ".join(f"{found / each:.1f}" for each in plain.values())
        print(f"babelmill predict, {method}: {found:,.0f} rows/s, {times} times as many")


if __name__ == "__main__":
    main()
