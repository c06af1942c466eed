"""Define the record batches in which documents go from the readers through cleaning and sampling to the writer.

A batch holds about 1 MB of text, however large the file is.
"""

# pyright: reportAttributeAccessIssue=false
# (pyarrow creates the functions of pyarrow.compute at import: a type checker cannot see them.)

import json
import re
from collections.abc import Container, Iterator, Sequence
from typing import IO, Any

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
MAX_DOCUMENT = 1 << 30  # bytes; a batch of Arrow strings holds at most 2 GiB, and a whole document must be in memory
SURROGATE = re.compile("[\ud800-\udfff]")


def batch_of(columns: dict[str, list[Any]], tally: Tally | None = None) -> pa.RecordBatch:
    """Return a batch of `SCHEMA`, `WITH_PROMPTS` or `WITH_LABELS` from lists. Metadata that is not given is null.

    UTF-8 cannot represent lone surrogates (`"\\ud800"` in JSON): they become U+FFFD. `tally` counts such documents.
    """
    count, schema = len(columns["text"]), schema_of(columns)
    arrays = []
    for field in schema:
        values = columns.get(field.name)
        if values is None:
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


def joined(parts: pa.ListArray, stays: np.ndarray, between: str) -> pa.StringArray:
    """Return texts that were cut into parts without those that do not stay; `stays`: bool [parts of all texts].

    `parts` must not be a slice of a longer array, whose offsets do not begin at 0.
    """
    ends = np.concatenate(([0], np.cumsum(stays)))[parts.offsets.to_numpy()].astype(np.int32)
    left = pa.ListArray.from_arrays(pa.array(ends), parts.flatten().filter(pa.array(stays)))
    return pc.binary_join(left, between)


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


class Spool:
    """Keeps batches of one schema in a temporary file, compressed, until they are read again."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._stream: pa.RecordBatchStreamWriter | None = None

    def write(self, batch: pa.RecordBatch) -> None:
        if self._stream is None:
            options = pa.ipc.IpcWriteOptions(compression="lz4")
            self._stream = pa.ipc.new_stream(self._file, batch.schema, options=options)
        self._stream.write_batch(batch)

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yield all batches, in order. Afterwards no more can be added."""
        if self._stream is not None:
            self._stream.close()
            self._file.seek(0)
            yield from pa.ipc.open_stream(self._file)
