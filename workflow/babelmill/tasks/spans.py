"""Find the names, or other spans, that labels such as B-PER, I-PER and O mark, and count how many a model found.

Scores are those of the script conlleval, and of the package seqeval: a span counts if its words and its type are right.
A span begins at B- (or S-), after O, E- or S-, or where the type changes. So labels of the schemes IOB, BIO and BIOES
are read alike.
"""

import re
from collections.abc import Iterable, Sequence

OUTSIDE = "O"


def are_spans(labels: Iterable[str]) -> bool:
    """Return whether labels mark spans."""
    found = set(labels)
    return found > {OUTSIDE} and all(re.fullmatch(r"O|[BIES]-.+", label) for label in found)


def spans_of(labels: Sequence[str]) -> set[tuple[int, int, str]]:
    """Return the spans of a sentence: the places of the first word and after the last one, and the type."""
    found: set[tuple[int, int, str]] = set()
    start, before = 0, OUTSIDE
    for place, label in enumerate([*labels, OUTSIDE]):
        same = label != OUTSIDE and before != OUTSIDE and label[2:] == before[2:]
        if same and label[0] not in "BS" and before[0] not in "ES":
            before = label
            continue
        if before != OUTSIDE:
            found.add((start, place, before[2:]))
        start, before = place, label
    return found


def counts(labels: Sequence[str], predictions: Sequence[str]) -> tuple[int, int, int]:
    """Return how many spans of a sentence are right, how many the model names, and how many there are."""
    true, told = spans_of(labels), spans_of(predictions)
    return len(true & told), len(told), len(true)
