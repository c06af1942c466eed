"""Count what happens to every document. The manifest states these counts.

Every document is either kept, or counted in `dropped` under one reason. So `read` is the sum of both. Each step of the
stage has a name here: a reason of `DROPPED` if it drops documents, a kind of `CHANGED` if it changes them.

Some examples of what each step changed or dropped are kept, for a person to judge the step by: those with the smallest
digests of their texts. So they are a fair sample of the whole corpus, and the same for any number of processes and any
order of files.
"""

import dataclasses
import logging
from collections import Counter
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal

from babelmill.core import escape
from babelmill.core.files import UserError
from babelmill.core.words import plural
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
MOST = 50  # examples of a step
LONGEST = 200  # characters of an example


def first_difference(before: str, after: str) -> int:
    """Return the index of the first character that differs; the length of the shorter text if none does."""
    start, end = 0, min(len(before), len(after))
    while start < end:
        middle = (start + end + 1) // 2
        if before[start:middle] == after[start:middle]:
            start = middle
        else:
            end = middle - 1
    return end


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
    # {step: {digest: example}} of what steps dropped or changed: up to `MOST` of each, sorted by digest
    examples: dict[str, dict[bytes, dict[str, Any]]] = dataclasses.field(default_factory=dict)
    # {kind of suspicious characters: number of documents that are kept with them}
    contains: Counter[str] = dataclasses.field(default_factory=Counter)
    # {file: problem} of the files that end early or are not what their names say
    damaged_files: dict[str, str] = dataclasses.field(default_factory=dict)
    _shown: Counter[tuple[Path, str]] = dataclasses.field(default_factory=Counter)  # the warnings about these
    # the categories of the documents, if the configuration selects some
    categories: set[str] = dataclasses.field(default_factory=set)

    def merge(self, part: "Tally") -> None:
        """Add the counts of a part. Parts come in the order of the documents."""
        for name in ("dropped", "changed", "languages", "suites", "contains"):
            getattr(self, name).update(getattr(part, name))
        self.with_items += part.with_items
        self.categories |= part.categories
        for step, found in part.examples.items():
            self._add_examples(step, found)

    def example(self, step: str, text: str, **facts: Any) -> None:
        """Add a text that a step dropped or changed, with what the manifest says of it."""
        key, found = blake2b(text.encode(), digest_size=8).digest(), self.examples.get(step, {})
        if len(found) < MOST or key < next(reversed(found)):
            self._add_examples(step, {key: {"text": text[:LONGEST], **facts}})

    def example_of_change(self, step: str, before: str, after: str) -> None:
        """Add a text that a step changed: the place of the first change, before and after."""
        start = max(0, first_difference(before, after) - LONGEST // 4)
        self.example(step, before[start : start + LONGEST], after=after[start : start + LONGEST])

    def _add_examples(self, step: str, others: dict[bytes, dict[str, Any]]) -> None:
        found = others | self.examples.get(step, {})
        self.examples[step] = {key: found[key] for key in sorted(found)[:MOST]}

    def bad(self, problem: BadRow) -> None:
        """Report a row, or the rest of a file, that cannot be read: raise it, or count it."""
        if self.on_error == "stop":
            remedy = "; correct it, or set corpus.on_error: skip to skip it"
            raise UserError(f"{problem}{remedy if problem.where else ''}") from None
        if problem.reason != "damaged":
            self.read += 1
            self.dropped[problem.reason] += 1
        else:
            self.damaged_files[str(problem.path)] = problem.why
        self._shown[problem.path, problem.reason] += 1
        if self._shown[problem.path, problem.reason] <= SHOWN:
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
        for kind, count in (+self.changed).items():
            yield f"{plural(count, 'document')} {CHANGED[kind]}"
        for kind, count in (+self.contains).items():
            yield f"{plural(count, 'document')} with {CONTAINED[kind]}"
        if self.damaged_files:
            files = {str(path): self.damaged_files[str(path)] for path in paths if str(path) in self.damaged_files}
            names = escape.some(f"{path} ({why.partition(':')[0]})" for path, why in files.items())
            yield (
                f"{len(files):,} of {plural(len(paths), 'file')} could not be read to the end, and how much is missing"
                f" is not known: {names}"
            )
