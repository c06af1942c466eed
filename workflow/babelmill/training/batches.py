"""Open the shards that a run reads, and turn row numbers into tensors: micro-batches of the tokens of all languages.

A row's targets are up to T tokens of the stream; its layout (`plan/rows.py`) says which. Its input is `<s>` and all of
these tokens except the last: position t predicts token t + 1. With the layout `Packed`, rows of any length are cut from
one stream, one after another. So each token is a target exactly once, and the data do not depend on the sequence
length. Tokens of prompts are context: they are never targets and never hidden.

The host reads a row's tokens from the memory map of the shard, so a shard may have any size. It sends them to the
device with a few numbers per row; the device makes segments, masks and targets.

Tokens are hidden as in the published code: spans of one to three tokens are drawn, and whole spans are taken in random
order until enough tokens are hidden. Of these spans, some become random tokens, some stay (10 % each as published), and
the others become `<mask>`. There are two differences from the published code. The number of hidden tokens is exact (the
last span is cut), so that the plan knows the number of targets. And it is not counted how often a token has been
hidden, so that a row's mask depends only on the row's number.
"""

import functools
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from babelmill.runtime.run_folder import SPLITS
from babelmill.stages import TrainStage
from babelmill.tokens.shard_file import ShardFile
from babelmill.tokens.vocabulary import Vocabulary
from babelmill.training.kernels.compilation import Graphs
from babelmill.training.plan import randomness
from babelmill.training.plan.objectives import Objective
from babelmill.training.plan.randomness import ACTION, DROPOUT, PRIORITY, REPLACEMENT, SPAN, below, draw
from babelmill.training.plan.rows import Packed, Rows

NEVER = torch.iinfo(torch.int64).max


def spans_of(keys: torch.Tensor, position: torch.Tensor, longest: int) -> torch.Tensor:
    """Return the number of the span that each position belongs to, [B, T] int64.

    Spans are 1 to `longest` tokens long, each length equally often. `position`: 0 .. T - 1. `keys`: [B] int64, those
    of the stream SPAN (see `randomness`).
    """
    length = len(position)
    lengths = 1 + below(draw(keys[:, None], position), longest)
    starts = (lengths.cumsum(1) - lengths).clamp(max=length)
    first = torch.zeros(len(keys), length + 1, dtype=torch.int64, device=keys.device)
    return first.scatter_(1, starts, 1)[:, :length].cumsum(1) - 1


@torch.library.custom_op("babelmill::sorted_rows", mutates_args=())
def _sorted_rows(values: torch.Tensor) -> torch.Tensor:
    """Sort each row. `torch.compile` does not look inside: its own sort is one kernel that takes minutes to build."""
    return values.sort(1).values


@_sorted_rows.register_fake
def _(values: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(values)


def choose(
    maskable: torch.Tensor,  # [B, T] bool, at least `count` of them per row
    count: torch.Tensor,  # [B] int64
    span: torch.Tensor,  # [B, T] int64, from `spans_of`
    keys: torch.Tensor,  # [B] int64, of the stream PRIORITY
    position: torch.Tensor,  # [T] int64, 0 .. T - 1
) -> torch.Tensor:
    """Choose exactly `count` maskable positions per row: whole spans in random order, and a part of the last span.

    The result is [B, T] bool.
    """
    rank = torch.where(maskable, draw(keys[:, None], span) * len(position) + position, NEVER)
    last = _sorted_rows(rank).gather(1, (count - 1).clamp(min=0)[:, None])
    return maskable & (rank <= last) & (count > 0)[:, None]


COLUMNS = 10  # numbers of a row that the host sends
Weights = tuple[float, ...]  # of a target of each kind
SIGNED = {np.dtype("<u2"): torch.int16, np.dtype("<u4"): torch.int32}  # torch computes with signed integers only


class Sent(NamedTuple):
    """Holds what the host sends of B rows of T positions, on the device."""

    numbers: torch.Tensor  # [B, COLUMNS] int64, see `TokenStream.send`
    # [B, T], as signed integers of the size in the shards. Values after a row's end have no meaning.
    tokens: torch.Tensor
    prompts: torch.Tensor | None  # [B, T] bool, which tokens are part of prompts; None: none is


@dataclass(frozen=True)
class MicroBatch:
    """Holds the tensors of B rows of T positions with n targets."""

    input_ids: torch.Tensor  # [B, T] int64
    segments: torch.Tensor  # [B, T] int64, number of the document within the row, -1 at padding
    causal: torch.Tensor  # [B] bool
    positions: torch.Tensor  # [n] int64, the position that predicts each target, as an index into the flattened [B T]
    targets: torch.Tensor  # [n] int64
    weights: torch.Tensor  # [n] float32, weight of each target in the loss times its importance, see `objectives`
    groups: torch.Tensor  # [n] int64, see `Objective`
    dropout: torch.Tensor  # [B] int64, the rows' keys, see `dropout.py`
    # [n] float64, how many targets each target stands for; None if each stands for one
    importance: torch.Tensor | None = None


class Stream(Protocol):
    """Builds micro-batches: `TokenStream`, or another class."""

    def micro_batch(self, rows: Rows, length: int, weights: Weights, stream: int = 0, pad_rows_to: int = 1) -> Any:
        """Build a micro-batch with rows of at most `length` tokens, in the form that the network takes."""
        ...


class TokenStream:
    """Builds micro-batches from the tokens of all languages, in the memory maps of their shards.

    With `in_place`, hidden tokens are predicted where they stand, not one position before; a row's input is then its T
    tokens themselves. This is for models that predict so, and for objectives whose rows all hide tokens.
    """

    def __init__(
        self,
        shards: list[ShardFile],
        vocabulary: Vocabulary,
        seed: int,
        device: torch.device,
        objective: Objective,
        in_place: bool = False,
        graphs: Graphs | None = None,
    ):
        self._shards, self._dtype = shards, shards[0].tokens.dtype
        self._mask = 2 ** (8 * self._dtype.itemsize) - 1
        self._prompts = any(shard.responses is not None for shard in shards)
        self._vocabulary = vocabulary
        special = set(vocabulary.special)
        self._ordinary = torch.tensor([i for i in range(vocabulary.size) if i not in special], device=device)
        self._seed = seed
        self._hides = np.array([kind.hides for kind in objective.kinds])
        self._hiding = objective.hiding
        self._in_place = in_place
        self._device = device
        self._show = self._shown
        if graphs:
            self._show = graphs.of(
                self._shown,
                lambda sent, tokens, prompts, position: [sent, tokens, *([] if prompts is None else [prompts])],
            )
        # This tensor is not made in compiled graphs: they count in 32 bits, so the hash of a position would overflow.
        self._position = functools.cache(functools.partial(torch.arange, device=device))

    def _gather(self, rows: Rows, length: int, padded: int) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return `tokens` and `prompts` of `Sent`, with `padded` rows, on the host."""
        pinned = self._device.type == "cuda"
        tokens = torch.zeros(padded, length, dtype=SIGNED[self._dtype], pin_memory=pinned)
        prompts = torch.zeros(padded, length, dtype=torch.bool, pin_memory=pinned) if self._prompts else None
        place = rows.places(length)
        for language in np.unique(rows.language):
            shard, mine = self._shards[language], np.flatnonzero(rows.language == language)
            index = np.minimum(place[mine], len(shard.tokens) - 1)
            tokens.numpy().view(self._dtype)[mine] = shard.tokens[index]
            if prompts is not None:
                prompts.numpy()[mine] = shard.in_prompts(index)
        return tokens, prompts

    def micro_batch(
        self, rows: Rows, length: int, weights: Weights, stream: int = 0, pad_rows_to: int = 1
    ) -> MicroBatch:
        """Build rows of `length` tokens.

        `weights`: the weight of a target of each kind, before it is multiplied by the target's importance.
        `stream` separates the random numbers of different uses (0 in training, another one in validation). Empty rows
        are added up to a multiple of `pad_rows_to`, so that few shapes occur (for `torch.compile`).
        """
        padded = -(-len(rows) // pad_rows_to) * pad_rows_to
        sent = self.send(rows, length, weights, padded, stream)
        return self.build(sent, int(rows.targets.sum()), rows.importance is not None)

    def send(self, rows: Rows, length: int, weights: Weights, padded: int, stream: int = 0) -> Sent:
        """Send to the device what `build` needs of rows; empty rows are added up to the number `padded`."""
        count, kinds = len(rows), len(self._hides)
        host = torch.zeros(padded, COLUMNS, dtype=torch.int64, pin_memory=self._device.type == "cuda")
        sent = host.numpy().T
        sent[0, :count] = rows.end - rows.begin
        sent[1, :count] = np.where(self._hides[rows.kind], rows.targets, -1)
        sent[2, :count] = kinds * rows.language + rows.kind
        for i, use in enumerate((SPAN, PRIORITY, ACTION, REPLACEMENT)):
            sent[3 + i, :count] = randomness.key(self._seed, stream, use, rows.number)
        sent[7, :count] = randomness.key(self._seed, DROPOUT, rows.number)
        weight = np.array(weights)[rows.kind]
        importance = np.ones(count) if rows.importance is None else rows.importance
        sent[8, :count] = (weight * importance).view(np.int64)
        sent[9, :count] = importance.view(np.int64)
        tokens, prompts = self._gather(rows, length, padded)
        to_device = functools.partial(torch.Tensor.to, device=self._device, non_blocking=True)
        return Sent(to_device(host), to_device(tokens), prompts if prompts is None else to_device(prompts))

    @torch.no_grad()
    def build(self, sent: Sent, targets: int, important: bool) -> MicroBatch:
        """Build, on the device, a micro-batch of the rows that were sent; the host need not wait for it.

        The plan knows the number of `targets`; if it is larger, targets without weight are added. If they are
        `important`, targets have an importance, and added ones count as none.
        """
        length = sent.tokens.shape[1]
        input_ids, segments, causal, wanted, whole = self._show(*sent, self._position(length))
        group, dropout, weight, importance = (sent.numbers[:, column] for column in (2, 7, 8, 9))
        found = wanted.flatten().nonzero_static(size=targets)[:, 0]  # -1 for those that are added
        positions = found.clamp(min=0)
        row = positions // length
        exists = found >= 0
        return MicroBatch(
            input_ids=input_ids,
            segments=segments,
            causal=causal,
            positions=positions,
            targets=whole.flatten()[positions],
            weights=(weight.view(torch.float64)[row] * exists).to(torch.get_default_dtype()),
            groups=group[row],
            dropout=dropout,
            importance=importance.view(torch.float64)[row] * exists if important else None,
        )

    def _shown(
        self, sent: torch.Tensor, tokens: torch.Tensor, prompts: torch.Tensor | None, position: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return input ids, segments, which rows are causal, which tokens are targets, and all tokens."""
        filled, to_hide, _, spans, priorities, actions, replacements = sent.unbind(1)[:7]
        words, hiding = self._vocabulary, self._hiding
        valid = position < filled[:, None]
        tokens = torch.where(valid, tokens.long() & self._mask, words.pad)
        causal = to_hide < 0

        learnable = valid & (tokens != words.bos)
        if prompts is not None:
            learnable &= ~prompts
        hideable = learnable
        if not hiding.ends:
            hideable = learnable & (tokens != words.eos)
        span = spans_of(spans, position, hiding.longest_span)
        chosen = choose(hideable, to_hide, span, priorities, position)
        # What is chosen becomes `<mask>`, a random token or itself, with one action per span.
        action = draw(actions[:, None], span)
        random = self._ordinary[below(draw(replacements[:, None], position), len(self._ordinary))]
        masked, replaced = int((1 - hiding.random - hiding.keep) * 2**32), int((1 - hiding.keep) * 2**32)
        changed = torch.where(action < masked, words.mask, torch.where(action < replaced, random, tokens))
        visible = torch.where(chosen, changed, tokens)

        wanted = torch.where(causal[:, None], learnable, chosen)
        if self._in_place:
            input_ids, segments, exists = visible, (visible == words.bos).cumsum(1), valid
        else:
            input_ids = torch.cat([torch.full_like(visible[:, :1], words.bos), visible[:, :-1]], 1)
            segments = (input_ids == words.bos).cumsum(1) - 1
            exists = torch.cat([filled[:, None] > 0, valid[:, :-1]], 1)
        return words.given(input_ids), torch.where(exists, segments, -1), causal, wanted, words.given(tokens)


class Data:
    """Holds the shards of all languages (a folder each) by split, their rows, and the tokenizer's vocabulary."""

    blocks_weight = 0.0  # only labels have blocks

    def __init__(self, settings: TrainStage, tokenizer: Path, folders: list[Path]):
        self.settings = settings
        self.shards = {
            split: [ShardFile.open(folder / f"{split}.safetensors") for folder in folders] for split in SPLITS
        }
        # A step then need not wait for the disk, which would stop all threads.
        reads = [shard.read_through for shard in self.shards["train"]]
        threading.Thread(target=lambda: [read() for read in reads], daemon=True).start()
        self.layouts: dict[str, list[Packed]] = {
            split: [Packed(shard.offsets, shard.responses) for shard in shards] for split, shards in self.shards.items()
        }
        self.vocabulary = Vocabulary.read(tokenizer / "tokenizer.json", self.shards["train"][0].vocab_size)

    def stream(self, split: str, device: torch.device, *how: Any) -> Stream:
        """Return the stream of a split; `how`: the further arguments of a `TokenStream`."""
        return TokenStream(self.shards[split], self.vocabulary, self.settings.train.seed, device, *how)
