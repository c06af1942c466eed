"""Define the record batches in which documents go from the readers through cleaning to the spool, and their digests.

A batch holds about 1 MB of text, however large the file is. A digest of 128 bits stands for a document wherever
documents are compared: two with the same BLAKE2b digest count as the same (among a billion documents, the chance that
two different ones have the same is 1e-21).

The same digest decides whether a document is for validation, and whether a sample takes it. Both depend only on the
document itself, so adding documents moves no other document. If a document has a prompt, the digest covers prompt and
text, but only the prompt decides its split. So all answers to a question are in the same split. If a document has
labels, the digest covers text, context and labels, but only the text decides its split. So no text is in both splits.
"""

# pyright: reportAttributeAccessIssue=false
# (pyarrow creates the functions of pyarrow.compute at import: a type checker cannot see them.)

import json
import re
from collections.abc import Container, Mapping, Sequence
from hashlib import blake2b
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from babelmill.corpus.tally import Tally

METADATA = ("category", "license", "script", "data-source", "doc-id")
SCHEMA = pa.schema([pa.field(name, pa.string()) for name in ("text", *METADATA)])
PROMPT = "prompt"  # batches have this column if `corpus.prompt_column` is set; the text is then the response
WITH_PROMPTS = SCHEMA.append(pa.field(PROMPT, pa.string()))
# The columns of labelled text are its context ("" if it has none), a label for each of `corpus.label_columns` (null if
# it has none), and its origin (`texts/a.csv: line 7`).
CONTEXT, LABELS, ORIGIN = "context", "labels", "origin"
WITH_LABELS = pa.schema(
    [*SCHEMA, pa.field(CONTEXT, pa.string()), pa.field(LABELS, pa.list_(pa.string())), pa.field(ORIGIN, pa.string())]
)
BLOCK = 1 << 20  # bytes read at a time
TEXTS = ("text", PROMPT, CONTEXT)
ROWS = 8192  # documents in a batch at most
SURROGATE = re.compile("[\ud800-\udfff]")


def batch_of(columns: Mapping[str, list[Any] | pa.Array], tally: Tally | None = None) -> pa.RecordBatch:
    """Return a batch of `SCHEMA`, `WITH_PROMPTS` or `WITH_LABELS`. Metadata that is not given is null.

    UTF-8 cannot represent lone surrogates (`"\\ud800"` in JSON): they become U+FFFD. `tally` counts such documents.
    """
    count, schema = len(columns["text"]), schema_of(columns)
    arrays = []
    for field in schema:
        values = columns.get(field.name)
        if isinstance(values, pa.Array):
            arrays.append(values)
            continue
        if values is None or (field.name in METADATA and values.count(None) == count):
            arrays.append(pa.nulls(count, pa.string()))
            continue
        if field.name == LABELS:
            _count_replaced([label for labels in values for label in labels], tally)
            arrays.append(lists_of(values))
            continue
        try:
            arrays.append(_strings(values))
        except (UnicodeEncodeError, AttributeError):
            _count_replaced(values, tally)
            arrays.append(_strings([as_text(value) for value in values]))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _count_replaced(values: list[Any], tally: Tally | None) -> None:
    """Count the texts that have a lone surrogate."""
    count = sum(isinstance(value, str) and SURROGATE.search(value) is not None for value in values)
    if tally and count:
        tally.changed["lone_surrogates"] += count


def schema_of(names: Container[str]) -> pa.Schema:
    """Return the schema of documents with these columns."""
    return WITH_LABELS if LABELS in names else WITH_PROMPTS if PROMPT in names else SCHEMA


def lists_of(rows: Sequence[Sequence[str | None]]) -> pa.ListArray:
    """Return rows that have equally many texts as Arrow lists. Lone surrogates become U+FFFD."""
    texts = pa.array([as_text(text) for row in rows for text in row], pa.string())
    ends = np.arange(len(rows) + 1, dtype=np.int32) * (len(texts) // max(1, len(rows)))
    return pa.ListArray.from_arrays(pa.array(ends), texts)


def texts_of(batch: pa.RecordBatch) -> dict[str, pa.StringArray]:
    """Return the columns of a batch that hold text: `text`, and `prompt` or `context` if it has one of them."""
    return {name: batch[name] for name in TEXTS if name in batch.schema.names}


def sizes_of(batch: pa.RecordBatch) -> np.ndarray:
    """Return the UTF-8 bytes of each document with its prompt or context, int64 [documents]. Nulls are not allowed."""
    sizes = [pc.binary_length(column).to_numpy(zero_copy_only=False) for column in texts_of(batch).values()]
    return np.stack(sizes).sum(0, dtype=np.int64)


def _strings(values: list[str | None]) -> pa.StringArray:
    """Return texts as an Arrow array. For strings that are not ASCII, this is four times as fast as `pa.array`.

    A UnicodeEncodeError says that a text has a lone surrogate, an AttributeError that a value is not text.
    """
    encoded = [value if value is None else value.encode() for value in values]
    return pa.array(encoded, pa.binary()).view(pa.string())


def as_text(value: Any) -> str | None:
    """Return a metadata value as text that UTF-8 can represent. A value that is not text becomes JSON."""
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)
    return SURROGATE.sub("\ufffd", text)


def digests(text: pa.StringArray) -> np.ndarray:
    """Return the digest of each document, uint64 of shape [documents, 2]. Nulls are not allowed."""
    if not len(text):
        return np.empty((0, 2), np.uint64)
    _, offsets, data = text.buffers()
    bounds = np.frombuffer(offsets, np.int32)[text.offset : text.offset + len(text) + 1].tolist()
    view = memoryview(data) if data is not None else memoryview(b"")
    joined = b"".join([blake2b(view[a:b], digest_size=16).digest() for a, b in pairwise(bounds)])
    return np.frombuffer(joined, "<u8").astype(np.uint64, copy=False).reshape(-1, 2)


def keys_of(batch: pa.RecordBatch) -> np.ndarray:
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


def has_prompt(batch: pa.RecordBatch) -> np.ndarray:
    """Return bool [documents]: whether the prompt of each document is not empty."""
    return pc.not_equal(batch[PROMPT], "").to_numpy(zero_copy_only=False)
