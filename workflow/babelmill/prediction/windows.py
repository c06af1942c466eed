"""Windows of a table that have been predicted: each a file, so that a run that was killed goes on after the last one.

The folder is no output of a rule: Snakemake deletes those of a job that failed.
"""

import contextlib
import csv
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from babelmill.core.files import UserError, atomic_write, read_json, write_json
from babelmill.core.formats import DELIMITERS, MAX_FIELD
from babelmill.runtime.run_lock import Lock

WINDOW = 4096  # rows that are sorted by length, predicted and kept together


@contextlib.contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold the folder of a prediction. Delete it in the end if all is done, or nothing.

    Raises:
        UserError: another process makes the same predictions.
    """
    with Lock(folder, "another prediction"):
        try:
            yield
        except BaseException:
            if not (folder / "000000.csv").is_file():
                shutil.rmtree(folder, ignore_errors=True)
            raise
        shutil.rmtree(folder, ignore_errors=True)


def rows_done(folder: Path) -> str:
    """Say how many rows of a table are predicted so far; "" if none are."""
    windows = sum(1 for _ in folder.glob("*.csv"))
    if not windows:
        return ""
    rows = read_json(folder / "identity.json")["rows"]
    return f"{min(windows * WINDOW, rows):,} of {rows:,} rows"


class Windows:
    """The rows that are done.

    Args:
        folder: where the files are, which this process holds; what another identity left there is deleted.
        identity: of the model, the table and what is asked, as JSON holds it.
    """

    def __init__(self, folder: Path, identity: dict[str, Any]):
        self._folder = folder
        try:
            same = read_json(folder / "identity.json") == identity
        except UserError:
            same = False
        if not same:
            for path in (folder / "identity.json", *folder.glob("*.csv")):
                path.unlink(missing_ok=True)
            write_json(folder / "identity.json", identity)
        self.done = 0
        while self._path(self.done).is_file():
            self.done += 1

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:06}.csv"

    def write(self, rows: Iterable[list[str]]) -> None:
        """Keep the rows of the next window, on disk."""
        with atomic_write(self._path(self.done), "w") as file:
            write_rows(file, rows)
        self.done += 1

    def read(self, number: int) -> list[list[str]]:
        """Return the rows of a window."""
        csv.field_size_limit(MAX_FIELD)
        with open(self._path(number), encoding="utf-8", newline="") as file:
            return list(csv.reader(file))

    def __iter__(self) -> Iterator[list[str]]:
        """Yield all rows."""
        for number in range(self.done):
            yield from self.read(number)


def write_table(path: Path, columns: list[str], rows: Iterable[list[str]]) -> None:
    """Write a .csv or .tsv file."""
    with atomic_write(path, "w") as file:
        write_rows(file, [columns], DELIMITERS[path.suffix])
        write_rows(file, rows, DELIMITERS[path.suffix])


def write_rows(file: IO[str], rows: Iterable[list[str]], delimiter: str = ",") -> None:
    """Write rows as CSV.

    A row with a carriage return has quotes everywhere: Python before 3.13 sets none because of it, and whoever reads
    the file would take it for the end of the row.
    """
    kinds = (csv.QUOTE_MINIMAL, csv.QUOTE_ALL)
    plain, quoted = (csv.writer(file, delimiter=delimiter, lineterminator="\n", quoting=kind) for kind in kinds)
    for row in rows:
        (quoted if any("\r" in value for value in row) else plain).writerow(row)


def check_name(path: Path) -> None:
    """Raise a UserError unless a file is to be a table that is written here."""
    if path.suffix not in DELIMITERS:
        raise UserError(f"{path}: predictions are written as .csv or .tsv; name it so")
