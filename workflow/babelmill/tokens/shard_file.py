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
DTYPES = {"U8": np.dtype("u1"), "U16": np.dtype("<u2"), "U32": np.dtype("<u4")}
DTYPES |= {"I32": np.dtype("<i4"), "I64": np.dtype("<i8")}


@dataclass(frozen=True)
class Labels:
    """Holds the codes of all documents."""

    codes: np.ndarray  # [codes] int32, indices into `names`
    offsets: np.ndarray  # [documents + 1] int64: document i has `codes[offsets[i]:offsets[i + 1]]`
    names: tuple[str, ...]  # the text of each code


@dataclass(frozen=True)
class Texts:
    """Holds the texts of all documents, without their contexts."""

    content: np.ndarray  # [bytes] uint8, all texts one after another, in UTF-8
    offsets: np.ndarray  # [documents + 1] int64: document i has `content[offsets[i]:offsets[i + 1]]`

    def __getitem__(self, document: int) -> str:
        return bytes(self.content[self.offsets[document] : self.offsets[document + 1]]).decode()


@dataclass(frozen=True)
class ShardFile:
    """Holds a memory-mapped shard."""

    path: Path  # the file
    tokens: np.ndarray  # [tokens] uint16 or uint32, the stream of all documents
    offsets: np.ndarray  # [documents + 1] int64, where each document starts; the last entry is the number of tokens
    metadata: dict[str, str]  # `tokenizer_sha256` and `vocab_size`, both as text
    # [documents] int64, where the response of each document starts; None if there are no prompts.
    responses: np.ndarray | None = None
    position: int = 0  # byte position of the first token in the file
    # labels, texts: the codes and texts of the documents; None if they have no labels.
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
            arrays: dict[str, np.ndarray] = {}
            for name, entry in header.items():
                if name != "__metadata__":
                    start, end = entry["data_offsets"]
                    arrays[name] = data[8 + length :][start:end].view(DTYPES[entry["dtype"]])
            tokens, offsets, responses = arrays["tokens"], arrays["offsets"], arrays.get("responses")
            metadata = header["__metadata__"]
            int(metadata["vocab_size"])
            if offsets[0] != 0 or offsets[-1] != len(tokens):
                raise ValueError("its offsets do not span its tokens")
            if responses is not None and len(responses) != len(offsets) - 1:
                raise ValueError("it does not have one response per document")
            labels = texts = None
            if "codes" in arrays:  # the arrays after the tokens may be unaligned, so copies are read
                codes, code_offsets, names = (arrays[name].copy() for name in ("codes", "code_offsets", "code_names"))
                labels = Labels(codes, code_offsets, tuple(json.loads(bytes(names))))
            if "texts" in arrays:
                texts = Texts(arrays["texts"], arrays["text_offsets"].copy())
        except FileNotFoundError:
            raise UserError(f"{path}: no such file") from None
        except (ValueError, KeyError, IndexError, TypeError) as error:
            raise UserError(f"{path}: not a token shard ({error}); delete it and run the workflow again") from None
        position = 8 + length + header["tokens"]["data_offsets"][0]
        return cls(path, tokens, offsets, metadata, responses, position, labels, texts)

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
        self._header: dict[str, Any] = {
            "__metadata__": {"tokenizer_sha256": tokenizer_sha256, "vocab_size": str(vocab_size)}
        }
        self._end = 0  # bytes of the arrays that are in the header
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
        self._add("offsets", "I64", self._documents + 1)
        if self._prompts:
            self._add("responses", "I64", self._documents)
        self._add("tokens", self._dtype_name, self.tokens)
        if self.labels:
            names = np.frombuffer(json.dumps(self.labels.names, ensure_ascii=False).encode(), np.uint8)
            self._put_next("codes", "I32", self.labels.codes)
            self._put_next("code_offsets", "I64", self.labels.offsets)
            self._put_next("code_names", "U8", names)
            self._put_texts()
        # The format allows spaces after the JSON.
        text = json.dumps(self._header, separators=(",", ":")).encode().ljust(HEADER_BYTES - 8)
        self._put(0, np.array([len(text)], "<u8"))
        self._put(8, np.frombuffer(text, np.uint8))

    def _add(self, name: str, dtype: str, count: int) -> int:
        """Add the next array to the header. Return its position in the file."""
        begin = self._end
        self._end += count * DTYPES[dtype].itemsize
        self._header[name] = {"dtype": dtype, "shape": [count], "data_offsets": [begin, self._end]}
        return HEADER_BYTES + begin

    def _put_next(self, name: str, dtype: str, array: np.ndarray) -> None:
        self._put(self._add(name, dtype, len(array)), array.astype(DTYPES[dtype]))

    def _put_texts(self) -> None:
        """Write the texts, and before them their offsets, which are known only afterwards."""
        begin, offsets = HEADER_BYTES + self._end + self._offset_bytes, [0]
        for batch in self.texts:
            parts = [text.encode() for text in batch]
            self._put(begin + offsets[-1], np.frombuffer(b"".join(parts), np.uint8))
            for part in parts:
                offsets.append(offsets[-1] + len(part))
        if len(offsets) == 1:
            return
        if len(offsets) != self._documents + 1:
            raise RuntimeError(f"{len(offsets) - 1} texts written, {self._documents} announced")
        self._put_next("text_offsets", "I64", np.array(offsets))
        self._add("texts", "U8", offsets[-1])


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
