"""Find which items of a suite stand in the text that a model was trained on, and the score without them.

The stage `score` does this after it has scored, for suites of pairs and choices. It reads the training text of all
languages of the model, a few megabytes at a time. (The text of a model that this one continues is not looked at.)
"""

# pyright: reportAttributeAccessIssue=false
# (pyarrow creates the functions of pyarrow.compute at import: a type checker cannot see them.)

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from babelmill.core import manifest
from babelmill.core.bars import Bar
from babelmill.core.words import plural
from babelmill.core.worker_pool import in_order
from babelmill.evaluation.suite_scores import headline_method
from babelmill.stages import ScoreStage
from babelmill.suites.items import NOUNS
from babelmill.suites.kinds import KINDS, OfSentences
from babelmill.suites.sought import TEXTS, Sought, sought, whole_texts

log = logging.getLogger("babelmill.score")
SPLIT = "train.parquet"
DOCUMENTS = 256  # that are looked through at a time
WORTH_IT = 16 << 20  # bytes of a file; to look through less is faster than to start workers
EXAMPLES = 50


def overlap(
    scored: pa.Table, scores: dict[str, Any], settings: ScoreStage, corpora: dict[str, Path], threads: int
) -> dict[str, Any] | None:
    """Return the content of overlap.json; None for kinds of suites that have no sentences to look for.

    `scored`: the rows of items.parquet. `scores`: the content of scores.json. `corpora`: {language: the folder of its
    corpus}. `threads`: how many threads look at the same time.
    """
    kind = KINDS[settings.kind]
    if not isinstance(kind, OfSentences):
        return None
    about: dict[str, Any] = {"item": NOUNS[settings.kind], "looked_in": {}}
    asked, seen = sought(kind.texts(scored)), set[int]()
    for code in settings.languages:
        manifest.verify(corpora[code], SPLIT)
        log.info("looking for %s in the training text of %s", plural(len(scored), about["item"]), code)
        about["looked_in"][code] = look(corpora[code] / SPLIT, asked, seen, threads)
    found, method = asked.items_of(seen), headline_method(scores)
    stands, short = (np.isin(np.arange(len(scored)), rows) for rows in ([*found], asked.short))
    languages = np.array(scored["language"].to_pylist(), object)
    about["languages"] = {}
    for code in settings.covered:
        mine = languages == code
        without = kind.summary(scored.filter(pa.array(mine & ~stands)), method, settings)[settings.headline]
        counts = {"items": mine, "found": mine & stands, "short": mine & short}
        about["languages"][code] = {key: int(rows.sum()) for key, rows in counts.items()} | {"without": without}
    examples = [{"row": row, "language": languages[row], "words": words} for row, words in found.items()]
    return about | {"method": method, "rows": [*found], "examples": examples[:EXAMPLES]}


def look(path: Path, asked: Sought, seen: set[int], threads: int) -> dict[str, int]:
    """Add to `seen` which sequences stand in the documents of a Parquet file. Return how much text it holds."""
    size, documents, total = 0, 0, pq.read_metadata(path).num_rows
    work = in_order(in_texts, texts_of(path), asked, threads if path.stat().st_size > WORTH_IT else 1)
    with contextlib.closing(work), contextlib.closing(Bar(total)) as bar:
        for found, of_batch, bytes_of_batch in work:
            seen |= found
            documents, size = documents + of_batch, size + bytes_of_batch
            bar.show(documents, f"looking in the training text: {documents:,}/{total:,} documents")
    return {"documents": documents, "bytes": size}


def in_texts(text: pa.StringArray, asked: Sought) -> tuple[set[int], int, int]:
    """Return which sequences stand in texts, the number of the texts, and their bytes."""
    return set().union(*asked.found_in(text.to_pylist())), len(text), pc.sum(pc.binary_length(text)).as_py()


def texts_of(path: Path) -> Iterator[pa.StringArray]:
    """Yield the documents of a corpus, each with its prompt or context before it, some at a time."""
    with pq.ParquetFile(path) as parquet:
        for batch in parquet.iter_batches(DOCUMENTS, columns=[*TEXTS]):  # those of them that there are
            yield whole_texts(batch)
