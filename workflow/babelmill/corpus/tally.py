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

    `on_error` is `stop`, which makes undecodable input a UserError, or `skip`, which counts it.
    """

    on_error: Literal["stop", "skip"] = "stop"
    read: int = 0
    dropped: Counter[Reason] = dataclasses.field(default_factory=Counter)
    changed: Counter[str] = dataclasses.field(default_factory=Counter)
    damaged_files: dict[str, str] = dataclasses.field(default_factory=dict)
    categories: set[str] = dataclasses.field(default_factory=set)
    _shown: Counter[tuple[Path, Reason]] = dataclasses.field(default_factory=Counter)

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
        self._shown[path, reason] += 1
        if self._shown[path, reason] <= SHOWN:
            log.warning("%s: %s: %s; skipped", path, where, problem)

    def bad_file(self, path: Path, problem: str) -> None:
        """Report a file whose end cannot be read: a UserError naming it, or counted, and what came before is kept."""
        if self.on_error == "stop":
            raise UserError(
                f"{path}: {problem}; replace the file, or set corpus.on_error: skip to use what is readable"
            )
        self.damaged_files[str(path)] = problem
        log.warning("%s: %s; the rest of the file is left out", path, problem)
