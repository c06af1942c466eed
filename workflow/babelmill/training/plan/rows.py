"""Hold the numbers of rows: which tokens of which language, and which kind of row each is."""

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Rows:
    """Rows to build: NumPy arrays [B], with one entry per row.

    Attributes:
        language: index of the language.
        row: number of the row in its language's stream.
        begin, end: where its targets begin and end (exclusive) in its language's stream.
        kind: index among the objective's kinds.
        targets: number of targets; in rows that hide tokens, the number of tokens to hide.
        number: number of the row in the whole run; masks are drawn from it.
        importance: how many targets each target stands for, float64; None if each stands for one.
    """

    language: np.ndarray
    row: np.ndarray
    begin: np.ndarray
    end: np.ndarray
    kind: np.ndarray
    targets: np.ndarray
    number: np.ndarray
    importance: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.row)

    def __getitem__(self, part: slice | np.ndarray) -> "Rows":
        columns: dict[str, Any] = {name: None if c is None else c[part] for name, c in vars(self).items()}
        return Rows(**columns)

    @property
    def stands_for(self) -> np.ndarray:
        """Return the number of targets that the targets of a row stand for together, [B] int64."""
        return self.targets if self.importance is None else np.rint(self.targets * self.importance).astype(np.int64)
