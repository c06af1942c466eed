"""Find how well a model predicts words after their contexts, for reading times and age of acquisition.

A word is one or more predictions of a token. Its surprisal is minus the sum of their ln p, in nats. Many words have a
beginning of a sentence in common. A causal model reads it once: a row that is the beginning of another one is not read
for itself.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:  # importing PyTorch takes seconds
    from babelmill.suites.sentences import Scorer

GROUP = 16  # batches per group; words of a group share what they have in common, and their scores are saved together


class Prediction(NamedTuple):
    """A token that a model predicts."""

    # The token ids that the model reads; for a causal model, the tokens before the one it predicts.
    ids: tuple[int, ...]
    place: int  # the position of the token: that of its mask; for a causal model, the one after the last of `ids`
    target: int  # the id of the token


Word = list[Prediction]  # the predictions of a word's pieces


def in_order(words: Sequence[Word], longest: int | None) -> list[int]:
    """Return the numbers of the words that can be scored, so that those with equal beginnings follow each other.

    No row of such a word is empty, or longer than `longest` tokens (None: any number).
    """
    able = [i for i, word in enumerate(words) if all(0 < len(each.ids) <= (longest or len(each.ids)) for each in word)]
    return sorted(able, key=lambda i: [each.ids for each in words[i]])


def surprisals(scorer: "Scorer", words: Sequence[Word], order: Sequence[int], causal: bool) -> Iterator[np.ndarray]:
    """Yield the surprisals of words, in the order `order`, as they are computed: [words] float64, in nats.

    A word without predictions has the surprisal 0.
    """
    group: list[Word] = []
    size = 0
    for number in order:
        group.append(words[number])
        sizes = [len(each.ids) for each in words[number]]
        size += max(sizes, default=0) if causal else sum(sizes)
        if size >= GROUP * scorer.positions:
            yield _of_group(scorer, group, causal)
            group, size = [], 0
    if group:
        yield _of_group(scorer, group, causal)


def _of_group(scorer: "Scorer", words: list[Word], causal: bool) -> np.ndarray:
    every = [(number, each) for number, word in enumerate(words) for each in word]
    if not every:
        return np.zeros(len(words))
    row_of = _rows({each.ids for _, each in every}, causal)
    rows = list(dict.fromkeys(row_of.values()))
    numbers = {row: number for number, row in enumerate(rows)}
    asked = np.array([(numbers[row_of[each.ids]], each.place, each.target, owner) for owner, each in every], np.int64)
    asked = asked[np.argsort(asked[:, 0], kind="stable")]
    return -np.bincount(asked[:, 3], scorer.at(rows, asked[:, :3]), len(words))


def _rows(asked: set[tuple[int, ...]], causal: bool) -> dict[tuple[int, ...], tuple[int, ...]]:
    """Return the row that the model reads, for each row that is asked for.

    For a causal model, it is the longest one with this beginning. In sorted order, the rows that begin with a row
    follow it directly.
    """
    found: dict[tuple[int, ...], tuple[int, ...]] = {}
    later: tuple[int, ...] = ()
    for row in sorted(asked, reverse=True):
        found[row] = found[later] if causal and later[: len(row)] == row else row
        later = row
    return found
