"""Measure how much memory the stage `corpus` needs for each document, above what it needs for any.

    python benchmarks/corpus_memory.py [--documents 10000000] [--near-duplicates]

Two corpora of short documents are built, one five times as large as the other: the difference of the highest memory
of the two processes, divided by the difference of the documents, is what one document costs. A tenth of the documents
are copies, and with `--near-duplicates` another tenth differs from an earlier one in a word. The limits are 60 bytes,
and 200 with near copies.
"""

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from babelmill.config.resolve import Configuration
from babelmill.graph import Graph


def write(path: Path, documents: int, near: bool) -> None:
    """Write so many documents of about ten words, as JSON lines."""
    draw, words = random.Random(1), [f"word{i}" for i in range(50_000)]
    with open(path, "w") as file:
        text = ""
        for i in range(documents):
            if i % 10 == 1 and near:
                text = text.replace("word", "other", 1)
            elif i % 10 or not i:
                text = " ".join(draw.choices(words, k=10))
            file.write(json.dumps({"text": text}) + "\n")


def peak(documents: int, near: bool) -> int:
    """Return the highest memory of a process that builds a corpus of so many documents, in bytes."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder, "a.jsonl"), documents, near)
        corpus = {"files": [f"{folder}/a.jsonl"], "budget": f"{documents // 2} documents"}
        corpus |= {"near_duplicates": 0.8} if near else {}
        graph = Graph(Configuration([("benchmark", {"languages": {"eng": {"corpus": corpus}}})]))
        result = graph.result("corpus", "eng")
        graph.write(result)
        subprocess.run([sys.executable, "-m", "babelmill.corpus", result.settings_file], check=True)
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=10_000_000)
    parser.add_argument("--near-duplicates", action="store_true")
    asked = parser.parse_args()
    few = asked.documents // 5
    small, large = (peak(documents, asked.near_duplicates) for documents in (few, asked.documents))
    each = (large - small) / (asked.documents - few)
    print(
        f"{few:,} documents: {small / 1e6:,.0f} MB; {asked.documents:,}: {large / 1e6:,.0f} MB; {each:.1f} bytes each"
    )
