"""Scores that are kept as they come, so that a job that was killed goes on where it was."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from babelmill.core.files import canonical_json, read_json, write_json

ROW = 3  # numbers of a pair: see `sentences.scores`


class Partial:
    """The scores of a method in a file: rows of three float64, in the order in which the pairs are scored.

    Args:
        folder: of the files.
        made_of: all that the scores depend on; what stands in the folder for anything else is deleted.
    """

    def __init__(self, folder: Path, made_of: dict[str, Any]):
        self._folder = folder
        key = hashlib.sha256(canonical_json(made_of).encode()).hexdigest()
        path = folder / "made_of.json"
        if not path.is_file() or read_json(path) != {"sha256": key}:
            self.delete()
            write_json(path, {"sha256": key})

    def read(self, method: str) -> np.ndarray:
        """Return what is there of a method: [pairs, 3]. Half a row at the end, which a kill left, is cut off."""
        path = self._folder / f"{method}.f64"
        if not path.is_file():
            return np.zeros((0, ROW))
        whole = path.stat().st_size // (8 * ROW) * 8 * ROW
        with open(path, "r+b") as file:
            file.truncate(whole)
            return np.frombuffer(file.read(), "<f8").reshape(-1, ROW)

    def add(self, method: str, rows: np.ndarray) -> None:
        """Add rows."""
        with open(self._folder / f"{method}.f64", "ab") as file:
            file.write(rows.astype("<f8").tobytes())

    def delete(self) -> None:
        """Remove the files."""
        for path in [*self._folder.glob("*.f64"), self._folder / "made_of.json"]:
            path.unlink(missing_ok=True)
