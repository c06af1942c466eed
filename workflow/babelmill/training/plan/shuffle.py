"""Cut rows from the documents in a random order (`train.order: documents`), without writing the stream anew.

A keyed permutation puts each document at a place of the order. Rows are cut from the documents as they follow each
other there, so a row consists of pieces of the shard's stream: the end of one document, whole documents, the beginning
of another. To find the documents of a row, it is known how many tokens lie before every BLOCK-th place; between two of
these places, lengths are added up when a row asks for them. So any row is found without the rows before it, and memory
is 8 bytes per BLOCK documents.
"""

import numpy as np

from babelmill.training.plan.randomness import permute

BLOCK = 16  # places between two stored sums
AT_ONCE = 2**15  # documents whose lengths are read at once


class Shuffled:
    """Holds the documents of a stream in an order of their own.

    Making it reads the length of each document once, which takes about 0.1 s per million documents.

    Args:
        offsets: [documents + 1], where documents start in the stream, see `ShardFile`. A memory map is not copied.
        key: chooses the order, see `permute`.
    """

    def __init__(self, offsets: np.ndarray, key: int):
        self._offsets, self._key, self._documents = offsets, key, len(offsets) - 1
        blocks = np.zeros(-(-self._documents // BLOCK), dtype=np.int64)
        for first in range(0, self._documents, AT_ONCE):
            document = np.arange(first, min(first + AT_ONCE, self._documents))
            lengths = np.diff(offsets[first : document[-1] + 2])
            np.add.at(blocks, permute(document, self._documents, key) // BLOCK, lengths)
        self._before = np.concatenate([[0], blocks.cumsum()])  # tokens before each block

    def pieces(self, begin: np.ndarray, end: np.ndarray) -> np.ndarray:
        """Return where rows are in the stream of the shard.

        Args:
            begin, end: [rows], where each row begins and ends (exclusive) among the tokens in this order. No row is
                empty.

        Returns:
            [rows] object: for each row int64 [pieces, 2], where its pieces begin and end, in the row's order.
        """
        first = np.searchsorted(self._before, begin, side="right") - 1
        last = np.searchsorted(self._before, end - 1, side="right") - 1
        count = np.minimum((last + 1) * BLOCK, self._documents) - first * BLOCK  # documents of the blocks of a row
        row = np.repeat(np.arange(len(begin)), count)
        rows_before = np.cumsum(count) - count
        place = np.repeat(first * BLOCK - rows_before, count) + np.arange(len(row))
        document = permute(place, self._documents, self._key, inverse=True)
        start = self._offsets[document]
        length = self._offsets[document + 1] - start
        before = np.cumsum(length) - length  # tokens of all listed documents before each, over all rows
        before += np.repeat(self._before[first] - before[rows_before], count)  # tokens before it in this order
        from_, to = np.maximum(before, begin[row]), np.minimum(before + length, end[row])
        inside = from_ < to
        shift = start - before
        found = np.stack([from_ + shift, to + shift], 1)[inside]
        pieces = np.empty(len(begin), dtype=object)
        bounds = np.cumsum(np.bincount(row[inside], minlength=len(begin)))[:-1]
        for i, part in enumerate(np.split(found, bounds)):
            pieces[i] = part
        return pieces
