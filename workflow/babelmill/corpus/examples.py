"""Keep some examples of what each step of the corpus stage changed or dropped, for a person to judge the step by.

The examples of a step are those with the smallest digests of their texts. So they are a fair sample of the whole
corpus, and the same for any number of processes and any order of files.
"""

import dataclasses
import heapq
from hashlib import blake2b
from typing import Any

MOST = 50  # examples of a step
LONGEST = 200  # characters of an example


@dataclasses.dataclass
class Examples:
    """Holds up to `MOST` examples of each step."""

    _steps: dict[str, dict[bytes, dict[str, Any]]] = dataclasses.field(default_factory=dict)

    def add(self, step: str, text: str, **facts: Any) -> None:
        """Add a text that a step dropped or changed, with what the manifest says of it."""
        key = blake2b(text.encode(), digest_size=8).digest()
        found = self._steps.setdefault(step, {})
        if len(found) < 2 * MOST or key < max(found):
            self._add(found, {key: {"text": text[:LONGEST], **facts}})

    def change(self, step: str, before: str, after: str) -> None:
        """Add a text that a step changed: the place of the first change, before and after."""
        start = max(0, first_difference(before, after) - LONGEST // 4)
        self.add(step, before[start : start + LONGEST], after=after[start : start + LONGEST])

    def merge(self, part: "Examples") -> None:
        for step, found in part._steps.items():
            self._add(self._steps.setdefault(step, {}), found)

    def by_step(self) -> dict[str, list[dict[str, Any]]]:
        """Return {step: examples}, sorted by step and digest."""
        return {
            step: [found[key] for key in heapq.nsmallest(MOST, found)] for step, found in sorted(self._steps.items())
        }

    @staticmethod
    def _add(found: dict[bytes, dict[str, Any]], others: dict[bytes, dict[str, Any]]) -> None:
        """Add examples, and forget those that cannot be among the first any more."""
        for key, example in others.items():
            found.setdefault(key, example)
        if len(found) > 2 * MOST:
            kept = {key: found[key] for key in heapq.nsmallest(MOST, found)}
            found.clear()
            found.update(kept)


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
