"""Read and write token shards: safetensors files that hold a stream of tokens, and where its documents start.

* `tokens` (uint16, or uint32 if the vocabulary has more than 65,536 entries): all documents, each as `<s>` text `</s>`,
  or as `<s>` prompt response `</s>`. A context is stored like a prompt, with the text as its response.
* `offsets` (int64, documents + 1): document i is `tokens[offsets[i]:offsets[i + 1]]`.
* `responses` (int64, documents), of documents with prompts: where the response of each starts.
* `codes` (int32), `code_offsets` (int64, documents + 1) and `code_names` (JSON in bytes), of documents with labels:
  the codes of all documents, which belong to which document, and the text of each code.
* `texts` (UTF-8) and `text_offsets` (int64, documents + 1), of documents with labels: so that training can add typos.

The metadata identifies the tokenizer by the sha256 of its file and its vocabulary size. Training and evaluation read
the file through a memory map. The writer appends tokens as they come, so its memory does not grow with them: it keeps
8 bytes per document. So do readers, since the arrays after the tokens may be unaligned in a memory map.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from babelmill.core.files import atomic_write

HEADER_BYTES = 1024  # including the 8 bytes of its length
TYPES = {"U8": "u1", "U16": "<u2", "U32": "<u4", "I32": "<i4", "I64": "<i8"}


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
    # labels, texts: the codes and texts of the documents; None if they have no labels.
    labels: Labels | None = None
    texts: Texts | None = None

    @property
    def vocab_size(self) -> int:
        """Return the number of entries of the vocabulary."""
        return int(self.metadata["vocab_size"])

    @classmethod
    def open(cls, path: str | Path) -> "ShardFile":
        """Map a shard that its manifest has verified."""
        data = np.memmap(path, dtype=np.uint8, mode="r")
        begin = 8 + int(data[:8].view("<u8")[0])
        header = json.loads(bytes(data[8:begin]))
        metadata, arrays = header.pop("__metadata__"), {}
        for name, entry in header.items():
            first, last = entry["data_offsets"]
            array = data[begin + first : begin + last].view(TYPES[entry["dtype"]])
            arrays[name] = array if name in ("tokens", "texts") else np.array(array)
        labels = texts = None
        if "codes" in arrays:
            names = json.loads(bytes(arrays["code_names"]))
            labels = Labels(arrays["codes"], arrays["code_offsets"], tuple(names))
            texts = Texts(arrays["texts"], arrays["text_offsets"])
        return cls(Path(path), arrays["tokens"], arrays["offsets"], metadata, arrays.get("responses"), labels, texts)

    def in_prompts(self, place: np.ndarray) -> np.ndarray:
        """Return, for places in the stream, whether each is in a prompt or is the `<s>` before it: bool, same shape."""
        if self.responses is None:
            return np.zeros(place.shape, bool)
        return place < self.responses[np.searchsorted(self.offsets, place, side="right") - 1]

    def read_through(self) -> None:
        """Read all tokens from the disk into the system's memory, as far as there is room. Other threads continue."""
        self.tokens.max(initial=0)


def write_shard(
    path: str | Path,
    vocab_size: int,
    tokenizer_sha256: str,
    documents: Iterable[tuple[np.ndarray, np.ndarray, np.ndarray | None]],
    labels: Labels | None = None,
    texts: Iterable[list[str]] = (),
) -> int:
    """Write documents, and return the number of their tokens. The file appears at the end, complete or not at all.

    Args:
        path: the file.
        vocab_size, tokenizer_sha256: what the metadata says about the tokenizer.
        documents: batches of documents. Each is all their tokens, the number of tokens of each document, and the number
            of tokens of each prompt without `<s>`, or None if there are no prompts.
        labels: the codes of labelled documents.
        texts: the texts of labelled documents, in batches.
    """
    header: dict[str, Any] = {"__metadata__": {"tokenizer_sha256": tokenizer_sha256, "vocab_size": str(vocab_size)}}
    ends, responses, sizes = [np.zeros(1, np.int64)], [], [0]

    def tokens() -> Iterator[np.ndarray]:
        for batch, lengths, prompts in documents:
            ends.append(ends[-1][-1] + np.cumsum(lengths))
            if prompts is not None:
                responses.append(ends[-1] - lengths + 1 + prompts)
            yield batch

    def encoded() -> Iterator[np.ndarray]:
        for batch in texts:
            every = [text.encode() for text in batch]
            sizes.extend(map(len, every))
            yield np.frombuffer(b"".join(every), np.uint8)

    def write(name: str, kind: str, parts: Iterable[np.ndarray]) -> None:
        """Write an array in parts, and enter it into the table of all arrays."""
        begin, type_ = file.tell() - HEADER_BYTES, np.dtype(TYPES[kind])
        for part in parts:
            file.write(part.astype(type_).data)
        end = file.tell() - HEADER_BYTES
        header[name] = {"dtype": kind, "shape": [(end - begin) // type_.itemsize], "data_offsets": [begin, end]}

    with atomic_write(path) as file:
        file.write(bytes(HEADER_BYTES))
        write("tokens", "U16" if vocab_size <= 2**16 else "U32", tokens())
        if labels:
            write("texts", "U8", encoded())
        write("offsets", "I64", ends)
        if responses:
            write("responses", "I64", responses)
        if labels:
            names = json.dumps(labels.names, ensure_ascii=False).encode()
            write("text_offsets", "I64", [np.cumsum(sizes)])
            write("codes", "I32", [labels.codes])
            write("code_offsets", "I64", [labels.offsets])
            write("code_names", "U8", [np.frombuffer(names, np.uint8)])
        text = json.dumps(header, separators=(",", ":")).encode().ljust(HEADER_BYTES - 8)  # the format allows spaces
        file.seek(0)
        file.write(len(text).to_bytes(8, "little") + text)
    return int(ends[-1][-1])
