"""What happened to every document: the counts that end up in the manifest.

Every document that is read is either kept or counted in `dropped` under one reason, so that `read` is the sum of all.
"""

import dataclasses
import logging
from collections import Counter
from pathlib import Path
from typing import Literal

from babelmill.core.files import UserError

log = logging.getLogger(__name__)
SHOWN = 5  # warnings of one kind and file that reach the log

Reason = Literal[
    "undecodable", "malformed", "empty", "short", "other_category", "over_budget", "duplicate", "in_validation"
]


@dataclasses.dataclass
class Tally:
    """Counts of documents: read, dropped (by reason), changed (by kind of cleaning), the files that end early, and
    the categories that were met, where the configuration selects some.

    `on_error` is `stop`, which makes undecodable input a UserError, or `skip`, which counts it. `held` are the warnings
    of a tally that is part of another, by file and kind.
    """

    on_error: Literal["stop", "skip"] = "stop"
    read: int = 0
    dropped: Counter[Reason] = dataclasses.field(default_factory=Counter)
    changed: Counter[str] = dataclasses.field(default_factory=Counter)
    damaged_files: dict[str, str] = dataclasses.field(default_factory=dict)
    categories: set[str] = dataclasses.field(default_factory=set)
    held: list[tuple[tuple[Path, str], str]] | None = None
    _shown: Counter[tuple[Path, str]] = dataclasses.field(default_factory=Counter)

    def part(self) -> "Tally":
        """Return an empty tally for a part of the work, which `merge` takes in."""
        return Tally(self.on_error, held=[])

    def take(self) -> "Tally":
        """Return what was counted since the last call, as a part of its own, and begin again."""
        taken = self.part()
        self.__dict__, taken.__dict__ = taken.__dict__, self.__dict__
        return taken

    def merge(self, part: "Tally") -> None:
        """Add what a part counted, and log its warnings. Parts come in the order of the documents."""
        self.read += part.read
        self.dropped.update(part.dropped)
        self.changed.update(part.changed)
        self.damaged_files.update(part.damaged_files)
        self.categories.update(part.categories)
        for place, message in part.held or ():
            self._warn(place, message)

    def _warn(self, place: tuple[Path, str], message: str) -> None:
        self._shown[place] += 1
        if self._shown[place] > SHOWN:
            return
        if self.held is None:
            log.warning("%s", message)
        else:
            self.held.append((place, message))

    def drop(self, reason: Reason, count: int = 1) -> None:
        """Count documents that were read and are not kept."""
        if count:
            self.dropped[reason] += count

    def bad_document(self, reason: Reason, path: Path, where: str, problem: str) -> None:
        """Report a document that cannot be read: a UserError naming file and place, or a counted drop."""
        if self.on_error == "stop":
            raise UserError(f"{path}: {where}: {problem}; mend it, or set corpus.on_error: skip to leave it out")
        self.read += 1
        self.drop(reason)
        self._warn((path, reason), f"{path}: {where}: {problem}; skipped")

    def bad_file(self, path: Path, problem: str) -> None:
        """Report a file whose end cannot be read: a UserError naming it, or counted, and what came before is kept."""
        if self.on_error == "stop":
            raise UserError(
                f"{path}: {problem}; replace the file, or set corpus.on_error: skip to use what is readable"
            )
        self.damaged_files[str(path)] = problem
        self._warn((path, "damaged"), f"{path}: {problem}; the rest of the file is left out")
