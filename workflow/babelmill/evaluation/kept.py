"""Keep what a job has computed, so that it goes on where it was killed. What is damaged is computed again."""

import contextlib
import hashlib
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from babelmill.core.files import atomic_write, canonical_json

LAYOUT = 7  # version of the form of kept scores, and of the order of items


def intact(path: Path) -> np.ndarray | None:
    """Return the scores in a file, whose form (.npz) has a checksum; None if it is damaged."""
    with contextlib.suppress(OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile), np.load(path) as file:
        return file["scores"]
    return None


class Kept:
    """The scores that a job has computed, in a folder.

    What they depend on (`made_of`) is in the names of the files, which have the numbers of items, and their scores. If
    the model, the items or the method change, they begin anew. Only one process at a time may use a folder: hold
    it by `runtime.run_lock.locked`.
    """

    def __init__(self, folder: Path, made_of: Any):
        key = hashlib.sha256(canonical_json([LAYOUT, made_of]).encode()).hexdigest()[:16]
        self._folder, self._key = folder, key
        paths = sorted(folder.glob(f"{key}-*.npz"))
        self.found = [scores for scores in map(intact, paths) if scores is not None]  # arrays [items, 1 + scores]
        self._last = int(paths[-1].stem.rpartition("-")[2]) if paths else 0  # the number of the last file
        for other in [*folder.glob("*-*.np[yz]")]:
            if not other.name.startswith(key):
                other.unlink()

    def add(self, items: list[int], scores: np.ndarray) -> None:
        """Keep the scores of items, [items, scores], on the disk."""
        self.found.append(np.column_stack([items, scores]))
        self._last += 1
        with atomic_write(self._folder / f"{self._key}-{self._last:06}.npz") as file:
            np.savez(file, scores=self.found[-1])
