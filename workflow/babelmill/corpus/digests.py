"""Exact deduplication in little memory: a set of 128-bit digests in one array.

Two documents are the same when their BLAKE2b digests of 128 bits are; among a billion documents two different ones
share a digest with a chance of 1e-21. A document costs 27 to 53 bytes (slots of 16 bytes, 30 to 60 % of them filled),
and half as much again for the moment in which the array doubles; a Python set of `bytes` takes 83 to 110.

The same digest decides on which side of the validation split a document falls and whether a sample takes it: both
depend on the document alone, so that adding documents moves no other. The digest of a document with a prompt covers
prompt and text; its side depends on the prompt alone, so that the answers to a question are never on both sides. The
digest of a labelled document covers text, context and labels; its side depends on the text alone, so that no
description is on both sides.
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
LOAD = 0.6  # share of the slots that may be filled; probing slows down beyond


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
    """Return the digest of each document, uint64 of shape [documents, 2]; for text alone, the digest of the text."""
    texts = texts_of(batch)
    found = digests(texts["text"])
    if LABELS in batch.schema.names:
        labels = pa.array(map(json.dumps, batch[LABELS].to_pylist()), pa.string())
        return _joined(found, digests(texts[CONTEXT]), digests(labels))
    if PROMPT not in texts:
        return found
    return np.where(has_prompt(batch)[:, None], _joined(digests(texts[PROMPT]), found), found)


def _joined(*parts: np.ndarray) -> np.ndarray:
    """Return the digests of documents whose parts have these digests, each [documents, 2]."""
    whole = np.concatenate(parts, 1)
    joined = b"".join([blake2b(row.tobytes(), digest_size=16).digest() for row in whole])
    return np.frombuffer(joined, "<u8").astype(np.uint64, copy=False).reshape(-1, 2)


def sides_of(batch: pa.RecordBatch, keys: np.ndarray) -> np.ndarray:
    """Return the digests that decide on which side of the split documents fall; `keys`: the result of `digests_of`."""
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
    """Return which documents of a batch with prompts have one that is not empty: bool [documents]."""
    return pc.not_equal(batch[PROMPT], "").to_numpy(zero_copy_only=False)


class DigestSet:
    """A growing set of digests: a hash table with open addressing that takes batches. A slot of zeros is empty.

    If a slot is taken, the digest's second half gives the distance to the next slot to try (double hashing). The last
    document of a batch then finds its place in a third of the rounds that trying slot after slot takes.
    """

    def __init__(self) -> None:
        self._slots = np.zeros((1 << 12, 2), np.uint64)
        self.count = 0

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self._slots.nbytes

    def contains(self, keys: np.ndarray) -> np.ndarray:
        """Return which of the digests [N, 2] are in the set: bool [N]."""
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
        """Add digests [N, 2]; return bool [N], True at the first occurrence of each that was not in the set before."""
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
        """Return the places to try next. (The distance is odd, so that every slot is reached.)"""
        return (places + (keys[:, 1] | np.uint64(1)).astype(np.int64)) & (len(self._slots) - 1)

    def _insert(self, keys: np.ndarray) -> None:
        """Insert digests that differ from each other and from all in the set."""
        places = self._places(keys)
        while len(keys):
            free = _empty(self._slots[places])
            self._slots[places[free]] = keys[free]  # if several want the same slot, one gets it
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
    """Return which digests are equal: bool [N]. (numpy is slow in reducing an axis of two.)"""
    return (a[:, 0] == b[:, 0]) & (a[:, 1] == b[:, 1])


def _empty(slots: np.ndarray) -> np.ndarray:
    """Return which slots are empty: bool [N]."""
    return (slots[:, 0] | slots[:, 1]) == 0
