"""Say how much text of a language to take (`corpus.budget`)."""

import dataclasses

import numpy as np
import pyarrow as pa

from babelmill.config.languages import WORD
from babelmill.corpus.record_batches import sizes_of


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
            return np.array([len(text.split()) for text in batch["text"].to_pylist()], np.int64)
        return sizes_of(batch)
