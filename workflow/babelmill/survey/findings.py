"""Hold what was found in documents, and add it up.

Memory does not grow with the number of documents: lengths are counted by their values, and of each kind of documents to
show only the first few are kept. Which these are does not depend on processes or on the order of files.
"""

import dataclasses
import heapq
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa

SHOWN = 20  # documents of each kind that are shown
MOST = 1000  # different categories, sources and licences that are counted; the rest is counted together
REST = "(others)"


@dataclasses.dataclass
class Findings:
    """Holds what was found in some documents."""

    # documents, bytes, characters, words: their size. Words are what white space separates.
    documents: int = 0
    bytes: int = 0
    characters: int = 0
    words: int = 0
    # {characters: number of documents of this length}
    lengths: Counter[int] = dataclasses.field(default_factory=Counter)
    # {words: number of documents of this length}
    lengths_in_words: Counter[int] = dataclasses.field(default_factory=Counter)
    letters: Counter[str] = dataclasses.field(default_factory=Counter)  # {script: letters}
    # {script: documents that have most of their letters in it}; "" stands for documents without letters
    scripts: Counter[str] = dataclasses.field(default_factory=Counter)
    judged: int = 0  # number of documents whose language and encoding were judged
    # {language: documents}, of those that were judged
    languages: Counter[str] = dataclasses.field(default_factory=Counter)
    # {language: bytes}, of those that were judged
    language_bytes: Counter[str] = dataclasses.field(default_factory=Counter)
    # {kind: characters} of characters that no text should hold
    odd: Counter[str] = dataclasses.field(default_factory=Counter)
    odd_documents: Counter[str] = dataclasses.field(default_factory=Counter)  # {kind: documents that hold some}
    mojibake: int = 0  # number of places that look like text read in a wrong encoding
    mojibake_documents: int = 0  # number of documents with such places
    # {column of metadata: {value: (documents, bytes)}}
    groups: dict[str, dict[str, tuple[int, int]]] = dataclasses.field(default_factory=dict)
    lines: int = 0  # number of lines that are not empty
    repeated_lines: int = 0  # number of those that stand in the same document before
    # {kind: documents to show}, each as (rank, key, entry). The smallest ranks are shown; keys decide on ties.
    shown: dict[str, list[tuple[float, int, dict[str, Any]]]] = dataclasses.field(default_factory=dict)
    # digests of the different lines of each document, uint64. They are counted elsewhere.
    line_keys: np.ndarray = dataclasses.field(default_factory=lambda: np.empty(0, np.uint64))
    # digests of the documents, uint64
    keys: np.ndarray = dataclasses.field(default_factory=lambda: np.empty(0, np.uint64))
    bands: pa.FixedSizeBinaryArray | None = None  # what near copies are found by (`near_copies.bands_of`)

    def merge(self, part: "Findings") -> None:
        """Add what was found in other documents, but not their digests and bands."""
        for field in dataclasses.fields(self):
            mine, others = getattr(self, field.name), getattr(part, field.name)
            if isinstance(mine, Counter):
                mine.update(others)
            elif isinstance(mine, int):
                setattr(self, field.name, mine + others)
        for column, values in part.groups.items():
            for value, (documents, size) in values.items():
                self.add_to_group(column, value, documents, size)
        for kind, entries in part.shown.items():
            self.show(kind, entries)

    def add_to_group(self, column: str, value: str, documents: int, size: int) -> None:
        """Count documents under a value of a column of metadata."""
        found = self.groups.setdefault(column, {})
        name = value if value in found or len(found) < MOST else REST
        before = found.get(name, (0, 0))
        found[name] = (before[0] + documents, before[1] + size)

    def show(self, kind: str, entries: list[tuple[float, int, dict[str, Any]]]) -> None:
        """Keep the first of the documents to show. Copies of a document are shown once."""
        unique = {key: (rank, key, entry) for rank, key, entry in [*self.shown.get(kind, []), *entries]}
        self.shown[kind] = heapq.nsmallest(SHOWN, unique.values(), key=lambda each: each[:2])


def quantile(lengths: Counter[int], share: float) -> int:
    """Return the smallest length that at least a share of the documents do not exceed; 0 if there are none."""
    wanted, so_far = share * lengths.total(), 0
    for length in sorted(lengths):
        so_far += lengths[length]
        if so_far >= wanted:
            return length
    return 0
