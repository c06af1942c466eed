"""Windows of a table that have been predicted: each a file, so that a run that was killed goes on after the last one.

The folder is no output of a rule: Snakemake deletes those of a job that failed.
"""

import csv
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from babelmill.core.files import UserError, atomic_write, read_json, write_json

DELIMITERS = {".csv": ",", ".tsv": "\t"}


class Windows:
    """The rows that are done.

    Args:
        folder: where the files are; what another identity left there is deleted.
        identity: of the model, the table and what is asked, as JSON holds it.
    """

    def __init__(self, folder: Path, identity: dict[str, Any]):
        self._folder = folder
        try:
            same = read_json(folder / "identity.json") == identity
        except UserError:
            same = False
        if not same:
            shutil.rmtree(folder, ignore_errors=True)
            write_json(folder / "identity.json", identity)
        self.done = 0
        while self._path(self.done).is_file():
            self.done += 1

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:06}.csv"

    def write(self, rows: Iterable[list[str]]) -> None:
        """Keep the rows of the next window, on disk."""
        with atomic_write(self._path(self.done), "w") as file:
            csv.writer(file, lineterminator="\n").writerows(rows)
        self.done += 1

    def read(self, number: int) -> list[list[str]]:
        """Return the rows of a window."""
        with open(self._path(number), encoding="utf-8", newline="") as file:
            return list(csv.reader(file))

    def __iter__(self) -> Iterator[list[str]]:
        """Yield all rows."""
        for number in range(self.done):
            yield from self.read(number)

    def remove(self) -> None:
        """Delete the files."""
        shutil.rmtree(self._folder, ignore_errors=True)


def write_table(path: Path, columns: list[str], rows: Iterable[list[str]]) -> None:
    """Write a .csv or .tsv file."""
    with atomic_write(path, "w") as file:
        writer = csv.writer(file, delimiter=DELIMITERS[path.suffix], lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)


def check_name(path: Path) -> None:
    """Raise a UserError unless a file is to be a table that is written here."""
    if path.suffix not in DELIMITERS:
        raise UserError(f"{path}: predictions are written as .csv or .tsv; name it so")
