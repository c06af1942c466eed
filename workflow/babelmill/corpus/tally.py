"""Count what happens to every document. The manifest states these counts.

Every document is either kept, or counted in `dropped` under one reason. So `read` is the sum of both. Each step of the
stage has a name here: a reason of `DROPPED` if it drops documents, a kind of `CHANGED` if it changes them.
"""

import dataclasses
import logging
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from babelmill.core import escape
from babelmill.core.files import UserError
from babelmill.core.words import plural
from babelmill.corpus.examples import Examples
from babelmill.tables.text import BadRow

log = logging.getLogger(__name__)
SHOWN = 5  # warnings per kind and file that are logged

# Why documents are dropped or changed, with the key that does it; what a text may contain, with what to do.
DROPPED = {
    "duplicate": "with the same text as an earlier one (corpus.deduplicate)",
    "short": "too short (corpus.min_characters, corpus.min_words)",
    "empty": "without text",
    "other_category": "of another category (corpus.categories)",
    "other_language": "in another language (corpus.language_filter)",
    "over_budget": "more than corpus.budget",
    "in_validation": "also in corpus.validation_files",
    "near_duplicate": "nearly the same as an earlier one (corpus.near_duplicates)",
    "near_validation": "nearly the same as one of corpus.validation_files (corpus.near_duplicates)",
    "test_text": "with a test sentence (corpus.decontaminate)",
    "undecodable": "not decodable (corpus.on_error)",
    "malformed": "malformed (corpus.on_error)",
}
CHANGED = {
    "control_characters": "lost control characters (corpus.control_characters)",
    "normalized": "changed by corpus.normalization",
    "repair": "repaired (corpus.repair)",
    "annotations": "lost lines of annotation, such as %act: (corpus.cleaners)",
    "timestamps": "lost timestamps (corpus.cleaners)",
    "speaker_labels": "lost names of speakers (corpus.cleaners)",
    "music_notes": "lost notes of music (corpus.cleaners)",
    "stage_directions": "lost stage directions in brackets (corpus.cleaners)",
    "tags": "lost tags of HTML or XML (corpus.cleaners)",
    "urls": "lost web addresses (corpus.cleaners)",
    "punctuation": "got plain quotes, dashes and ellipses (corpus.cleaners)",
    "spaces": "lost repeated spaces (corpus.cleaners)",
    "blank_lines": "lost blank lines (corpus.cleaners)",
    "lone_surrogates": "got U+FFFD in place of half a surrogate pair, which is no character",
}
CONTAINED = {
    "nul_characters": "NUL characters (corpus.control_characters: remove removes them)",
    "byte_order_marks": (
        "U+FEFF, a mark that stands inside the text where files were joined (sed -i 's/\\xef\\xbb\\xbf//g' FILE removes"
        " it)"
    ),
}
TENTH = 0.1  # share of the input; a corpus that loses more has to say so in other words


@dataclasses.dataclass
class Tally:
    """Counts what happens to documents."""

    # `stop` raises a UserError for input that cannot be read; `skip` only counts it
    on_error: Literal["stop", "skip"] = "stop"
    read: int = 0  # number of documents read
    dropped: Counter[str] = dataclasses.field(default_factory=Counter)  # {reason: number of documents dropped}
    # {kind of cleaning: number of documents changed}
    changed: Counter[str] = dataclasses.field(default_factory=Counter)
    # {language: number of documents in it} of those that `corpus.language_filter` dropped
    languages: Counter[str] = dataclasses.field(default_factory=Counter)
    # {suite: number of documents that hold one of its items} of those that `corpus.decontaminate` dropped
    suites: Counter[str] = dataclasses.field(default_factory=Counter)
    with_items: int = 0  # the bytes of these documents
    across_splits: int = 0  # number of near duplicates whose earlier copy is in the other split
    examples: Examples = dataclasses.field(default_factory=Examples)  # examples of what steps dropped or changed
    # {kind of suspicious characters: number of documents that are kept with them}
    contains: Counter[str] = dataclasses.field(default_factory=Counter)
    # {file: problem} of the files that end early or are not what their names say
    damaged_files: dict[str, str] = dataclasses.field(default_factory=dict)
    left_out: set[str] = dataclasses.field(default_factory=set)  # those of these files of which nothing was read
    # the categories of the documents, if the configuration selects some
    categories: set[str] = dataclasses.field(default_factory=set)
    _shown: Counter[tuple[Path, str]] = dataclasses.field(default_factory=Counter)

    def merge(self, part: "Tally") -> None:
        """Add the counts of a part. Parts come in the order of the documents."""
        for mine, others in (
            (self.dropped, part.dropped),
            (self.changed, part.changed),
            (self.languages, part.languages),
            (self.suites, part.suites),
            (self.contains, part.contains),
        ):
            mine.update(others)
        self.with_items += part.with_items
        self.examples.merge(part.examples)
        self.categories |= part.categories

    def bad(self, problem: BadRow, whole: bool) -> None:
        """Report a row, or the rest of a file (`whole`: all of it), that cannot be read: raise it, or count it."""
        if self.on_error == "stop":
            remedy = "; correct it, or set corpus.on_error: skip to skip it"
            raise UserError(f"{problem}{remedy if problem.where else ''}") from None
        if problem.reason != "damaged":
            self.read += 1
            self.dropped[problem.reason] += 1
        else:
            self.damaged_files[str(problem.path)] = problem.why
            self.left_out |= {str(problem.path)} if whole else set()
        self._shown[(problem.path, problem.reason)] += 1
        if self._shown[(problem.path, problem.reason)] <= SHOWN:
            log.warning("%s; %s", problem, "skipped" if problem.where else "the rest of the file is not used")

    def remarks(self, paths: list[Path]) -> Iterator[str]:
        """Yield what the user must know about the text read from `paths`: what was dropped, changed and lost."""
        if self.dropped.total():
            reasons = ", ".join(f"{count:,} {DROPPED[reason]}" for reason, count in self.dropped.most_common())
            share = 100 * self.dropped.total() / self.read
            yield f"{self.dropped.total():,} of {plural(self.read, 'document')} ({share:.1f} %) dropped: {reasons}"
        if self.languages:
            found = ", ".join(f"{language} {count:,}" for language, count in self.languages.most_common(5))
            yield f"found in other languages: {found}"
        if self.suites:
            found = ", ".join(f"{suite} {count:,}" for suite, count in sorted(self.suites.items()))
            yield f"documents with test sentences ({self.with_items / 1e6:.1f} MB): {found}"
        if self.across_splits:
            yield (
                f"{self.across_splits:,} of the near duplicates would have stood in training and validation, and made"
                " the scores too good"
            )
        for kind, count in (+self.changed).items():
            yield f"{plural(count, 'document')} {CHANGED[kind]}"
        for kind, count in (+self.contains).items():
            yield f"{plural(count, 'document')} with {CONTAINED[kind]}"
        if self.damaged_files:
            files = [path for path in paths if str(path) in self.damaged_files]
            names = escape.some(f"{path} ({self.damaged_files[str(path)].partition(':')[0]})" for path in files)
            yield f"{len(files):,} of {plural(len(paths), 'file')} could not be read to the end: {names}"
            if count := self.cut_short:
                yield f"the rest of {plural(count, 'file')} is missing, and it is not known how much that is"
        share = self.lost(paths)
        if share > TENTH:
            yield (
                f"more than a tenth of the input is lost ({100 * share:.0f} %): the lines above say what could not be"
                " read"
            )

    def lost(self, paths: list[Path]) -> float:
        """Return the largest share of the input that is lost: of the documents, or of the bytes in files left out."""
        unread = self.dropped["undecodable"] + self.dropped["malformed"]
        sizes = {str(path): path.stat().st_size for path in paths} if self.left_out else {}
        left_out = sum(sizes.get(path, 0) for path in self.left_out)
        return max(unread / max(1, self.read), left_out / max(1, sum(sizes.values())))

    @property
    def cut_short(self) -> int:
        """Return the number of files that were read in part. What their rest held, only a whole copy could tell."""
        return len(self.damaged_files.keys() - self.left_out)
