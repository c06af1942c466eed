"""From row numbers to tensors: the token stream of all languages on the training device, and micro-batches cut from it.

Row r of length T is the input `<s>` plus the T - 1 tokens from r T, and the T targets from r T. So rows of any length
are strides over one stream, each token is a target exactly once, and nothing of the data depends on the sequence
length. Tokens, segments, masks and targets are made on the device; the host sends a few numbers per row.
"""

from dataclasses import dataclass

import numpy as np
import torch

from babelmill.tokens.shard_file import ShardFile
from babelmill.tokens.vocabulary import Vocabulary
from babelmill.training import masking, randomness
from babelmill.training.randomness import ACTION, DROPOUT, PRIORITY, REPLACEMENT, SPAN

PUBLISHED = masking.Shares()
SIGNED = {np.dtype("<u2"): np.int16, np.dtype("<u4"): np.int32}  # torch indexes signed integers only


class TokenCounts:
    """Numbers of targets in each row of a shard, from its document starts alone: the tokens need not be read."""

    def __init__(self, offsets: np.ndarray):
        """`offsets`: [documents + 1], as in the shard."""
        self.tokens = int(offsets[-1])
        self._begins = np.asarray(offsets[:-1])
        self._ends = np.asarray(offsets[1:]) - 1
        self._rows: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def rows(self, length: int) -> int:
        """Return the number of rows of this length; the last one may be padded."""
        return -(-self.tokens // length)

    def targets(self, length: int) -> tuple[np.ndarray, np.ndarray]:
        """Return for each row how many targets may be masked (no special tokens), and all causal ones (`</s>` too)."""
        if length not in self._rows:
            rows = self.rows(length)
            valid = np.full(rows, length)
            valid[-1:] = self.tokens - (rows - 1) * length
            causal = valid - np.bincount(self._begins // length, minlength=rows)
            self._rows[length] = causal - np.bincount(self._ends // length, minlength=rows), causal
        return self._rows[length]


@dataclass(frozen=True)
class Rows:
    """Rows to build, one entry each, [B] NumPy arrays.

    Attributes:
        language: index of the language.
        row: number of the row in its language's stream.
        masked: bool; causal otherwise.
        masked_targets: how many targets to mask; 0 in causal rows.
        causal_targets: how many targets there are; 0 in masked rows.
        number: what masks are drawn from: the number of the row in the whole run.
    """

    language: np.ndarray
    row: np.ndarray
    masked: np.ndarray
    masked_targets: np.ndarray
    causal_targets: np.ndarray
    number: np.ndarray

    def __len__(self) -> int:
        return len(self.row)

    def __getitem__(self, part: slice | np.ndarray) -> "Rows":
        return Rows(*(getattr(self, name)[part] for name in self.__dataclass_fields__))


@dataclass(frozen=True)
class MicroBatch:
    """Tensors of B rows of T positions with n targets.

    Attributes:
        input_ids: [B, T] int64.
        segments: [B, T] int64, documents counted within the row, -1 at padding.
        causal: [B] bool.
        positions: [n] int64, index of each target's position in the flattened [B T].
        targets: [n] int64.
        weights: [n] float32, see `objectives`.
        groups: [n] int64, 2 language + (0 masked, 1 causal).
        dropout: [B] int64, the rows' keys, see `dropout.py`.
    """

    input_ids: torch.Tensor
    segments: torch.Tensor
    causal: torch.Tensor
    positions: torch.Tensor
    targets: torch.Tensor
    weights: torch.Tensor
    groups: torch.Tensor
    dropout: torch.Tensor


class TokenStream:
    """The tokens of all languages, one after another, on the device."""

    def __init__(
        self,
        shards: list[ShardFile],
        vocabulary: Vocabulary,
        seed: int,
        device: torch.device,
        shares: masking.Shares = PUBLISHED,
    ):
        """`shares`: what becomes of the tokens that a masked row hides."""
        tokens = np.concatenate([shard.tokens for shard in shards])
        self._mask = 2 ** (8 * tokens.itemsize) - 1
        self._tokens = torch.from_numpy(tokens.view(SIGNED[tokens.dtype])).to(device)
        self._ends = np.cumsum([len(shard.tokens) for shard in shards])
        self._begins = self._ends - [len(shard.tokens) for shard in shards]
        self._vocabulary = vocabulary
        special = set(vocabulary.special)
        self._ordinary = torch.tensor([i for i in range(vocabulary.size) if i not in special], device=device)
        self._seed = seed
        self._shares = shares
        self._device = device

    def micro_batch(
        self, rows: Rows, length: int, weights: tuple[float, float], stream: int = 0, pad_rows_to: int = 1
    ) -> MicroBatch:
        """Build rows of `length` tokens.

        Args:
            rows: which.
            length: T.
            weights: of a target in masked and in causal rows.
            stream: sets apart the random numbers of different uses (training 0, validation).
            pad_rows_to: add empty rows up to a multiple of this, so that few shapes occur (for `torch.compile`).
        """
        count = len(rows)
        padded = -(-count // pad_rows_to) * pad_rows_to
        host = torch.zeros(9, padded, dtype=torch.int64, pin_memory=self._device.type == "cuda")
        sent = host.numpy()
        sent[0, :count] = self._begins[rows.language] + rows.row * length
        sent[1, :count] = self._ends[rows.language]
        sent[2, :count] = np.where(rows.masked, rows.masked_targets, -1)
        sent[3, :count] = rows.language
        for i, use in enumerate((SPAN, PRIORITY, ACTION, REPLACEMENT)):
            sent[4 + i, :count] = randomness.key(self._seed, stream, use, rows.number)
        sent[8, :count] = randomness.key(self._seed, DROPOUT, rows.number)
        targets = int(rows.masked_targets.sum() + rows.causal_targets.sum())
        return self._build(host.to(self._device, non_blocking=True), length, targets, weights)

    def _build(self, sent: torch.Tensor, length: int, targets: int, weights: tuple[float, float]) -> MicroBatch:
        """Build all on the device. The number of targets is known from the plan, so nothing has to wait for it."""
        start, end, to_mask, language, *keys, dropout = sent
        words = self._vocabulary
        index = start[:, None] + torch.arange(length, device=self._device)
        valid = index < end[:, None]
        tokens = self._tokens[index.clamp(max=len(self._tokens) - 1)].long() & self._mask
        tokens = torch.where(valid, tokens, words.pad)
        causal = to_mask < 0

        in_document = valid & (tokens != words.bos)
        maskable = in_document & (tokens != words.eos)
        keys = masking.MaskKeys(*keys)
        span = masking.spans(keys.span, length)
        chosen = masking.choose(maskable, to_mask, span, keys.priority)
        visible = masking.corrupt(tokens, chosen, span, keys, words.mask, self._ordinary, self._shares)

        input_ids = torch.cat([torch.full_like(start, words.bos)[:, None], visible[:, :-1]], 1)
        segments = (input_ids == words.bos).cumsum(1) - 1
        filled = torch.cat([(start < end)[:, None], valid[:, :-1]], 1)
        segments = torch.where(filled, segments, -1)

        wanted = torch.where(causal[:, None], in_document, chosen)
        positions = wanted.flatten().nonzero_static(size=targets)[:, 0]
        row = positions // length
        is_causal = causal[row]
        return MicroBatch(
            input_ids=input_ids,
            segments=segments,
            causal=causal,
            positions=positions,
            targets=tokens.flatten()[positions],
            weights=torch.where(is_causal, weights[1], weights[0]),
            groups=2 * language[row] + is_causal,
            dropout=dropout,
        )
