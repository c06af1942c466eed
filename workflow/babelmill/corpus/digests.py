"""Find exact duplicates with little memory: a set of 128-bit digests in one array.

Two documents count as the same if their BLAKE2b digests of 128 bits are equal. Among a billion documents, the chance
that two different ones have the same digest is 1e-21. A document takes 27 to 53 bytes (slots of 16 bytes, of which 30
to 60 % are filled), and 50 % more while the array doubles. A Python set of `bytes` takes 83 to 110 bytes.

The same digest decides whether a document is for validation, and whether a sample takes it. Both depend only on the
document itself, so adding documents moves no other document. If a document has a prompt, the digest covers prompt and
text, but only the prompt decides its split. So all answers to a question are in the same split. If a document has
labels, the digest covers text, context and labels, but only the text decides its split. So no text is in both splits.
"""

# pyright: reportAttributeAccessIssue=false
# (pyarrow creates the functions of pyarrow.compute at import: a type checker cannot see them.)

import json
from hashlib import blake2b
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from babelmill.corpus.record_batches import CONTEXT, LABELS, PROMPT, texts_of

DIGEST = pa.field("digest", pa.binary(16))
LOAD = 0.6  # share of the slots that may be filled; with more, a search tries many slots


def digests(text: pa.StringArray) -> np.ndarray:
    """Return the digest of each document, uint64 of shape [documents, 2]. Nulls are not allowed."""
    if not len(text):
        return np.empty((0, 2), np.uint64)
    _, offsets, data = text.buffers()
    bounds = np.frombuffer(offsets, np.int32)[text.offset : text.offset + len(text) + 1].tolist()
    view = memoryview(data) if data is not None else memoryview(b"")
    joined = b"".join([blake2b(view[a:b], digest_size=16).digest() for a, b in pairwise(bounds)])
    return np.frombuffer(joined, "<u8").astype(np.uint64, copy=False).reshape(-1, 2)


def digests_of(batch: pa.RecordBatch) -> np.ndarray:
    """Return the digest of each document, uint64 [documents, 2]. If it has only text, this is the text's digest."""
    texts = texts_of(batch)
    found = digests(texts["text"])
    if LABELS in batch.schema.names:
        labels = pa.array(map(json.dumps, batch[LABELS].to_pylist()), pa.string())
        return _joined(found, digests(texts[CONTEXT]), digests(labels))
    if PROMPT not in texts:
        return found
    return np.where(has_prompt(batch)[:, None], _joined(digests(texts[PROMPT]), found), found)


def _joined(*parts: np.ndarray) -> np.ndarray:
    """Combine the digests of the documents' parts, each [documents, 2], to one digest per document."""
    whole = np.concatenate(parts, 1)
    joined = b"".join([blake2b(row.tobytes(), digest_size=16).digest() for row in whole])
    return np.frombuffer(joined, "<u8").astype(np.uint64, copy=False).reshape(-1, 2)


def sides_of(batch: pa.RecordBatch, keys: np.ndarray) -> np.ndarray:
    """Return the digests that decide on the documents' split. `keys` is the result of `digests_of`."""
    if LABELS in batch.schema.names:
        return digests(batch["text"])
    if PROMPT not in batch.schema.names:
        return keys
    return np.where(has_prompt(batch)[:, None], digests(batch[PROMPT]), keys)


def with_digests(batch: pa.RecordBatch, keys: np.ndarray) -> pa.RecordBatch:
    """Return a batch with the digests [rows, 2] of its documents as its last column."""
    column = pa.FixedSizeBinaryArray.from_buffers(DIGEST.type, len(keys), [None, pa.py_buffer(keys)])
    return pa.RecordBatch.from_arrays([*batch.columns, column], schema=batch.schema.append(DIGEST))


def without_digests(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, np.ndarray]:
    """Undo `with_digests`: return the batch and its digests. The batch must not be a slice."""
    keys = np.frombuffer(batch[DIGEST.name].buffers()[1], np.uint64)[: 2 * batch.num_rows].reshape(-1, 2)
    return batch.select(batch.schema.names[:-1]), keys


def has_prompt(batch: pa.RecordBatch) -> np.ndarray:
    """Return bool [documents]: whether the prompt of each document is not empty."""
    return pc.not_equal(batch[PROMPT], "").to_numpy(zero_copy_only=False)


class DigestSet:
    """Holds a growing set of digests: a hash table with open addressing, for batches. A slot of zeros is empty.

    If a slot is taken, the digest's second half gives the distance to the next slot to try (double hashing). A batch
    then needs a third of the rounds that it would need if it tried one slot after the other.
    """

    def __init__(self) -> None:
        self._slots = np.zeros((1 << 12, 2), np.uint64)
        self.count = 0

    @property
    def nbytes(self) -> int:
        """Return the bytes of memory that the set takes."""
        return self._slots.nbytes

    def contains(self, keys: np.ndarray) -> np.ndarray:
        """Return bool [N]: whether each of the digests [N, 2] is in the set."""
        found = np.zeros(len(keys), bool)
        if not self.count:
            return found
        rows, places = np.arange(len(keys)), self._places(keys)
        while len(rows):
            stored = self._slots[places]
            equal = _equal(stored, keys[rows])
            found[rows[equal]] = True
            go_on = ~equal & ~_empty(stored)
            rows = rows[go_on]
            places = self._next(places[go_on], keys[rows])
        return found

    def add(self, keys: np.ndarray) -> np.ndarray:
        """Add digests [N, 2]. Return bool [N]: True at the first occurrence of each digest that was not in the set."""
        new = np.zeros(len(keys), bool)
        if not len(keys):
            return new
        order = np.lexsort((keys[:, 1], keys[:, 0]))  # stable: equal digests keep their order
        ordered = keys[order]
        first = np.append(True, ~_equal(ordered[1:], ordered[:-1]))
        unique = order[first]
        unique = unique[~self.contains(keys[unique])]
        while self.count + len(unique) > LOAD * len(self._slots):
            self._grow()
        self._insert(keys[unique])
        self.count += len(unique)
        new[unique] = True
        return new

    def _places(self, keys: np.ndarray) -> np.ndarray:
        return (keys[:, 0] & np.uint64(len(self._slots) - 1)).astype(np.int64)

    def _next(self, places: np.ndarray, keys: np.ndarray) -> np.ndarray:
        """Return the slots to try next. (The distance is odd, so that the search reaches every slot.)"""
        return (places + (keys[:, 1] | np.uint64(1)).astype(np.int64)) & (len(self._slots) - 1)

    def _insert(self, keys: np.ndarray) -> None:
        """Insert digests, which must differ from each other and from all digests in the set."""
        places = self._places(keys)
        while len(keys):
            free = _empty(self._slots[places])
            self._slots[places[free]] = keys[free]  # if several need the same slot, only one gets it
            waiting = ~_equal(self._slots[places], keys)
            keys = keys[waiting]
            places = self._next(places[waiting], keys)

    def _grow(self) -> None:
        old = self._slots
        self._slots = np.zeros((2 * len(old), 2), np.uint64)
        for start in range(0, len(old), 1 << 16):
            part = old[start : start + (1 << 16)]
            self._insert(part[~_empty(part)])


def _equal(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return bool [N]: whether the digests are equal. (A numpy reduction over an axis of length two is slow.)"""
    return (a[:, 0] == b[:, 0]) & (a[:, 1] == b[:, 1])


def _empty(slots: np.ndarray) -> np.ndarray:
    """Return bool [N]: whether the slots are empty."""
    return (slots[:, 0] | slots[:, 1]) == 0
