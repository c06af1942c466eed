"""Choose which of the documents of a spool stay, and for which split, by their numbers alone.

A document with the text of the user's own validation text goes, then all but the first of equal documents, then near
copies, and then what a budget does not hold. A budget takes the documents with the smallest digests until it is full.
So its sample is uniform over all categories and files (dataset repositories are often sorted by category), is the same
on every run, and contains that of a smaller budget. What is left is for validation if its digest says so.

All steps together have at most seven numbers of each document in memory (56 bytes).
"""

import contextlib
import dataclasses
from pathlib import Path

import numpy as np
import pyarrow as pa

from babelmill.config import schema
from babelmill.config.languages import WORD
from babelmill.core.words import words_in
from babelmill.corpus.near_copies import near_copies
from babelmill.corpus.record_batches import Spool, sizes_of
from babelmill.corpus.tally import Tally


@dataclasses.dataclass(frozen=True)
class Budget:
    """Says how much text to take: `limit` is a number of `unit` (`bytes`, `exact words` or `documents`)."""

    limit: int
    unit: str

    @classmethod
    def parse(cls, value: float | str, byte_premium: float) -> "Budget":
        """Return the budget of a language.

        A number means megabytes (10^6 bytes) of English-equivalent text. `N words` means N times 5.43 bytes of such
        text. In this language, text with the same content takes `byte_premium` times as many bytes. `N exact words`
        are separated by white space, and `N documents` means a number of documents.
        """
        if isinstance(value, str):
            number, unit = value.split(maxsplit=1)
            if unit in ("documents", "exact words"):
                return cls(int(number), unit)
            return cls(round(int(number) * WORD * byte_premium), "bytes")
        return cls(round(value * 1e6 * byte_premium), "bytes")

    def sizes(self, batch: pa.RecordBatch) -> np.ndarray:
        """Return the size of each document of a batch in the budget's unit, [N] int64."""
        if self.unit == "documents":
            return np.ones(batch.num_rows, np.int64)
        if self.unit == "exact words":
            return np.array([*map(words_in, batch["text"].to_pylist())], np.int64)
        return sizes_of(batch)


def is_validation(side: np.ndarray, share: float) -> np.ndarray:
    """Return bool [N]: whether each document, given the first half of its digest, is for validation: about `share`."""
    return side < np.uint64(int(share * 2**64))


def first_of_equal(key0: np.ndarray, key1: np.ndarray) -> np.ndarray:
    """Return bool [N]: whether each document is the first with its digest, whose halves are given."""
    order = np.lexsort((key1, key0))
    first = np.ones(len(key0), bool)
    new = first[1:].copy()
    sorted_key = key0[order]
    np.not_equal(sorted_key[1:], sorted_key[:-1], out=new)
    sorted_key = key1[order]
    new |= sorted_key[1:] != sorted_key[:-1]
    first[order[1:]] = new
    return first


def repeats_held_out(side0: np.ndarray, side1: np.ndarray, held: int) -> np.ndarray:
    """Return bool [N]: whether each document repeats one of the first `held` documents and is not one of them."""
    known = np.sort(side0[:held])
    maybe = np.flatnonzero(known[np.minimum(np.searchsorted(known, side0), held - 1)] == side0)
    pairs = {*zip(side0[:held].tolist(), side1[:held].tolist(), strict=True)}
    found = np.zeros(len(side0), bool)
    for row in maybe[maybe >= held].tolist():
        found[row] = (int(side0[row]), int(side1[row])) in pairs
    return found


def within(budget: Budget, keys: np.ndarray, sizes: np.ndarray) -> tuple[np.ndarray, int]:
    """Return which documents a budget holds, bool [N], given the digests that order them; and their size."""
    order = np.argsort(keys, kind="stable")
    too_much = int(np.searchsorted(np.cumsum(sizes[order]), budget.limit, "right"))
    kept = keys < keys[order[too_much]] if too_much < len(keys) else np.ones(len(keys), bool)
    return kept, int(sizes[kept].sum())


class Choice:
    """Says of each document of a spool, the first `held` of which are the user's own validation text, where it goes."""

    def __init__(
        self,
        spool: Spool,
        held: int,
        corpus: schema.Corpus,
        budget: Budget | None,
        share: float,
        scratch: Path,
        tally: Tally,
    ) -> None:
        self._tally, self._stays = tally, np.ones(spool.documents, bool)
        self.budget: dict[str, int | str] | None = None  # the budget, and how large the sample is
        side = "side" if "side0" in spool.columns else "key"
        if held:
            repeats = repeats_held_out(spool.numbers(f"{side}0"), spool.numbers(f"{side}1"), held)
            self._drop(np.flatnonzero(repeats), "in_validation")
        if corpus.deduplicate:
            rows = np.flatnonzero(self._stays) if held else slice(None)
            first = first_of_equal(spool.numbers("key0")[rows], spool.numbers("key1")[rows])
            self._drop(np.flatnonzero(~first) if not held else np.flatnonzero(self._stays)[~first], "duplicate")
        self.validation = is_validation(spool.numbers(f"{side}0"), share)
        if corpus.near_duplicates is not None:
            self._without_near_copies(spool, held, corpus.near_duplicates, scratch)
        self.validation[:held] = True
        if budget:
            rows = held + np.flatnonzero(self._stays[held:])
            kept, size = within(budget, spool.numbers("key1")[rows], spool.numbers("weight")[rows])
            self._drop(rows[~kept], "over_budget")
            self.budget = {"unit": budget.unit, "asked": budget.limit, "realised": size}
        self.validation &= self._stays
        self.train = self._stays & ~self.validation

    def _drop(self, rows: np.ndarray, reason: str) -> None:
        self._stays[rows] = False
        if len(rows):
            self._tally.dropped[reason] += len(rows)

    def _without_near_copies(self, spool: Spool, held: int, threshold: float, scratch: Path) -> None:
        """Drop near copies of earlier documents, but no document of the user's own validation text."""
        with contextlib.closing(near_copies(spool, self._stays, held, threshold, scratch)) as copies:
            for row, text, copy in copies:
                reason = "near_validation" if copy.of < held else "near_duplicate"
                self._drop(np.array([row]), reason)
                self._tally.examples.add(reason, text, note=f"{copy.similarity:.2f} of: {copy.beginning}")
