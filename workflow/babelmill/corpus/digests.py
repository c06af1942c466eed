"""Give each document a digest of 128 bits, which stands for the document wherever documents are compared.

Two documents count as the same if their BLAKE2b digests are equal. Among a billion documents, the chance that two
different ones have the same digest is 1e-21. Batches carry the digests as their last column.

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


def sides_of(batch: pa.RecordBatch) -> np.ndarray:
    """Return the digests that decide on the split of the documents of a batch, which has digests."""
    if LABELS in batch.schema.names:
        return digests(batch["text"])
    if PROMPT not in batch.schema.names:
        return keys_of(batch)
    return np.where(has_prompt(batch)[:, None], digests(batch[PROMPT]), keys_of(batch))


def with_digests(batch: pa.RecordBatch, keys: np.ndarray) -> pa.RecordBatch:
    """Return a batch with the digests [rows, 2] of its documents as its last column."""
    column = pa.FixedSizeBinaryArray.from_buffers(DIGEST.type, len(keys), [None, pa.py_buffer(keys)])
    return batch.append_column(DIGEST, column)


def keys_of(batch: pa.RecordBatch) -> np.ndarray:
    """Return the digests that `with_digests` added to a batch, uint64 [rows, 2]."""
    column = batch[DIGEST.name]
    return np.frombuffer(column.buffers()[1], np.uint64).reshape(-1, 2)[column.offset :][: len(column)]


def has_prompt(batch: pa.RecordBatch) -> np.ndarray:
    """Return bool [documents]: whether the prompt of each document is not empty."""
    return pc.not_equal(batch[PROMPT], "").to_numpy(zero_copy_only=False)


class DigestSet:
    """Holds a growing set of digests."""

    def __init__(self) -> None:
        self._digests: set[bytes] = set()

    def __len__(self) -> int:
        return len(self._digests)

    def contains(self, keys: np.ndarray) -> np.ndarray:
        """Return bool [N]: whether each of the digests [N, 2] is in the set."""
        if not self._digests:
            return np.zeros(len(keys), bool)
        return np.fromiter((key in self._digests for key in _as_bytes(keys)), bool, len(keys))

    def add(self, keys: np.ndarray) -> np.ndarray:
        """Add digests [N, 2]. Return bool [N]: True at the first occurrence of each digest that was not in the set."""
        new = np.zeros(len(keys), bool)
        for i, key in enumerate(_as_bytes(keys)):
            if key not in self._digests:
                self._digests.add(key)
                new[i] = True
        return new


def _as_bytes(keys: np.ndarray) -> list[bytes]:
    return np.ascontiguousarray(keys).view("V16").ravel().tolist()
