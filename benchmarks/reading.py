"""Compare the one reader with the plainest program that reads the same file with the bare library.

    python benchmarks/reading.py FOLDER [--megabytes 50]

It prints, for each format, the speed of both, and their ratio: the best of five in turn, in one process on one thread.
Goal for .jsonl: at least 0.9.
"""

import argparse
import csv
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "workflow"))

import pyarrow as pa
import pyarrow.parquet as pq

from babelmill.tables.rows import Asked, rows
from babelmill.tables.text import Form

HERE = Path(__file__).parents[1]
ASKED = [Asked("text", "corpus.text_column")]


def paragraphs(megabytes: float) -> list[str]:
    """Return paragraphs of our own documents, each third in Greek letters, as often as they are needed."""
    greek = str.maketrans("aeioubdgklmnprst", "αειουβδγκλμνπρστ")
    text = [part for path in sorted(HERE.glob("docs/*.md")) for part in path.read_text("utf-8").split("\n\n")]
    text = [
        part.strip().translate(greek) if i % 3 == 0 else part.strip() for i, part in enumerate(text) if part.strip()
    ]
    often = max(1, round(megabytes * 1e6 / sum(len(part.encode()) for part in text)))
    return [part for _ in range(often) for part in text]


def write(folder: Path, texts: list[str]) -> None:
    """Write the texts in each format."""
    with open(folder / "text.jsonl", "w", encoding="utf-8") as file:
        file.writelines(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts)
    with open(folder / "text.csv", "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([["text"], *([text] for text in texts)])
    (folder / "text.txt").write_text("\n\n".join(texts), encoding="utf-8")
    pq.write_table(pa.table({"text": texts}), folder / "text.parquet")


def bare(path: Path) -> Iterator[str]:
    """Read a file with the bare library."""
    if path.suffix == ".parquet":
        for batch in pq.ParquetFile(path).iter_batches(columns=["text"], use_threads=False):
            yield from batch.column(0).to_pylist()
        return
    with open(path, encoding="utf-8", newline="" if path.suffix == ".csv" else None) as file:
        if path.suffix == ".jsonl":
            yield from (json.loads(line)["text"] for line in file)
        elif path.suffix == ".csv":
            yield from (row[0] for row in itertools.islice(csv.reader(file), 1, None))
        else:
            yield from (line for line in file if line)


def seconds(read: Callable[[], Iterator[object]]) -> float:
    """Return the CPU time of reading a file."""
    begun = time.process_time()
    for _ in read():
        pass
    return time.process_time() - begun


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--megabytes", type=float, default=50)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    texts = paragraphs(args.megabytes)
    write(args.folder, texts)
    size = sum(len(text.encode()) for text in texts) / 1e6
    print("| file | ours, MB/s | bare, MB/s | ours / bare |\n|---|---|---|---|")
    cases = [(name, Form()) for name in ("text.jsonl", "text.csv", "text.parquet")]
    cases += [("text.txt", Form(document=unit)) for unit in ("line", "paragraph", "300 words")]
    for name, form in cases:
        path = args.folder / name
        times = [(seconds(lambda: rows(path, ASKED, form)), seconds(lambda: bare(path))) for _ in range(5)]  # noqa: B023
        ours, theirs = map(min, zip(*times, strict=True))
        print(f"| {name} {form.document} | {size / ours:.0f} | {size / theirs:.0f} | {theirs / ours:.2f} |")


if __name__ == "__main__":
    main()
