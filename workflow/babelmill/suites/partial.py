"""Keep scores on disk as they are computed, so that a job that was killed continues where it stopped."""

import contextlib
import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from babelmill.core.files import canonical_json, read_json, write_json

MADE_OF = "made_of.json"
ROW = 3  # numbers per pair, see `sentences.scores`
ORDER = 2  # version of the order of pairs (`sentences.in_order`); scores in another order cannot be used


class Partial:
    """Files of scores, one per method: rows of three float64, in the order in which the pairs are scored.

    Args:
        folder: the folder of the files.
        made_of: everything that the scores depend on; files in the folder that were made of something else are deleted.
    """

    def __init__(self, folder: Path, made_of: dict[str, Any]):
        self._folder = folder
        key = hashlib.sha256(canonical_json(made_of | {"order": ORDER}).encode()).hexdigest()
        path = folder / MADE_OF
        if not path.is_file() or read_json(path) != {"sha256": key}:
            self.delete()
            write_json(path, {"sha256": key})

    def read(self, method: str) -> np.ndarray:
        """Return the scores that are kept for a method: [pairs, 3]. An incomplete last row is cut off the file."""
        path = self._folder / f"{method}.f64"
        if not path.is_file():
            return np.zeros((0, ROW))
        whole = path.stat().st_size // (8 * ROW) * 8 * ROW
        with open(path, "r+b") as file:
            file.truncate(whole)
            return np.frombuffer(file.read(), "<f8").reshape(-1, ROW)

    def add(self, method: str, rows: np.ndarray) -> None:
        """Append rows of scores, [pairs, 3], to the file of a method."""
        with open(self._folder / f"{method}.f64", "ab") as file:
            file.write(rows.astype("<f8").tobytes())

    def delete(self) -> None:
        """Remove the files of this folder and of the snapshots' folders in it."""
        for seal in [self._folder / MADE_OF, *self._folder.glob(f"*/{MADE_OF}")]:
            for path in [*seal.parent.glob("*.f64"), seal]:
                path.unlink(missing_ok=True)
            if seal.parent != self._folder:
                with contextlib.suppress(OSError):  # not empty, or not there
                    seal.parent.rmdir()
