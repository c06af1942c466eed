"""Keep scores on disk as they are computed, so that a job that was killed continues where it stopped.

A folder has one file per method. A file begins with a seal, the hash of all that its scores are made of: if the model,
the items or the way to score them change, the file is begun anew; no other change touches it. Then comes a row per
item, with a checksum, since a flipped bit in a number would be a wrong score that nobody notices. Rows are flushed to
disk as they are added.
"""

import contextlib
import hashlib
import logging
import os
from pathlib import Path
from typing import Any

import numpy as np

from babelmill.core.files import canonical_json, writing

log = logging.getLogger(__name__)

LAYOUT = 3  # version of the form of these files, and of the order of items (`sentences.in_order`)
OF_EARLIER_VERSIONS = ("made_of.json", "*.f64")


class Kept:
    """The scores of a method that are kept in a file; an item has `width` scores, which depend on `made_of`.

    Only one process at a time may use a folder of such files: hold it by `runtime.run_lock.locked`. A row with a wrong
    checksum is cut off, with all rows after it, and so is half a row.
    """

    def __init__(self, path: Path, made_of: dict[str, Any], width: int = 3):
        self._row = np.dtype([("item", "<i8"), ("scores", "<f8", (width,)), ("checksum", "<u8")])
        self._path, self._seal = path, hashlib.sha256(canonical_json(made_of | {"layout": LAYOUT}).encode()).digest()
        found = path.read_bytes() if path.is_file() else b""
        content = found[len(self._seal) :] if found.startswith(self._seal) else b""
        rows = np.frombuffer(content, self._row, len(content) // self._row.itemsize)
        wrong = next((i for i, row in enumerate(rows) if self._checksum(row) != row["checksum"]), None)
        if wrong is not None:
            log.warning("%s: damaged after %d rows; the other %d are scored again", path, wrong, len(rows) - wrong)
        rows = rows[:wrong]
        # scores: [rows, width] its scores
        # items: [rows] the number of each item
        self.items, self.scores = rows["item"].copy(), rows["scores"].copy()
        path.parent.mkdir(parents=True, exist_ok=True)
        with writing(path), open(path, "r+b" if path.is_file() else "wb") as file:
            file.truncate(len(self._seal) + len(rows) * self._row.itemsize)
            file.write(self._seal)

    def _checksum(self, row: np.void) -> int:
        """Return the checksum of a row, which only a file with this seal has."""
        digest = hashlib.blake2b(row.tobytes()[:-8], digest_size=8, key=self._seal).digest()
        return int.from_bytes(digest, "little")

    def add(self, items: list[int], scores: np.ndarray) -> None:
        """Append the scores of items, [items, width], and wait until they are on the disk."""
        rows = np.zeros(len(items), self._row)
        rows["item"], rows["scores"] = items, scores
        rows["checksum"] = [self._checksum(row) for row in rows]
        with writing(self._path), open(self._path, "ab") as file:
            file.write(rows.tobytes())
            file.flush()
            os.fsync(file.fileno())


def delete(folder: Path) -> None:
    """Remove the files of kept scores in a folder and in the snapshots' folders in it, and the folders if empty."""
    for each in [*folder.glob("*/"), folder]:
        for pattern in ("*.rows", *OF_EARLIER_VERSIONS, "lock.*"):
            for path in each.glob(pattern):
                path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # not empty
            each.rmdir()
