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
from babelmill.core.files import UserError
from babelmill.core.words import plural
from babelmill.core.worker_pool import in_order
from babelmill.evaluation.suite_scores import headline_method
from babelmill.stages import ScoreStage
from babelmill.suites.kinds import KINDS, OfSentences
from babelmill.suites.sought import TEXTS, Sought, sought, whole_texts

log = logging.getLogger("babelmill.score")
SPLIT = "train.parquet"
BYTES = 4 << 20  # of text that is looked through at a time
WORTH_IT = 16 << 20  # bytes of a file; to look through less is faster than to start workers
MOST = 20e9  # bytes of a language's text that are looked through: about an hour of one thread
EXAMPLES = 50


def overlap(
    scored: pa.Table, scores: dict[str, Any], settings: ScoreStage, corpora: dict[str, Path], threads: int
) -> dict[str, Any] | None:
    """Return the content of overlap.json; None for kinds of suites that have no sentences to look for.

    `scored`: the rows of pairs.parquet or items.parquet. `scores`: the content of scores.json. `corpora`: {language:
    the folder of its corpus}. `threads`: how many threads look at the same time.
    """
    kind = KINDS[settings.kind]
    if not isinstance(kind, OfSentences):
        return None
    gone = {code: problem for code in settings.languages if (problem := lost(corpora[code]))}
    there = [code for code in settings.languages if code not in gone]
    about: dict[str, Any] = {"item": kind.item, "looked_in": {}, "not_looked_in": gone}
    if not there:
        return about
    log.info("looking for %s in the training text of %s", plural(len(scored), kind.item), ", ".join(there))
    asked = sought(kind.texts(scored))
    seen = set[int]()
    for code in there:
        about["looked_in"][code] = look(corpora[code] / SPLIT, asked, seen, threads)
    found = asked.items_of(seen)
    languages = np.array(scored["language"].to_pylist(), object)
    method = headline_method(scores)
    left = scored.filter(pa.array(~np.isin(np.arange(len(scored)), found)))
    about["languages"] = {}
    for code in settings.covered:
        rest = left.filter(pc.equal(left["language"], code))
        of_language = np.flatnonzero(languages == code)
        about["languages"][code] = {
            "items": len(of_language),
            "found": int(np.isin(of_language, found).sum()),
            "short": int(np.isin(of_language, asked.short).sum()),
            "without": kind.summary(rest, method, settings)[settings.headline],
        }
    about["method"] = method
    if measure := kind.measure(scored):
        about["measure"] = measure
    about["rows"] = found
    about["examples"] = [
        {"row": row, "language": languages[row], "words": asked.words_of(asked.first_of(row, seen))}
        for row in found[:EXAMPLES]
    ]
    return about


def lost(folder: Path) -> str | None:
    """Return why the text in the folder of a corpus cannot be looked through; None if it can."""
    if manifest.read(folder)["figures"].get("bytes", {}).get("train", 0) > MOST:
        return f"{folder} is too large (more than {MOST / 1e9:.0f} GB)"
    try:
        manifest.verify(folder, SPLIT)
    except UserError as error:
        log.warning("%s", error)
        return f"{folder} is damaged"
    return None


def look(path: Path, asked: Sought, seen: set[int], threads: int) -> dict[str, int]:
    """Add to `seen` which sequences stand in the documents of a Parquet file. Return how much text it holds."""
    size = documents = 0
    with pq.ParquetFile(path) as parquet:
        total = parquet.metadata.num_rows
    work = in_order(in_texts, texts_of(path), asked, threads if path.stat().st_size > WORTH_IT else 1)
    with contextlib.closing(work), contextlib.closing(Bar(total)) as bar:
        for found, of_batch, bytes_of_batch in work:
            seen |= found
            documents, size = documents + of_batch, size + bytes_of_batch
            bar.show(documents, f"looking in the training text: {documents:,}/{total:,} documents")
    return {"documents": documents, "bytes": size}


def in_texts(text: pa.StringArray, asked: Sought) -> tuple[set[int], int, int]:
    """Return which sequences stand in texts, the number of the texts, and their bytes."""
    found = {sequence for each in text.to_pylist() for sequence in asked.found_in(each)}
    return found, len(text), pc.sum(pc.binary_length(text)).as_py()


def texts_of(path: Path) -> Iterator[pa.StringArray]:
    """Yield the documents of a corpus, each with its prompt or context before it, in batches of a few megabytes."""
    with pq.ParquetFile(path) as parquet:
        names = [name for name in TEXTS if name in parquet.schema_arrow.names]
        for group in range(parquet.num_row_groups):
            for batch in parquet.read_row_group(group, columns=names).to_batches():
                text = whole_texts(batch)
                rows = max(1, len(text) * BYTES // max(1, text.nbytes))
                yield from (text.slice(start, rows) for start in range(0, len(text), rows))
