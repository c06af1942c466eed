"""From row numbers to tensors, for the objective `labels`: whole descriptions with their codes.

A row is a document, as the exported model's tokenizer makes it of a text, or of a context and a text (`Frame`). Rows of
a micro-batch are cut to the longest of them; what is longer than the row's length loses the end of its text.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from babelmill.tokens.codes import PAD, Codes
from babelmill.tokens.shard_file import Labels, ShardFile
from babelmill.training import randomness
from babelmill.training.batches import Rows
from babelmill.training.randomness import CONTEXT
from babelmill.training.typos import Typos

MULTIPLE = 8  # lengths are rounded up to it


@dataclass(frozen=True)
class Frame:
    """The special tokens around a text, and around a context with its text; ids.

    Attributes:
        alone: before and after a text.
        pair: before a context, between it and its text, and after that.
        pad: fills rows up.
    """

    alone: tuple[tuple[int, ...], tuple[int, ...]]
    pair: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
    pad: int

    def cut(self, context: np.ndarray, text: np.ndarray, length: int) -> np.ndarray:
        """Return which rows lose tokens, bool, from the numbers of tokens of contexts and texts, [rows]."""
        alone, pair = (sum(map(len, parts)) for parts in (self.alone, self.pair))
        return (context > length // 2) | (context + text + np.where(context > 0, pair, alone) > length)

    def row(self, context: np.ndarray, text: np.ndarray, length: int) -> np.ndarray:
        """Return the ids of a row of at most `length`; an empty context is none."""
        before, after = self.alone
        if len(context):
            first, between, after = self.pair
            before = np.concatenate([first, context[: length // 2], between])
        kept = text[: max(0, length - len(before) - len(after))]
        return np.concatenate([before, kept, after]).astype(np.int64)[:length]


@dataclass(frozen=True)
class LabelBatch:
    """Tensors of B rows of T positions.

    Attributes:
        input_ids: [B, T] int64.
        seen: [B, T] bool, false at padding.
        classes: [B, K] float32, 1 for the classes of each row.
        blocks: [B, n, s] int64, how these are spelt, empty ones last.
        languages: [B] int64.
        weights: of a code that is spelt, and of a row.
    """

    input_ids: torch.Tensor
    seen: torch.Tensor
    classes: torch.Tensor
    blocks: torch.Tensor
    languages: torch.Tensor
    weights: tuple[float, ...]


def known_codes(shards: Sequence[ShardFile], system: str, block_size: int, separator: str | None = None) -> Codes:
    """Return the codes that a model of these training shards knows: all that occur, sorted."""
    names = {name for shard in shards if shard.labels for name in shard.labels.names}
    return Codes(sorted(names), system, block_size, separator)


def most_codes(shards: Sequence[ShardFile]) -> int:
    """Return how many codes a document has at most."""
    return max(int(np.diff(shard.labels.offsets).max(initial=1)) for shard in shards if shard.labels)


def in_terms_of(labels: Labels, codes: Codes, most: int) -> Labels:
    """Return labels with the numbers of `codes`, without those that are not known, and at most so many a document."""
    number = np.array([codes.index.get(name, -1) for name in labels.names], np.int32)[labels.codes]
    document = np.repeat(np.arange(len(labels.offsets) - 1), np.diff(labels.offsets))
    known = number >= 0
    number, document = number[known], document[known]
    first = np.searchsorted(document, document)
    kept = np.arange(len(document)) - first < most
    ends = np.cumsum(np.bincount(document[kept], minlength=len(labels.offsets) - 1))
    return Labels(number[kept], np.concatenate([[0], ends]), codes.names)


class LabelStream:
    """The documents of all languages and their codes.

    Args:
        shards: of the languages; their labels are `in_terms_of` the codes.
        frame: of the tokenizer.
        codes: that the model knows.
        blocks: n, how many codes a document has at most.
        seed: of all that is random.
        device: where micro-batches are made.
        unknown_context: share of the rows whose context is hidden.
        typos: disturb texts; None: none are.
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
            rows: which.
            length: of the longest row.
            weights: of a target of each kind.
            stream: 0 in training, where contexts are hidden and texts disturbed.
            pad_rows_to: not used: these models are not compiled.
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
        found = (torch.from_numpy(each) for each in (input_ids, seen, classes, blocks, rows.language))
        tensors = [each.to(self._device, non_blocking=True) for each in found]
        return LabelBatch(*tensors, weights=weights)

    def _row(self, rows: Rows, i: int, length: int, hidden: bool, typed: np.ndarray | None) -> np.ndarray:
        """Return the ids of a row; `typed`: its text's, if that is disturbed."""
        shard, document = self.shards[rows.language[i]], int(rows.row[i])
        begin, end = int(rows.begin[i]) + 1, int(rows.end[i]) - 1  # without `<s>` and `</s>`
        text = begin if shard.responses is None else int(shard.responses[document])
        context = shard.tokens[begin : begin if hidden else text]
        return self._frame.row(context, shard.tokens[text:end] if typed is None else typed, length)

    def _codes_of(self, rows: Rows, i: int) -> np.ndarray:
        """Return the codes of a row; none of those that have no targets (`work.without_targets`)."""
        labels = self.shards[rows.language[i]].labels
        assert labels is not None
        document = int(rows.row[i])
        return labels.codes[labels.offsets[document] :][: int(rows.targets[i])]
