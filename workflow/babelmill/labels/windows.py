"""Keep each predicted window of a table in a file, so that a run that was killed continues after the last window.

The folder is not an output of a rule, since Snakemake deletes the outputs of a job that failed.
"""

import contextlib
import csv
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from babelmill.core.escape import csv_cell, write_rows
from babelmill.core.files import UserError, atomic_write, read_json, write_json
from babelmill.core.formats import DELIMITERS, MAX_FIELD
from babelmill.runtime.run_lock import Lock

WINDOW = 4096  # rows that are sorted by length, predicted and kept together


@contextlib.contextmanager
def held(folder: Path) -> Iterator[None]:
    """Lock the folder of a prediction. At the end, delete it if the prediction succeeded, or if no window was done.

    A UserError says that another process makes the same predictions.
    """
    with Lock(folder, "another prediction"):
        try:
            yield
        except BaseException:
            if not (folder / "000000.csv").is_file():
                shutil.rmtree(folder, ignore_errors=True)
            raise
        shutil.rmtree(folder, ignore_errors=True)


class Windows:
    """Holds the windows that are done, in a folder that this process has locked.

    The identity is a JSON object that identifies the model, the table and what to predict; files of another identity
    are deleted. `babelmill status` reads its `rows` (of the table).
    """

    def __init__(self, folder: Path, identity: dict[str, Any]):
        self._folder = folder
        identity = identity | {"window": WINDOW}
        try:
            same = read_json(folder / "identity.json") == identity
        except UserError:
            same = False
        if not same:
            for path in (folder / "identity.json", *folder.glob("*.csv")):
                path.unlink(missing_ok=True)
            write_json(folder / "identity.json", identity)
        self.done = 0  # the number of windows that are done
        while self._path(self.done).is_file():
            self.done += 1

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:06}.csv"

    def write(self, rows: Iterable[list[str]]) -> None:
        with atomic_write(self._path(self.done), "w") as file:
            write_rows(file, rows)
        self.done += 1

    def read(self, number: int) -> list[list[str]]:
        csv.field_size_limit(MAX_FIELD)
        with open(self._path(number), encoding="utf-8", newline="") as file:
            return list(csv.reader(file))

    def __iter__(self) -> Iterator[list[str]]:
        for number in range(self.done):
            yield from self.read(number)


def write_table(path: Path, columns: list[str], rows: Iterable[list[str]]) -> None:
    """Write a .csv or .tsv file whose cells are safe to open in a spreadsheet and in a terminal."""
    with atomic_write(path, "w") as file:
        for part in ([columns], rows):
            write_rows(file, ([csv_cell(value) for value in row] for row in part), DELIMITERS[path.suffix])


def check_name(path: Path) -> None:
    """Raise a UserError unless a file's name ends in .csv or .tsv."""
    if path.suffix not in DELIMITERS:
        raise UserError(f"{path}: predictions can be written only as .csv or .tsv; change the name of the file")
