"""Define the batches in which documents go from their files to the corpus, and keep them on disk in between.

A batch holds about 1 MB of text, however large the file is. A digest of 128 bits stands for a document wherever
documents are compared: two with the same BLAKE2b digest count as the same (among a billion documents, the chance that
two different ones have the same is 1e-21).

The same digest decides whether a document is for validation, and whether a sample takes it. Both depend only on the
document itself, so adding documents moves no other document. If a document has a prompt, the digest covers prompt and
text, but only the prompt decides its split. So all answers to a question are in the same split. If a document has
labels, the digest covers text, context and labels, but only the text decides its split. So no text is in both splits.

The spool is a Parquet file of all clean documents in their order. Beside each stand the numbers that decide on it: its
digests, its size and, if they are asked for, what it weighs in a budget and the bands of near copies. One column of
numbers is in memory at a time, never the text.
"""

# pyright: reportAttributeAccessIssue=false
# (pyarrow creates the functions of pyarrow.compute at import: a type checker cannot see them.)

import json
from collections import Counter
from collections.abc import Container, Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from hashlib import blake2b
from itertools import pairwise
from typing import IO, Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from babelmill.corpus.tally import Tally
from babelmill.tables.rows import SURROGATE
from babelmill.tokens.label_text import NO_LABEL

METADATA = ("category", "license", "script", "data-source", "doc-id")
SCHEMA = pa.schema([pa.field(name, pa.string()) for name in ("text", *METADATA)])
PROMPT = "prompt"  # batches have this column if `corpus.prompt_column` is set; the text is then the response
# The columns of labelled text are its context ("" if it has none), a label for each of `corpus.label_columns` (null if
# it has none), and its origin (`texts/a.csv: line 7`).
CONTEXT, LABELS, ORIGIN = "context", "labels", "origin"
OF_LABELS = pa.schema([(CONTEXT, pa.string()), (LABELS, pa.list_(pa.string())), (ORIGIN, pa.string())])
TEXTS = ("text", PROMPT, CONTEXT)
ROW_GROUP = 16 << 20  # bytes: of text in the results, of everything in the spool
MEASURES = ("bytes", "words")


def schema_of(names: Container[str]) -> pa.Schema:
    """Return the schema of documents with these columns."""
    if LABELS in names:
        return pa.schema([*SCHEMA, *OF_LABELS])
    return SCHEMA.append(pa.field(PROMPT, pa.string())) if PROMPT in names else SCHEMA


def batch_of(columns: Mapping[str, list[Any] | pa.Array], tally: Tally | None = None) -> pa.RecordBatch:
    """Return a batch of text, with prompts or with labels. Metadata that is not given is null.

    UTF-8 cannot represent lone surrogates (`"\\ud800"` in JSON): they become U+FFFD. `tally` counts such documents.
    """
    count, schema = len(columns["text"]), schema_of(columns)
    arrays = []
    for field in schema:
        values = columns.get(field.name)
        if isinstance(values, pa.Array):
            arrays.append(values)
        elif values is None or (field.name in METADATA and values.count(None) == count):
            arrays.append(pa.nulls(count, pa.string()))
        elif field.name == LABELS:
            texts = strings([label for labels in values for label in labels], tally)
            ends = np.arange(count + 1, dtype=np.int32) * (len(texts) // max(1, count))
            arrays.append(pa.ListArray.from_arrays(pa.array(ends), texts))
        else:
            arrays.append(strings(values, tally))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def strings(values: list[Any], tally: Tally | None = None) -> pa.StringArray:
    """Return an Arrow array of texts; a value that is none becomes JSON.

    For strings that are not ASCII, to encode them here is four times as fast as `pa.array`.
    """
    try:
        encoded = [value if value is None else value.encode() for value in values]
    except (UnicodeEncodeError, AttributeError):  # half of a surrogate pair, or no text
        if tally and (count := sum(isinstance(value, str) and bool(SURROGATE.search(value)) for value in values)):
            tally.changed["lone_surrogates"] += count
        encoded = [value if value is None else _as_text(value).encode() for value in values]
    return pa.array(encoded, pa.binary()).view(pa.string())


def _as_text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)
    return SURROGATE.sub("\ufffd", text)


def texts_of(batch: pa.RecordBatch) -> dict[str, pa.StringArray]:
    """Return the columns of a batch that hold text: `text`, and `prompt` or `context` if it has one of them."""
    return {name: batch[name] for name in TEXTS if name in batch.schema.names}


def sizes_of(batch: pa.RecordBatch) -> np.ndarray:
    """Return the UTF-8 bytes of each document with its prompt or context, int64 [documents]. Nulls are not allowed."""
    sizes = [pc.binary_length(column).to_numpy(zero_copy_only=False) for column in texts_of(batch).values()]
    return np.stack(sizes).sum(0, dtype=np.int64)


def bytes_of(text: pa.StringArray | pa.BinaryArray) -> tuple[np.ndarray, np.ndarray]:
    """Return the UTF-8 bytes of texts, uint8, and where each text begins and ends in them, int64 [N + 1].

    Nulls are not allowed.
    """
    _, offsets, raw = text.buffers()
    if raw is None or not len(text):
        return np.empty(0, np.uint8), np.zeros(len(text) + 1, np.int64)
    bounds = np.frombuffer(offsets, np.int32)[text.offset : text.offset + len(text) + 1].astype(np.int64)
    return np.frombuffer(raw, np.uint8)[bounds[0] : bounds[-1]], bounds - bounds[0]


def digests(values: pa.StringArray | pa.BinaryArray) -> np.ndarray:
    """Return the digest of each text, uint64 of shape [texts, 2]. Nulls are not allowed."""
    data, bounds = bytes_of(values)
    view = data.data
    joined = b"".join([blake2b(view[a:b], digest_size=16).digest() for a, b in pairwise(bounds.tolist())])
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
    return digests(pa.array([row.tobytes() for row in np.concatenate(parts, 1)], pa.binary()))


def sides_of(batch: pa.RecordBatch) -> np.ndarray:
    """Return the digests that decide on the split of the documents of a batch, uint64 [documents, 2]."""
    of_texts = digests(batch["text"])
    if PROMPT not in batch.schema.names:
        return of_texts
    return np.where(has_prompt(batch)[:, None], digests(batch[PROMPT]), of_texts)


def has_prompt(batch: pa.RecordBatch) -> np.ndarray:
    """Return bool [documents]: whether the prompt of each document is not empty."""
    return pc.not_equal(batch[PROMPT], "").to_numpy(zero_copy_only=False)


class RowGroups:
    """Writes record batches as Parquet, in row groups of about 16 MB, which fit into the memory of their readers.

    A thread compresses a row group (without Python's lock) while the next is collected.
    """

    def __init__(self, file: IO[bytes] | str, columns: pa.Schema, compression: str) -> None:
        self._parquet = pq.ParquetWriter(
            file,
            columns,
            compression=compression,
            use_dictionary=list(METADATA),  # pyright: ignore[reportArgumentType] (pyarrow takes names of columns, too)
            write_statistics=False,
        )
        self._thread = ThreadPoolExecutor(1)
        self._writing = list[Future[None]]()  # the row group before
        self._waiting, self._size = list[pa.RecordBatch](), 0

    def write(self, batch: pa.RecordBatch, size: int) -> None:
        """Write a batch that counts as so many bytes."""
        if batch.num_rows:
            self._waiting.append(batch)
            self._size += size
        if self._size >= ROW_GROUP:
            self._flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Write what is waiting and the file's footer."""
        try:
            if kind is None:
                self._flush()
                self._flush()
        finally:
            self._thread.shutdown()
            self._parquet.close()

    def _flush(self) -> None:
        """Start to write what is waiting, after the row group before it is written."""
        while self._writing:
            self._writing.pop().result()
        if self._waiting:
            table = pa.Table.from_batches(self._waiting)
            self._writing.append(self._thread.submit(self._parquet.write_table, table, row_group_size=len(table)))
        self._waiting, self._size = [], 0


class Spool:
    """The documents that were written to a spool. Each has a number: its place."""

    def __init__(self, path: str) -> None:
        self._parquet = pq.ParquetFile(path)
        self.documents: int = self._parquet.metadata.num_rows
        self.columns: list[str] = self._parquet.schema_arrow.names

    def numbers(self, column: str) -> np.ndarray:
        """Return a column of numbers, [documents]."""
        found = np.empty(self.documents, self._parquet.schema_arrow.field(column).type.to_pandas_dtype())
        for first, batch in self.batches([column]):
            found[first : first + len(batch)] = batch[column]
        return found

    def batches(self, columns: Sequence[str]) -> Generator[tuple[int, pa.RecordBatch]]:
        """Yield these columns in batches, each with the number of its first document."""
        at = 0
        for group in range(self._parquet.num_row_groups):
            table = self._parquet.read_row_group(group, columns=list(columns))
            for batch in table.combine_chunks().to_batches(max_chunksize=max(1, len(table) // 16)):
                yield at, batch
                at += len(batch)


def without_labels(labels: pa.ListArray) -> int:
    """Return the number of documents without any label, or with `NA` and its like in place of one."""
    missing = pc.is_in(labels.flatten(), pa.array([None, *sorted(NO_LABEL)])).to_numpy(zero_copy_only=False)
    return int(missing.reshape(len(labels), -1).all(1).sum())


class Split(RowGroups):
    """Writes the documents of a split, and counts what it writes."""

    def __init__(self, file: IO[bytes], columns: pa.Schema) -> None:
        super().__init__(file, columns, "zstd")
        self._columns = columns.names
        self.documents = self.bytes = self.words = self.with_prompt = self.without_labels = 0
        self.by_category: Counter[str] = Counter()
        self.by_license: Counter[str] = Counter()

    def add(self, batch: pa.RecordBatch) -> None:
        """Write a batch of the spool, which has `MEASURES`."""
        if not batch.num_rows:
            return
        size, words = (int(pc.sum(batch[name]).as_py()) for name in MEASURES)
        self.documents += batch.num_rows
        self.bytes += size
        self.words += words
        if PROMPT in batch.schema.names:
            self.with_prompt += int(has_prompt(batch).sum())
        if LABELS in batch.schema.names:
            self.without_labels += without_labels(batch[LABELS])
        for name, counter in (("category", self.by_category), ("license", self.by_license)):
            if batch[name].null_count < batch.num_rows:
                found = batch[name].drop_null().value_counts().to_pylist()
                counter.update({pair["values"]: pair["counts"] for pair in found})
        self.write(batch.select(self._columns), size)
