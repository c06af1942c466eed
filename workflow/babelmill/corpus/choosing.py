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
from typing import Any

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
    first = np.ones(len(order), bool)
    new = np.zeros(max(0, len(order) - 1), bool)
    for key in (key0, key1):
        ordered = key[order]
        new |= ordered[1:] != ordered[:-1]
    first[order[1:]] = new
    return first


def are_among(known: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Return bool [N]: whether each key is one of those that are known (at least one)."""
    known = np.sort(known)
    return known[np.minimum(np.searchsorted(known, keys), len(known) - 1)] == keys


def within(budget: Budget, keys: np.ndarray, sizes: np.ndarray) -> tuple[np.ndarray, int]:
    """Return which documents a budget holds, bool [N], given the digests that order them; and their size."""
    order = np.argsort(keys, kind="stable")
    too_much = int(np.searchsorted(np.cumsum(sizes[order]), budget.limit, "right"))
    kept = keys < keys[order[too_much]] if too_much < len(keys) else np.ones(len(keys), bool)
    return kept, int(sizes[kept].sum())


def choose(
    spool: Spool, held: int, corpus: schema.Corpus, budget: Budget | None, share: float, scratch: Path, tally: Tally
) -> tuple[np.ndarray, np.ndarray, dict[str, Any] | None]:
    """Return which documents of a spool are for training, and which for validation, bool [documents].

    The third is the budget and how large the sample is; None without a budget. The first `held` documents are the
    user's own validation text, and `share` is that of others which are for validation. `tally` counts what is dropped.
    """
    stays = np.ones(spool.documents, bool)
    side = "side" if "side0" in spool.columns else "key"

    def drop(which: np.ndarray, among: np.ndarray, reason: str) -> None:
        """Drop some of the documents that stay. `among` is a part of `stays`, and `which` says of its true ones."""
        among[np.flatnonzero(among)[which]] = False
        if count := int(which.sum()):
            tally.dropped[reason] += count

    if held:  # that both halves of a new digest are there by chance never happens
        repeats = np.ones(spool.documents - held, bool)
        for half in (spool.numbers(f"{side}{i}") for i in range(2)):
            repeats &= are_among(half[:held], half[held:])
        drop(repeats, stays[held:], "in_validation")
    if corpus.deduplicate:
        drop(~first_of_equal(spool.numbers("key0")[stays], spool.numbers("key1")[stays]), stays, "duplicate")
    validation = is_validation(spool.numbers(f"{side}0"), share)
    if corpus.near_duplicates is not None:
        with contextlib.closing(near_copies(spool, stays, held, corpus.near_duplicates, scratch)) as copies:
            for row, text, copy in copies:
                reason = "near_validation" if copy.of < held else "near_duplicate"
                stays[row] = False
                tally.dropped[reason] += 1
                tally.example(reason, text, note=f"{copy.similarity:.2f} of: {copy.beginning}")
    sample = None
    if budget:
        others = stays[held:]
        keys, sizes = (spool.numbers(name)[held:][others] for name in ("key1", "weight"))
        kept, size = within(budget, keys, sizes)
        drop(~kept, others, "over_budget")
        sample = {"unit": budget.unit, "asked": budget.limit, "realised": size}
    validation[:held] = True
    return stays & ~validation, stays & validation, sample
