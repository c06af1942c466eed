"""Number the classes of a task."""

import re
from collections.abc import Iterable


def classes_of(labels: Iterable[str]) -> list[str]:
    """Return the classes among labels, in the order of their numbers: sorted as numbers if all are, else as text."""
    found = set(labels)
    if all(re.fullmatch(r"-?\d+", label) for label in found):
        return sorted(found, key=int)
    return sorted(found)
