"""Measure which near copies are found.

    python benchmarks/near_copies.py

This plants a copy of each of 1,000 texts, and compares what is found with the exact Jaccard index. Then it counts how
many of 300 planted copies are found among 300 pages that share a part of their text.
"""

import itertools
import random
import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "workflow"))
from babelmill.config.resolve import Configuration
from babelmill.corpus.cleaning import Steps, prepared
from babelmill.corpus.near_copies import near_copies
from babelmill.corpus.record_batches import RowGroups, Spool, batch_of


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
    corpus = Configuration([("benchmark", {"corpus": {"near_duplicates": threshold}})]).corpus("eng").corpus
    batch, _ = prepared(batch_of({"text": texts}), Steps(corpus))
    among = np.ones(len(texts), bool)
    with tempfile.NamedTemporaryFile() as file:
        with RowGroups(file.name, batch.schema, "lz4") as rows:
            rows.write(batch, batch.nbytes)
        found = near_copies(Spool(file.name), among, 0, threshold, None)
        return {row for row, _, _ in found}


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
    """Print both tables."""
    recall_of_planted()
    print("\n| similarity of the pages | copies found |\n|---|---|", flush=True)
    for alike in (0.0, 0.5, 0.6, 0.7, 0.74, 0.78):
        recall(alike)


if __name__ == "__main__":
    main()
