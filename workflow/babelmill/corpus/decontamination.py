"""Find the documents that hold a test sentence (`corpus.decontaminate`).

A suite that stands in the training text makes its scores too good. What counts as standing there is said in
`suites/sought.py`. The whole document goes, since what is around a test sentence often belongs to it.
"""

import bisect
import dataclasses
from pathlib import Path

import pyarrow.parquet as pq

from babelmill.core import manifest
from babelmill.suites.items import ITEMS, texts_of
from babelmill.suites.sought import Sought, sought


@dataclasses.dataclass(frozen=True, eq=False)
class Decontamination:
    """Holds what no document may hold."""

    asked: Sought  # the texts of all items
    suites: list[str]  # the names of the suites
    ends: list[int]  # how many items there are up to the end of each suite

    def found_in(self, text: str) -> tuple[list[str], str]:
        """Return the suites of the items that a text holds, sorted, and the first words that are in both."""
        sequences = self.asked.found_in(text)
        places = {bisect.bisect(self.ends, item) for item in self.asked.items_of(sequences)}
        return sorted(self.suites[i] for i in places), self.asked.words_of(sequences[0]) if sequences else ""


def decontamination(folders: list[Path]) -> Decontamination:
    """Return what no document may hold; `folders`: results of the stage `suite`."""
    texts, ends, suites = [], [], []
    for folder in folders:
        suites.append(manifest.verify(folder, ITEMS)["settings"]["suite"])
        texts += texts_of(pq.ParquetFile(folder / ITEMS).read(["prompts", "options"]))
        ends.append(len(texts))
    return Decontamination(sought(texts), suites, ends)
