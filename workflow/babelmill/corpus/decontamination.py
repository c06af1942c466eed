"""Find the documents that hold a test sentence (`corpus.decontaminate`).

A suite that stands in the training text makes its scores too good. What counts as standing there is said in
`suites/sought.py`. The whole document goes, since what is around a test sentence often belongs to it.
"""

import dataclasses
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from babelmill.core import manifest
from babelmill.corpus.record_batches import sizes_of
from babelmill.corpus.tally import Tally
from babelmill.suites.sought import Sought, sought, whole_texts
from babelmill.suites.texts import texts_of


@dataclasses.dataclass(frozen=True, eq=False)
class Decontamination:
    """Holds what no document may hold."""

    asked: Sought  # the texts of all items
    suites: list[str]  # the names of the suites
    ends: np.ndarray  # how many items there are up to the end of each suite, int64 [suites]

    def suites_with(self, sequence: int) -> list[str]:
        """Return the suites that have a sequence."""
        found = np.searchsorted(self.ends, self.asked.items_with(sequence), "right")
        return [self.suites[i] for i in np.unique(found)]


def decontamination(folders: list[Path]) -> Decontamination:
    """Return what no document may hold; `folders`: results of the stage `suite`."""
    texts, ends, suites = [], [], []
    for folder in folders:
        about = manifest.verify(folder)
        suites.append(about["settings"]["suite"])
        (name,) = about["files"]
        items = pq.ParquetFile(folder / name).read()
        pairs = "good" in items.column_names
        texts += zip(items["good"].to_pylist(), items["bad"].to_pylist(), strict=True) if pairs else texts_of(items)
        ends.append(len(texts))
    return Decontamination(sought(texts), suites, np.array(ends))


def without_items(batch: pa.RecordBatch, asked: Decontamination, tally: Tally) -> tuple[np.ndarray, list[str]]:
    """Return which documents stay, and for each other one what it holds: the suites and the words."""
    stays, notes = np.ones(batch.num_rows, bool), [""] * batch.num_rows
    rows, sequences = asked.asked.found_in(whole_texts(batch))
    stays[rows] = False
    of_rows, firsts = np.unique(rows, return_index=True)
    for row, mine in zip(of_rows.tolist(), np.split(sequences, firsts[1:]), strict=False):
        mine = mine.tolist()
        suites = sorted({suite for sequence in mine for suite in asked.suites_with(sequence)})
        tally.suites.update(suites)
        notes[row] = f"{', '.join(suites)}: {asked.asked.words_of(mine[0])}"
    if len(rows):
        tally.with_items += int(sizes_of(batch)[~stays].sum())
    return stays, notes
