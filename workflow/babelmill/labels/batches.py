"""Turn row numbers into tensors, for the objective `labels`: whole texts with their codes.

A row is a document: a text, or a context and a text, with the special tokens that the exported model's tokenizer adds
(`Frame`). A micro-batch is as long as its longest row. A document that is too long for a row loses the end of its text.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from babelmill.labels.codes import PAD, Codes
from babelmill.labels.typos import Typos
from babelmill.tokens.shard_file import Labels, ShardFile
from babelmill.training.plan import randomness
from babelmill.training.plan.randomness import CONTEXT
from babelmill.training.plan.rows import Rows

MULTIPLE = 8  # lengths are rounded up to a multiple of it


@dataclass(frozen=True)
class Frame:
    """Holds the ids of the special tokens around a text, and around a context with its text.

    Attributes:
        alone: ids before and after a text.
        pair: ids before a context, between the context and its text, and after the text.
        pad: the id of padding.
    """

    alone: tuple[tuple[int, ...], tuple[int, ...]]
    pair: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
    pad: int

    def cut(self, context: np.ndarray, text: np.ndarray, length: int) -> np.ndarray:
        """Return [rows] bool: which rows lose tokens. `context` and `text` [rows] are their numbers of tokens."""
        alone, pair = (sum(map(len, parts)) for parts in (self.alone, self.pair))
        return (context > length // 2) | (context + text + np.where(context > 0, pair, alone) > length)

    def row(self, context: np.ndarray, text: np.ndarray, length: int) -> np.ndarray:
        """Return the ids of a row, at most `length` of them. An empty `context` means that there is none."""
        before, after = self.alone
        if len(context):
            first, between, after = self.pair
            before = np.concatenate([first, context[: length // 2], between])
        kept = text[: max(0, length - len(before) - len(after))]
        return np.concatenate([before, kept, after]).astype(np.int64)[:length]


@dataclass(frozen=True)
class LabelBatch:
    """Holds tensors of B rows of T positions.

    Attributes:
        input_ids: [B, T] int64.
        seen: [B, T] bool, false at padding.
        classes: [B, K] float32, 1 for the classes of each row.
        blocks: [B, n, s] int64, the symbols of the row's codes, empty blocks last.
        languages: [B] int64.
        weights: weights of three parts of the loss: a spelt code, a row's classes, and a row's empty blocks.
    """

    input_ids: torch.Tensor
    seen: torch.Tensor
    classes: torch.Tensor
    blocks: torch.Tensor
    languages: torch.Tensor
    weights: tuple[float, ...]


def known_codes(shards: Sequence[ShardFile], system: str, block_size: int, separator: str | None = None) -> Codes:
    """Return the codes that a model of these training shards knows: all codes of the shards, sorted."""
    names = {name for shard in shards if shard.labels for name in shard.labels.names}
    return Codes(sorted(names), system, block_size, separator)


def most_codes(shards: Sequence[ShardFile]) -> int:
    """Return the largest number of codes of a document."""
    return max(int(np.diff(shard.labels.offsets).max(initial=1)) for shard in shards if shard.labels)


def in_terms_of(labels: Labels, codes: Codes, most: int) -> Labels:
    """Return labels numbered as in `codes`, without codes that are not among these, and at most `most` per document."""
    number = np.array([codes.index.get(name, -1) for name in labels.names], np.int32)[labels.codes]
    document = np.repeat(np.arange(len(labels.offsets) - 1), np.diff(labels.offsets))
    known = number >= 0
    number, document = number[known], document[known]
    first = np.searchsorted(document, document)
    kept = np.arange(len(document)) - first < most
    ends = np.cumsum(np.bincount(document[kept], minlength=len(labels.offsets) - 1))
    return Labels(number[kept], np.concatenate([[0], ends]), codes.names)


class LabelStream:
    """Holds the documents of all languages and their codes.

    Args:
        shards: one per language. The stream holds copies whose labels are `in_terms_of` the codes.
        frame: the special tokens of the tokenizer.
        codes: the codes that the model knows.
        blocks: n, the largest number of codes of a document.
        seed: seed of all random numbers.
        device: where micro-batches are made.
        unknown_context: share of the rows whose context is hidden.
        typos: puts typos into texts; None if texts get no typos.
    """

    def __init__(
        self,
        shards: Sequence[ShardFile],
        frame: Frame,
        codes: Codes,
        blocks: int,
        seed: int,
        device: torch.device,
        unknown_context: float = 0.0,
        typos: Typos | None = None,
    ):
        known = [replace(shard, labels=shard.labels and in_terms_of(shard.labels, codes, blocks)) for shard in shards]
        self.shards: list[ShardFile] = known
        self._frame, self._codes, self._blocks = frame, codes, blocks
        self._seed, self._device, self._unknown_context, self._typos = seed, device, unknown_context, typos

    def on(self, device: torch.device) -> "LabelStream":
        """Return this stream with micro-batches on another device."""
        found = copy.copy(self)
        found._device = device
        return found

    def read_ahead(self, rows: Rows) -> None:
        """Read the tokens of rows from the disk into the system's memory."""
        for language in np.unique(rows.language):
            mine = rows[rows.language == language]
            self.shards[language].read_ahead(mine.begin, mine.end)

    def micro_batch(
        self, rows: Rows, length: int, weights: tuple[float, ...], stream: int = 0, pad_rows_to: int = 1
    ) -> LabelBatch:
        """Build rows of at most `length` tokens.

        Args:
            rows: the rows to build.
            length: largest length of a row.
            weights: the weights in the loss; see `LabelBatch`.
            stream: 0 in training. Only training hides contexts and puts typos into texts.
            pad_rows_to: not used, since these models are not compiled.
        """
        hidden = randomness.uniform(randomness.key(self._seed, stream, CONTEXT, rows.number)) < self._unknown_context
        typed = self._typos.tokens(rows, self.shards) if self._typos and not stream else {}
        ids = [self._row(rows, i, length, bool(hidden[i]) and not stream, typed.get(i)) for i in range(len(rows))]
        longest = -(-max(map(len, ids)) // MULTIPLE) * MULTIPLE
        input_ids = np.full((len(rows), longest), self._frame.pad)
        seen = np.arange(longest) < np.array([len(row) for row in ids])[:, None]
        input_ids[seen] = np.concatenate(ids)
        classes = np.zeros((len(rows), len(self._codes.names)), np.float32)
        blocks = np.full((len(rows), self._blocks, self._codes.block_size), PAD)
        for i in range(len(rows)):
            codes = self._codes_of(rows, i)
            classes[i, codes] = 1
            blocks[i, : len(codes)] = self._codes.blocks[codes]
        found = [torch.from_numpy(each) for each in (input_ids, seen, classes, blocks, rows.language)]
        if self._device.type == "cuda":  # otherwise the host would wait for each copy
            found = [each.pin_memory() for each in found]
        tensors = [each.to(self._device, non_blocking=True) for each in found]
        return LabelBatch(*tensors, weights=weights)

    def _row(self, rows: Rows, i: int, length: int, hidden: bool, typed: np.ndarray | None) -> np.ndarray:
        """Return the ids of a row. `typed` is the ids of its text with typos, or None if it has none."""
        shard, document = self.shards[rows.language[i]], int(rows.row[i])
        begin, end = int(rows.begin[i]) + 1, int(rows.end[i]) - 1  # without `<s>` and `</s>`
        text = begin if shard.responses is None else int(shard.responses[document])
        context = shard.tokens[begin : begin if hidden else text]
        return self._frame.row(context, shard.tokens[text:end] if typed is None else typed, length)

    def _codes_of(self, rows: Rows, i: int) -> np.ndarray:
        """Return the codes of a row. A row without targets (`work.without_targets`) has none."""
        labels = self.shards[rows.language[i]].labels
        assert labels is not None
        document = int(rows.row[i])
        return labels.codes[labels.offsets[document] :][: int(rows.targets[i])]
