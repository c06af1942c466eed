"""Rows per second of `babelmill predict`, beside a plain loop over transformers' pipeline.

    python benchmarks/predict.py converted/occ [--rows 5000] [--different 0.5] [--threads 2]

Makes a table of descriptions of one to eight words, of which so large a share are different, and predicts it by hand,
by the spelt codes (`blocks`) and by the classes alone (`linear`). The loop asks `pipeline("text-classification")` for
the classes of each row in turn, on as many threads; it never spells codes. Start and loading are not counted.
"""

import argparse
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


def ours(folder: Path, table: Path, method: str, threads: int) -> float:
    """Return the rows per second of the command."""
    out = table.with_name(f"{method}.csv")
    command = [sys.executable, "-m", "babelmill", "predict", folder, table, "--text", "text", "--out", out]
    more = ["--method", method, "--threads", str(threads)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "workflow"), "OMP_NUM_THREADS": str(threads)}
    done = subprocess.run([*map(str, command), *more], env=environment, capture_output=True, text=True, check=True)
    return float(re.search(r"([\d,]+) rows/s", done.stderr)[1].replace(",", ""))  # pyright: ignore


def loop(folder: Path, texts: list[str], threads: int) -> float:
    """Return the rows per second of the pipeline."""
    import torch
    import transformers

    torch.set_num_threads(threads)
    classifier = transformers.pipeline("text-classification", str(folder), top_k=5, trust_remote_code=True)
    classifier(texts[0])
    begin = time.perf_counter()
    for text in texts:
        classifier(text)
    return len(texts) / (time.perf_counter() - begin)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=5000)
    parser.add_argument("--different", type=float, default=0.5)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    import transformers

    words = [word.strip("Ġ▁") for word in transformers.AutoTokenizer.from_pretrained(args.folder).get_vocab()]
    texts = descriptions(sorted(word for word in words if word.isalnum()), args.rows, args.different)
    with tempfile.TemporaryDirectory() as scratch:
        table = Path(scratch, "table.csv")
        with open(table, "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([["text"], *([text] for text in texts)])
        speed = {method: ours(args.folder, table, method, args.threads) for method in ("blocks", "linear")}
    plain = loop(args.folder, texts[: args.rows // 5], args.threads)
    print(f"pipeline, one by one: {plain:,.0f} rows/s")
    for method, found in speed.items():
        print(f"babelmill predict, {method}: {found:,.0f} rows/s, {found / plain:.1f} times as many")


if __name__ == "__main__":
    main()
