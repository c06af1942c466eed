"""Read and write token shards: safetensors files that hold a stream of tokens, and where its documents start.

`tokens` (uint16, or uint32 if the vocabulary has more than 65,536 entries) is the stream of all documents, each as
`<s>` text `</s>`. `offsets` (int64, documents + 1 entries) says where they start: document i is
`tokens[offsets[i]:offsets[i + 1]]`. If documents have prompts, each is `<s>` prompt response `</s>`, and `responses`
(int64, one entry per document) says where its response starts. If documents have labels, `codes` (int32) holds the
codes of all documents, `code_offsets` (int64, documents + 1 entries) says which codes belong to which document, and
`code_names` (JSON in bytes) holds the text of each code. A context is stored like a prompt. Such shards also hold the
original texts (`texts`, UTF-8, and `text_offsets`), so that training can add typos to them. The metadata identifies the
tokenizer by the sha256 of its file and its vocabulary size.

A safetensors file begins with its table of sizes, but the number of tokens is known only at the end. So the writer
leaves space for the table, and for the arrays with one entry per document (Parquet stores the number of documents). It
writes the tokens after this space, and fills the space step by step. So its memory does not grow with the corpus.
Training and evaluation read the file through a memory map. This module does not import tokenization, so a change there
does not change the digest of the trainer's code.
"""

import contextlib
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from babelmill.core.files import UserError, atomic_write

HEADER_BYTES = 1024  # including the 8 bytes of its length; a multiple of 8, so that the offsets are aligned in memory
OFFSET_BYTES = 8
DTYPES = {"U16": np.dtype("<u2"), "U32": np.dtype("<u4")}
LABELS = ("codes", "I32"), ("code_offsets", "I64"), ("code_names", "U8")
TEXTS = ("text_offsets", "I64"), ("texts", "U8")


@dataclass(frozen=True)
class Labels:
    """Holds the codes of all documents.

    Attributes:
        codes: [codes] int32, indices into `names`.
        offsets: [documents + 1] int64: document i has `codes[offsets[i]:offsets[i + 1]]`.
        names: the text of each code.
    """

    codes: np.ndarray
    offsets: np.ndarray
    names: tuple[str, ...]

    @classmethod
    def read(cls, header: dict[str, Any], body: np.ndarray) -> "Labels | None":
        """Copy the labels from a mapped file, where they may be unaligned. Return None if the file has none."""
        if "codes" not in header:
            return None
        parts = (body[slice(*header[name]["data_offsets"])].copy() for name, _ in LABELS)
        codes, offsets, names = parts
        return cls(codes.view("<i4"), offsets.view("<i8"), tuple(json.loads(bytes(names))))

    def parts(self) -> list[bytes]:
        """Return the bytes of each array, as the file stores them."""
        names = json.dumps(self.names, ensure_ascii=False).encode()
        return [self.codes.astype("<i4").tobytes(), self.offsets.astype("<i8").tobytes(), names]


@dataclass(frozen=True)
class Texts:
    """Holds the texts of all documents, without their contexts.

    Attributes:
        content: [bytes] uint8, all texts one after another, in UTF-8.
        offsets: [documents + 1] int64: document i has `content[offsets[i]:offsets[i + 1]]`.
    """

    content: np.ndarray
    offsets: np.ndarray

    def __getitem__(self, document: int) -> str:
        """Return the text of a document."""
        return bytes(self.content[self.offsets[document] : self.offsets[document + 1]]).decode()

    @classmethod
    def read(cls, header: dict[str, Any], body: np.ndarray) -> "Texts | None":
        """Map the texts of a file. Return None if the file has none."""
        if "texts" not in header:
            return None
        offsets, content = (body[slice(*header[name]["data_offsets"])] for name, _ in TEXTS)
        return cls(content, offsets.copy().view("<i8"))


@dataclass(frozen=True)
class ShardFile:
    """Holds a memory-mapped shard.

    Attributes:
        path: the file.
        tokens: [tokens] uint16 or uint32, the stream of all documents.
        offsets: [documents + 1] int64, where each document starts; the last entry is the number of tokens.
        metadata: `tokenizer_sha256` and `vocab_size`, both as text.
        responses: [documents] int64, where the response of each document starts; None if there are no prompts.
        position: byte position of the first token in the file.
        labels, texts: the codes and texts of the documents; None if they have no labels.
    """

    path: Path
    tokens: np.ndarray
    offsets: np.ndarray
    metadata: dict[str, str]
    responses: np.ndarray | None = None
    position: int = 0
    labels: Labels | None = None
    texts: Texts | None = None

    @property
    def vocab_size(self) -> int:
        """Return the number of entries of the vocabulary."""
        return int(self.metadata["vocab_size"])

    @classmethod
    def open(cls, path: str | Path) -> "ShardFile":
        """Map a shard. Raise a UserError if the file is not a shard. (The manifest verifies its content.)"""
        path = Path(path)
        try:
            data = np.memmap(path, dtype=np.uint8, mode="r")
            length = int(data[:8].view("<u8")[0])
            header = json.loads(bytes(data[8 : 8 + length]))
            body = data[8 + length :]
            arrays, starts = {}, {}
            integers = {"I64": np.dtype("<i8")}
            for name, dtypes in (("tokens", DTYPES), ("offsets", integers), ("responses", integers)):
                if name in header or name != "responses":
                    starts[name], end = header[name]["data_offsets"]
                    arrays[name] = body[starts[name] : end].view(dtypes[header[name]["dtype"]])
            metadata = header["__metadata__"]
            int(metadata["vocab_size"])
            if arrays["offsets"][0] != 0 or arrays["offsets"][-1] != len(arrays["tokens"]):
                raise ValueError("its offsets do not span its tokens")
            if len(arrays.get("responses", arrays["offsets"][1:])) != len(arrays["offsets"]) - 1:
                raise ValueError("it does not have one response per document")
        except FileNotFoundError:
            raise UserError(f"{path}: no such file") from None
        except (ValueError, KeyError, IndexError, TypeError) as error:
            raise UserError(f"{path}: not a token shard ({error}); delete it and run the workflow again") from None
        position = 8 + length + starts["tokens"]
        more = arrays.get("responses"), position, Labels.read(header, body), Texts.read(header, body)
        return cls(path, arrays["tokens"], arrays["offsets"], metadata, *more)

    def in_prompts(self, place: np.ndarray) -> np.ndarray:
        """Return, for places in the stream, whether each is in a prompt or is the `<s>` before it: bool, same shape."""
        if self.responses is None:
            return np.zeros(place.shape, bool)
        return place < self.responses[np.searchsorted(self.offsets, place, side="right") - 1]

    def read_ahead(self, begin: np.ndarray, end: np.ndarray) -> None:
        """Read some parts of the stream from the disk into the system's memory.

        The method first tells the system about all parts, and only then waits for them. So the system reads several at
        a time. Meanwhile other threads continue; they would have to wait if a memory map read its pages from the disk.
        """
        size = self.tokens.itemsize
        parts = list(zip((self.position + begin * size).tolist(), ((end - begin) * size).tolist(), strict=True))
        # If the file was deleted meanwhile, its memory map still works.
        with contextlib.suppress(FileNotFoundError), open(self.path, "rb", buffering=0) as file:
            if hasattr(os, "posix_fadvise"):
                for start, count in parts:
                    os.posix_fadvise(file.fileno(), start, count, os.POSIX_FADV_WILLNEED)
            for start, count in parts:
                os.pread(file.fileno(), count, start)


class ShardWriter:
    """Writes documents to an open file, in constant memory. Use `write_shard` to create one."""

    def __init__(self, file: IO[bytes], documents: int, vocab_size: int, tokenizer_sha256: str, prompts: bool = False):
        self._file = file
        self._documents, self._prompts = documents, prompts
        self._metadata = {"tokenizer_sha256": tokenizer_sha256, "vocab_size": str(vocab_size)}
        self._dtype_name = "U16" if vocab_size <= 2**16 else "U32"
        self._dtype = DTYPES[self._dtype_name]
        self._offset_bytes = (documents + 1) * OFFSET_BYTES
        self._before_tokens = self._offset_bytes + documents * OFFSET_BYTES * prompts
        self._written = 0  # documents whose tokens are in the file
        self.tokens = 0  # tokens in the file
        self.labels: Labels | None = None  # set before the end, like `texts`
        self.texts: Iterable[list[str]] = ()  # the texts of labelled documents, in batches
        self._put(HEADER_BYTES, np.zeros(1, "<i8"))

    def _put(self, position: int, array: np.ndarray) -> None:
        self._file.seek(position)
        self._file.write(np.ascontiguousarray(array).data.cast("B"))

    def append(self, tokens: np.ndarray, lengths: np.ndarray, prompts: np.ndarray | None = None) -> None:
        """Add documents: all their tokens, and the number of tokens of each document and each prompt without `<s>`."""
        ends = self.tokens + np.cumsum(lengths, dtype="<i8")
        self._put(HEADER_BYTES + (self._written + 1) * OFFSET_BYTES, ends)
        if prompts is not None:
            responses = (ends - lengths + 1 + prompts).astype("<i8")
            self._put(HEADER_BYTES + self._offset_bytes + self._written * OFFSET_BYTES, responses)
        self._put(HEADER_BYTES + self._before_tokens + self.tokens * self._dtype.itemsize, tokens.astype(self._dtype))
        self.tokens += len(tokens)
        self._written += len(lengths)

    def finish(self) -> None:
        """Write labels and texts, if the documents have any, and then the table of sizes."""
        if self._written != self._documents:
            raise RuntimeError(f"{self._written} documents written, {self._documents} announced")
        first, begin = self._offset_bytes, self._before_tokens
        end = begin + self.tokens * self._dtype.itemsize
        responses = {"dtype": "I64", "shape": [self._documents], "data_offsets": [first, begin]}
        header = {
            "__metadata__": self._metadata,
            "offsets": {"dtype": "I64", "shape": [self._documents + 1], "data_offsets": [0, first]},
            **({"responses": responses} if self._prompts else {}),
            "tokens": {"dtype": self._dtype_name, "shape": [self.tokens], "data_offsets": [begin, end]},
        }
        parts = self.labels.parts() if self.labels else []
        for (name, dtype), part in zip(LABELS, parts, strict=False):  # the parts are all there, or there are none
            self._put(HEADER_BYTES + end, np.frombuffer(part, np.uint8))
            header[name] = _entry(dtype, end, len(part))
            end += len(part)
        if self.labels:
            header |= self._put_texts(end)
        # The format allows spaces after the JSON.
        text = json.dumps(header, separators=(",", ":")).encode().ljust(HEADER_BYTES - 8)
        self._put(0, np.array([len(text)], "<u8"))
        self._put(8, np.frombuffer(text, np.uint8))

    def _put_texts(self, begin: int) -> dict[str, Any]:
        """Write the offsets of the texts, and then the texts. Return their entries in the table of sizes."""
        first = end = begin + self._offset_bytes
        lengths: list[int] = []
        for batch in self.texts:
            parts = [text.encode() for text in batch]
            self._put(HEADER_BYTES + end, np.frombuffer(b"".join(parts), np.uint8))
            lengths += map(len, parts)
            end += sum(map(len, parts))
        if not lengths:
            return {}
        if len(lengths) != self._documents:
            raise RuntimeError(f"{len(lengths)} texts written, {self._documents} announced")
        self._put(HEADER_BYTES + begin, np.cumsum([0, *lengths]).astype("<i8"))
        sizes = (begin, self._offset_bytes), (first, end - first)
        return {name: _entry(dtype, *size) for (name, dtype), size in zip(TEXTS, sizes, strict=True)}


def _entry(dtype: str, begin: int, size: int) -> dict[str, Any]:
    """Return the table's entry for an array of `size` bytes at `begin`."""
    count = size // {"I32": 4, "I64": 8, "U8": 1}[dtype]
    return {"dtype": dtype, "shape": [count], "data_offsets": [begin, begin + size]}


@contextlib.contextmanager
def write_shard(
    path: str | Path, documents: int, vocab_size: int, tokenizer_sha256: str, prompts: bool = False
) -> Iterator[ShardWriter]:
    """Yield a ShardWriter for exactly `documents` documents. The file appears at the end, complete or not at all.

    `prompts` says whether documents have prompts; `append` then needs their sizes.
    """
    with atomic_write(path) as file:
        writer = ShardWriter(file, documents, vocab_size, tokenizer_sha256, prompts)
        yield writer
        writer.finish()
