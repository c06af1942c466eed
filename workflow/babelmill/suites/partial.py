"""Keep scores on disk as they are computed, so that a job that was killed continues where it stopped.

A folder has one file per method. A file begins with a seal, the hash of all that its scores are made of: if the model,
the items or the way to score them change, the file is begun anew; no other change touches it. Then comes a row per
item, its number and its scores. Only one process at a time may use a folder: hold `runtime.run_lock.Lock` of it.
"""

import contextlib
import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np

from babelmill.core.files import canonical_json, writing

LAYOUT = 4  # version of the form of these files, and of the order of items (`sentences.in_order`)


class Kept:
    """The scores of a method that are kept in a file; an item has `width` scores, which depend on `made_of`."""

    def __init__(self, path: Path, made_of: dict[str, Any], width: int = 3):
        seal = hashlib.sha256(canonical_json(made_of | {"layout": LAYOUT}).encode()).digest()
        content = path.read_bytes() if path.is_file() else b""
        content = content[len(seal) :] if content.startswith(seal) else b""
        whole = len(content) - len(content) % (8 * (width + 1))  # half a row is cut off
        rows = np.frombuffer(content[:whole]).reshape(-1, width + 1)
        # items: [rows] the number of each item; scores: [rows, width] its scores
        self._path, self.items, self.scores = path, rows[:, 0].astype(int), rows[:, 1:].copy()
        path.parent.mkdir(parents=True, exist_ok=True)
        with writing(path):
            path.write_bytes(seal + content[:whole])

    def add(self, items: list[int], scores: np.ndarray) -> None:
        """Append the scores of items, [items, width], and wait until they are on the disk."""
        with writing(self._path), open(self._path, "ab") as file:
            file.write(np.column_stack([items, scores]).tobytes())
            file.flush()
            os.fsync(file.fileno())


def delete(folder: Path) -> None:
    """Remove the files of kept scores in a folder and in the snapshots' folders in it, and the folders if empty."""
    for each in [*folder.glob("*/"), folder]:
        for path in [*each.glob("*.rows"), *each.glob("lock.*")]:
            path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # not empty
            each.rmdir()
