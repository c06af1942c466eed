"""Find lines that stand in many documents, such as menus and notices of copyright (`corpus.boilerplate`).

A first pass over the text counts in how many documents each line stands, before anything is written; the second pass
takes the frequent lines out. Exact copies of documents count once, and white space around a line does not matter. The
counts are exact, and memory does not grow with the text (`counts.py`).
"""

# pyright: reportAttributeAccessIssue=false
# (pyarrow creates the functions of pyarrow.compute at import: a type checker cannot see them.)

import dataclasses
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from babelmill.corpus.counts import Counts
from babelmill.corpus.digests import DIGEST, digests
from babelmill.corpus.record_batches import joined
from babelmill.corpus.tally import Tally

FEWEST = 10  # documents; in a small corpus, lines that stand in fewer are no boilerplate, whatever their share
LINES = "lines"


@dataclasses.dataclass(frozen=True, eq=False)
class Boilerplate:
    """Holds the frequent lines."""

    lines: np.ndarray  # their digests, uint64 [lines], sorted
    documents: np.ndarray  # in how many documents each of them stands, int64 [lines]


def lines_of(text: pa.StringArray) -> tuple[pa.StringArray, np.ndarray, np.ndarray]:
    """Return all lines of texts without white space around them, their digests, and the documents they are from."""
    found = pc.split_pattern(text, "\n")
    lines = pc.utf8_trim_whitespace(found.flatten())
    return lines, digests(lines)[:, 0], pc.list_parent_indices(found).to_numpy()


def different_lines(keys: np.ndarray, documents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the digests of lines and their documents, sorted by document and digest, without repetitions."""
    order = np.lexsort((keys, documents))
    keys, documents = keys[order], documents[order]
    new = np.ones(len(keys), bool)
    new[1:] = (keys[1:] != keys[:-1]) | (documents[1:] != documents[:-1])
    return keys[new], documents[new]


def for_counting(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return, for a batch with digests, the digests of each document's different lines. Empty lines do not count."""
    lines, keys, documents = lines_of(batch["text"])
    filled = pc.not_equal(lines, "").to_numpy(zero_copy_only=False)
    keys, documents = different_lines(keys[filled], documents[filled])
    ends = np.searchsorted(documents, np.arange(batch.num_rows + 1)).astype(np.int32)
    column = pa.ListArray.from_arrays(pa.array(ends), pa.array(keys))
    return pa.RecordBatch.from_arrays([column, batch[DIGEST.name]], names=[LINES, DIGEST.name])


def count(documents: Iterable[pa.RecordBatch], share: float, scratch: Path | None) -> Boilerplate:
    """Return the lines that stand in more than a share of the documents, and in `FEWEST` at least.

    `documents` are batches of `for_counting`, each document once; `scratch` is the folder for temporary files.
    """
    total, frequent = 0, [(np.empty(0, np.uint64), np.empty(0, np.int64))]
    with Counts(scratch) as counts_of_lines:
        for batch in documents:
            total += batch.num_rows
            counts_of_lines.add(batch[LINES].flatten().to_numpy())
        for keys, counts in counts_of_lines.parts():
            found = (counts > share * total) & (counts >= FEWEST)
            frequent.append((keys[found], counts[found]))
    return Boilerplate(*map(np.concatenate, zip(*frequent, strict=True)))


def without_boilerplate(text: pa.StringArray, boilerplate: Boilerplate, tally: Tally) -> pa.StringArray:
    """Return texts without the frequent lines, or `text` itself if it has none."""
    lines, keys, documents = lines_of(text)
    frequent = np.isin(keys, boilerplate.lines)
    if not frequent.any():
        return text
    tally.changed["boilerplate"] += len(np.unique(documents[frequent]))
    tally.lines["boilerplate"] += int(frequent.sum())
    _, rows = np.unique(keys[frequent], return_index=True)
    for row in np.flatnonzero(frequent)[rows]:
        count = int(boilerplate.documents[np.searchsorted(boilerplate.lines, keys[row])])
        tally.examples.add("boilerplate", lines[row].as_py(), weight=count, documents=count)
    return joined(pc.split_pattern(text, "\n"), ~frequent, "\n")
