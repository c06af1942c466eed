"""Put a few typos into a share of the labelled texts (`train.typos`). Old registers contain such typos.

OccCANINE does the same (`histocc/attacker.py`), but also swaps words. One to three times, a character is removed,
inserted, replaced, or swapped with the next one. New characters are drawn from the texts, so that they belong to the
same script. The row's number decides about everything, so every process always makes the same typos in a row.
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from tokenizers import Tokenizer

from babelmill.core.files import UserError
from babelmill.tokens.shard_file import ShardFile, Texts
from babelmill.tokens.tokenizer_file import encode
from babelmill.training.plan import randomness
from babelmill.training.plan.randomness import TYPOS, below, draw
from babelmill.training.plan.rows import Rows

MOST = 3  # the largest number of changes of a text
LEAVE_OUT, PUT_IN, REPLACE, SWAP = range(4)


def disturbed(text: str, key: int, letter: Callable[[int], str]) -> str:
    """Return a text with one to three changes. Some changes have no effect, such as swapping two equal letters.

    Args:
        text: at least one character; the result has at least one, too.
        key: the key of all random numbers.
        letter: returns a character for a random number of 32 bits.
    """
    for change in range(1 + below(draw(key, 0), MOST)):
        kind, place, new = (draw(key, 1 + 3 * change + i) for i in range(3))
        kind = below(kind, 4)
        place = below(place, len(text) + (kind == PUT_IN))
        before, here, after = text[:place], text[place : place + 1], text[place + 1 :]
        if kind == LEAVE_OUT:
            text = before + after or text
        elif kind == PUT_IN:
            text = before + letter(new) + here + after
        elif kind == REPLACE:
            text = before + letter(new) + after
        else:
            text = before + after[:1] + here + after[1:]
    return text


def letter_of(texts: Texts, number: int) -> str:
    """Return the character of the texts that a number of 32 bits selects."""
    place = number * len(texts.content) >> 32
    while texts.content[place] & 0xC0 == 0x80:  # inside a character of several bytes
        place -= 1
    return bytes(texts.content[place : place + 4]).decode(errors="ignore")[0]


class Typos:
    """Puts typos into the texts of a share of the rows.

    Args:
        share: share of the rows.
        seed: seed of all random numbers.
        tokenizer: the tokenizer that made the shards.
    """

    def __init__(self, share: float, seed: int, tokenizer: Tokenizer):
        self._share, self._seed, self._tokenizer = share, seed, tokenizer

    def tokens(self, rows: Rows, shards: Sequence[ShardFile]) -> dict[int, np.ndarray]:
        """Return the tokens of the texts that get typos, by the index of the row in `rows`.

        Raises:
            UserError: the shards do not have the texts.
        """
        keys = randomness.key(self._seed, TYPOS, rows.number)
        places = np.flatnonzero(randomness.uniform(keys) < self._share).tolist()
        if not places:
            return {}
        found = []
        for i in places:
            shard = shards[rows.language[i]]
            texts = shard.texts
            if texts is None:
                raise UserError(
                    f"{shard.path} has no texts, but train.typos needs them; delete it and run the workflow again"
                )
            found.append(disturbed(texts[int(rows.row[i])], int(keys[i]), partial(letter_of, texts)))
        tokens, lengths = encode(self._tokenizer, found)
        return dict(zip(places, np.split(tokens, np.cumsum(lengths)[:-1]), strict=True))
