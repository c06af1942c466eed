"""Count the characters of texts by script and kind, and their words, by looking up each code point in a table.

Scripts are those of Unicode, by their codes of ISO 15924 (`Latn`). Characters that belong to no script alone, such as
digits, punctuation and accents, do not count for a script.
"""

import dataclasses
import functools
import re
import sys
import unicodedata
from collections.abc import Sequence

import numpy as np
from fontTools.unicodedata import Scripts

from babelmill.tokens.clean_text import CONTROL

SCRIPTS: tuple[str, ...] = tuple(sorted(set(Scripts.VALUES) - {"Zyyy", "Zinh", "Zzzz"}))
# Characters that no text should hold, or none that was read in the right encoding.
ODD = ("control", "replacement", "private", "unassigned")
OTHER = len(SCRIPTS) + len(ODD)  # the class of all other characters
CLASSES = OTHER + 1
CHUNK = 1 << 20  # characters that are looked at together


@dataclasses.dataclass
class Counted:
    """Holds the counts of documents, each an array with an entry for each document."""

    characters: np.ndarray  # number of characters
    # characters by class, [documents, CLASSES]: letters by script, odd characters by kind, and others
    classes: np.ndarray
    words: np.ndarray  # number of words: what white space separates
    longest: np.ndarray  # characters of the longest word
    longest_at: np.ndarray  # where the first longest word begins

    @property
    def letters(self) -> np.ndarray:
        """Return the letters by script, [documents, scripts]."""
        return self.classes[:, : len(SCRIPTS)]

    @property
    def odd(self) -> np.ndarray:
        """Return the odd characters by kind, [documents, kinds]."""
        return self.classes[:, len(SCRIPTS) : OTHER]


@functools.cache
def tables() -> tuple[np.ndarray, np.ndarray]:
    """Return, for each code point, its class (uint8) and whether it is white space (bool)."""
    assert CLASSES <= 256
    count = sys.maxunicode + 1
    ends = [*Scripts.RANGES[1:], count]
    number = {name: i for i, name in enumerate(SCRIPTS)}
    classes = np.full(count, OTHER, np.uint8)
    for start, end, name in zip(Scripts.RANGES, ends, Scripts.VALUES, strict=True):
        classes[start:end] = number.get(name, OTHER)
    kinds = np.array([unicodedata.category(chr(code)) for code in range(count)])
    letter = np.isin(np.array([kind[0] for kind in kinds]), ["L", "M"])
    classes[~letter] = OTHER
    first = len(SCRIPTS)
    classes[[code for code in range(256) if re.match(CONTROL, chr(code))]] = first + ODD.index("control")
    classes[kinds == "Co"] = first + ODD.index("private")
    classes[kinds == "Cn"] = first + ODD.index("unassigned")
    classes[0xFFFD] = first + ODD.index("replacement")
    return classes, np.array([chr(code).isspace() for code in range(count)])


def count(texts: Sequence[str]) -> Counted:
    """Count the characters and words of documents. Memory does not depend on the longest one."""
    n = len(texts)
    found = Counted(*(np.zeros(shape, np.int64) for shape in (n, (n, CLASSES), n, n, n)))
    waiting: list[int] = []
    size = 0
    for i, text in enumerate(texts):
        found.characters[i] = len(text)
        if waiting and size + len(text) > CHUNK:
            _count_together(texts, waiting, found)
            waiting, size = [], 0
        if len(text) > CHUNK:
            _count_in_parts(text, i, found)
        else:
            waiting.append(i)
            size += len(text)
    if waiting:
        _count_together(texts, waiting, found)
    return found


def _code_points(text: str) -> np.ndarray:
    return np.frombuffer(text.encode("utf-32-le"), "<u4")


def _count_together(texts: Sequence[str], documents: list[int], found: Counted) -> None:
    """Count documents at once."""
    classes, is_space = tables()
    codes = _code_points("".join([texts[i] for i in documents]))
    ends = np.cumsum(found.characters[documents])
    begins = ends - found.characters[documents]
    of = np.repeat(np.arange(len(documents)), found.characters[documents])
    histogram = np.bincount(of * CLASSES + classes[codes], minlength=len(documents) * CLASSES)
    found.classes[documents] += histogram.reshape(-1, CLASSES)
    # A word begins and ends at white space, and at the borders of documents.
    in_word, border = ~is_space[codes], np.zeros(len(codes) + 1, bool)
    border[begins], border[ends] = True, True
    starts = np.flatnonzero(in_word & (border[:-1] | ~np.concatenate(([False], in_word[:-1]))))
    lengths = np.flatnonzero(in_word & (border[1:] | ~np.concatenate((in_word[1:], [False])))) + 1 - starts
    if not len(starts):
        return
    of_words = of[starts]
    filled, firsts = np.unique(of_words, return_index=True)
    longest = np.zeros(len(documents), np.int64)
    longest[filled] = np.maximum.reduceat(lengths, firsts)
    best = np.flatnonzero(lengths == longest[of_words])
    _, firsts = np.unique(of_words[best], return_index=True)
    best = best[firsts]
    rows = np.array(documents)
    found.words[rows] = np.bincount(of_words, minlength=len(documents))
    found.longest[rows] = longest
    found.longest_at[rows[filled]] = starts[best] - begins[filled]


def _count_in_parts(text: str, i: int, found: Counted) -> None:
    """Count a long document part by part. A word may stand in several parts."""
    classes, is_space = tables()
    open_since = -1  # where a word began that the last part did not end; -1: there is none
    for begin in range(0, len(text), CHUNK):
        codes = _code_points(text[begin : begin + CHUNK])
        found.classes[i] += np.bincount(classes[codes], minlength=CLASSES)
        in_word = np.concatenate(([False], ~is_space[codes], [False]))
        starts = np.flatnonzero(in_word[1:-1] & ~in_word[:-2]) + begin
        ends = np.flatnonzero(in_word[1:-1] & ~in_word[2:]) + begin + 1
        if open_since >= 0:
            if len(starts) and starts[0] == begin:
                starts[0] = open_since
            else:
                starts, ends = np.concatenate(([open_since], starts)), np.concatenate(([begin], ends))
        open_since = -1
        if len(ends) and ends[-1] == begin + len(codes) < len(text):
            open_since = int(starts[-1])
            starts, ends = starts[:-1], ends[:-1]
        found.words[i] += len(starts)
        if len(starts) and (ends - starts).max() > found.longest[i]:
            best = int((ends - starts).argmax())
            found.longest[i], found.longest_at[i] = ends[best] - starts[best], starts[best]
