"""Count what happens to every document. The manifest states these counts.

Every document is either kept, or counted in `dropped` under one reason. So `read` is the sum of both.
"""

import dataclasses
import logging
from collections import Counter
from pathlib import Path
from typing import Literal

from babelmill.core.files import UserError

log = logging.getLogger(__name__)
SHOWN = 5  # warnings per kind and file that are logged

Reason = Literal[
    "undecodable", "malformed", "empty", "short", "other_category", "over_budget", "duplicate", "in_validation"
]


@dataclasses.dataclass
class Tally:
    """Counts what happens to documents.

    Attributes:
        on_error: `stop` raises a UserError for input that cannot be read; `skip` only counts it.
        read: number of documents read.
        dropped: {reason: number of documents dropped}.
        changed: {kind of cleaning: number of documents changed}.
        contains: {kind of suspicious characters: number of documents that are kept with them}.
        damaged_files: {file: problem} of the files that end early or are not what their names say.
        left_out: those of these files of which nothing was read.
        categories: the categories of the documents, if the configuration selects some.
        held: in a part of another tally, the warnings, each with its file and kind; otherwise None.
    """

    on_error: Literal["stop", "skip"] = "stop"
    read: int = 0
    dropped: Counter[Reason] = dataclasses.field(default_factory=Counter)
    changed: Counter[str] = dataclasses.field(default_factory=Counter)
    contains: Counter[str] = dataclasses.field(default_factory=Counter)
    damaged_files: dict[str, str] = dataclasses.field(default_factory=dict)
    left_out: set[str] = dataclasses.field(default_factory=set)
    categories: set[str] = dataclasses.field(default_factory=set)
    held: list[tuple[tuple[Path, str], str]] | None = None
    _shown: Counter[tuple[Path, str]] = dataclasses.field(default_factory=Counter)

    def part(self) -> "Tally":
        """Return an empty tally for a part of the work. `merge` adds it to this one."""
        return Tally(self.on_error, held=[])

    def take(self) -> "Tally":
        """Return the counts since the last call as a separate part, and start again."""
        taken = self.part()
        self.__dict__, taken.__dict__ = taken.__dict__, self.__dict__
        return taken

    def merge(self, part: "Tally") -> None:
        """Add the counts of a part, and log its warnings. Parts come in the order of the documents."""
        self.read += part.read
        self.dropped.update(part.dropped)
        self.changed.update(part.changed)
        self.contains.update(part.contains)
        self.damaged_files.update(part.damaged_files)
        self.left_out |= part.left_out
        self.categories.update(part.categories)
        for place, message in part.held or ():
            self.warn(place, message)

    def warn(self, place: tuple[Path, str], message: str) -> None:
        """Log a warning. Of each kind and file (`place`), only the first ones are shown."""
        self._shown[place] += 1
        if self._shown[place] > SHOWN:
            return
        if self.held is None:
            log.warning("%s", message)
        else:
            self.held.append((place, message))

    def drop(self, reason: Reason, count: int = 1) -> None:
        """Count documents that were read but are not kept."""
        if count:
            self.dropped[reason] += count

    def bad_document(self, reason: Reason, path: Path, where: str, problem: str) -> None:
        """Report a document that cannot be read: raise a UserError with file and place, or count it as dropped."""
        if self.on_error == "stop":
            raise UserError(f"{path}: {where}: {problem}; correct it, or set corpus.on_error: skip to skip it")
        self.read += 1
        self.drop(reason)
        self.warn((path, reason), f"{path}: {where}: {problem}; skipped")

    def bad_file(self, path: Path, problem: str, whole: bool = False) -> None:
        """Report a file whose end cannot be read: raise a UserError, or note the file and keep its readable part.

        `whole`: nothing of the file can be read.
        """
        if self.on_error == "stop":
            use = "leave the file out" if whole else "use its readable part"
            replace = "" if problem.endswith("replace the file") else " replace the file,"
            raise UserError(f"{path}: {problem};{replace} or set corpus.on_error: skip to {use}")
        self.damaged_files[str(path)] = problem
        if whole:
            self.left_out.add(str(path))
        left = "the file is left out" if whole else "the rest of the file is not used"
        self.warn((path, "damaged"), f"{path}: {problem}; {left}")
