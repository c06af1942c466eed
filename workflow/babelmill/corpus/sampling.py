"""Draw a sample of the documents that is as large as the budget, by their digests.

The sample is the documents with the smallest digests, until the budget is full. It is uniform over all categories and
files. (The beginning of a file would not be a fair sample, since dataset repositories are often sorted by category.)
The sample is the same on every run, and the sample of a larger budget contains that of a smaller one. From the Hub,
only the files that the budget needs are downloaded (`download.py`).

One pass over the documents is enough. After the sampler has read more than the budget, digests above some threshold
cannot be in the sample any more. The threshold falls as the sampler reads more. So the temporary file never holds much
more than twice the budget.
"""

import dataclasses
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from babelmill.core.words import count_words
from babelmill.corpus.cleaning import keep
from babelmill.corpus.digests import keys_of
from babelmill.corpus.record_batches import Spool, sizes_of
from babelmill.corpus.tally import Tally

WORD = 5.43  # bytes per English word, as in the tiers of BabyBabelLM: 100 million words are 543 MB


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
            return np.array([count_words([text]) for text in batch["text"].to_pylist()], np.int64)
        return sizes_of(batch)


class Sampler:
    """Finds the digest below which a sample of the documents fills the budget."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self._keys: list[np.ndarray] = []
        self._sizes: list[np.ndarray] = []
        self._total = 0
        self._threshold = np.uint64(2**64 - 1)

    def report(self) -> dict[str, int | str]:
        """Return the budget, and how large the sample is."""
        return {"unit": self.budget.unit, "asked": self.budget.limit, "realised": self._total}

    def admits(self, batch: pa.RecordBatch) -> np.ndarray:
        """Return bool [N]: whether each document of a batch with digests may still be in the sample."""
        return keys_of(batch)[:, 1] <= self._threshold

    def take(self, batch: pa.RecordBatch) -> None:
        """Count documents that were admitted and are not duplicates."""
        sizes = self.budget.sizes(batch)
        self._keys.append(keys_of(batch)[:, 1].copy())  # a view would keep the whole batch
        self._sizes.append(sizes)
        self._total += int(sizes.sum())
        if self._total > 2 * self.budget.limit:
            self.tighten()

    def tighten(self) -> None:
        """Lower the threshold until the documents seen so far fit the budget."""
        if not self._keys:
            return
        keys, sizes = np.concatenate(self._keys), np.concatenate(self._sizes)
        order = np.argsort(keys, kind="stable")
        keys, sizes = keys[order], sizes[order]
        too_much = np.flatnonzero(np.cumsum(sizes) > self.budget.limit)
        if len(too_much):
            first = keys[too_much[0]]
            kept = keys < first
            keys, sizes = keys[kept], sizes[kept]
            self._threshold = first - np.uint64(1) if first else first
        self._keys, self._sizes, self._total = [keys], [sizes], int(sizes.sum())


def sample(
    documents: Iterable[pa.RecordBatch], sampler: Sampler, tally: Tally, scratch: Path | None
) -> Iterator[pa.RecordBatch]:
    """Yield the documents of the sample in their order, and count the other documents.

    All documents must be different. Those that may be in the sample wait in a temporary file in the folder `scratch`.
    """
    with tempfile.TemporaryFile(dir=scratch) as file:
        spool = Spool(file)
        for batch in documents:
            # A step between may have held documents back until the threshold was lower; without one, all are admitted.
            batch = keep(batch, sampler.admits(batch), "over_budget", tally)
            sampler.take(batch)
            spool.write(batch)
        sampler.tighten()
        for batch in spool.read():
            yield keep(batch, sampler.admits(batch), "over_budget", tally)
