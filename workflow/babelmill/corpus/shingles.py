"""Describe texts by their shingles: each five words in a row, as a hash of 64 bits.

What a word is says `tokens/hashed_words.py`. Upper and lower case differ. A text has the same shingles on any machine
and in any version of Python.
"""

import numpy as np
import pyarrow as pa

from babelmill.tokens.hashed_words import bytes_of, mixed, with_word, words_of

LENGTH = 5  # words


def shingles(text: pa.StringArray) -> tuple[np.ndarray, np.ndarray]:
    """Return the shingles of all texts one after another, uint64, and where each text begins and ends, int64 [N + 1].

    A text of fewer than five words has none. Nulls are not allowed. This takes about three times the memory of the
    text, since some documents have hundreds of megabytes.
    """
    counts, found = np.zeros(len(text), np.int64), [np.empty(0, np.uint64)]
    data, bounds = bytes_of(text)
    starts = bounds[:-1]
    words, places = np.empty(0, np.uint64), np.empty(0, np.int64)  # the last ones, which the next piece needs
    for more, where in words_of(data, starts[np.diff(bounds) > 0]):
        words, places = np.concatenate((words, more)), np.concatenate((places, where))
        texts = np.searchsorted(starts, places, "right") - 1
        begin = np.flatnonzero(texts[LENGTH - 1 :] == texts[: max(0, len(texts) - LENGTH + 1)])
        found.append(_joined(words, begin))
        counts += np.bincount(texts[begin], minlength=len(text))
        words, places = words[1 - LENGTH :], places[1 - LENGTH :]
    return np.concatenate(found), np.concatenate(([0], np.cumsum(counts)))


def _joined(words: np.ndarray, begin: np.ndarray) -> np.ndarray:
    """Return a hash of the five words in a row that begin at each index of `begin`."""
    found = words[begin]
    for i in range(1, LENGTH):
        found = with_word(found, words[begin + i])
    return mixed(found)
