"""Compute ln p of tokens with an exported model, as its users load it: at temperature 1, in fp32.

All scores come from `Model.log_probs`: bits per byte, pairs, choices, surprisals, reading times, ages of acquisition.
They differ only in the rows that the model reads, and in what these ask for (`rows.py`).

On a CPU, short texts are read fast. What rows of a causal model begin with alike is read once: options with a long
prompt would take four times as long, and pairs 1.3 times. Linear layers are packed: without, all takes 1.5 times.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import torch

from babelmill.core.escape import line
from babelmill.core.files import UserError
from babelmill.core.words import NOT_A_NUMBER
from babelmill.evaluation.fast_layers import FreePositions, pack_linear_layers
from babelmill.evaluation.rows import Row

GROUP = 4  # batches per group; the rows of a group are sorted by length and scored together
POSITIONS = {"cpu": 1024, "cuda": 65536}  # positions per batch; more would not fit into a CPU's caches
LOGITS = 1 << 31  # bytes that the logits of a batch take at most
LONG = 128  # tokens of a joined row, unless its trunk is longer than half of it

AnyRow = TypeVar("AnyRow")


# Rows that begin alike, as a causal model reads them: a trunk, and branches, which other rows have in place of its end.
# Of each part, how many tokens of the trunk it sees besides its own (the trunk: 0), and its own tokens.
Joined = list[tuple[int, list[int]]]


class Model:
    """A loaded model that gives the probabilities of tokens. Its scores at a position may be for the next token.

    `causal`: whether it predicts each token from those before it. `tokenizer`: of transformers, for messages.
    """

    def __init__(self, model: Any, tokenizer: Any, causal: bool):
        self._model, self._tokenizer, self._pad, self._causal = model, tokenizer, tokenizer.pad_token_id or 0, causal
        target = getattr(model.config, "masked_target", None)  # our architectures have one
        self._is_ours = target is not None
        self._before = int(causal or target == "next")
        self._device = next(model.parameters()).device
        is_gpt_bert = model.config.model_type == "babelmill_gpt_bert"
        self._attention = FreePositions(model) if is_gpt_bert else None
        if is_gpt_bert and self._device.type == "cpu":
            pack_linear_layers(model)
        entries = 1 << 15 if is_gpt_bert else model.config.vocab_size
        if (output := model.get_output_embeddings()) is not None:
            entries = output.weight.shape[0]
        # how many positions a batch has at most
        self.positions = min(POSITIONS[self._device.type], LOGITS // (4 * entries))

    @torch.inference_mode()
    def log_probs(self, rows: Sequence[Row]) -> np.ndarray:
        """Return ln p of the targets of rows, one row after the other: [targets] float64.

        Rows of similar length are read together, and what rows of a causal model begin with alike is read once. A
        UserError says that a score is not a number.
        """
        joined, where = self._join(rows)
        counts = [len(row.places) for row in rows]
        places = np.array([place for row in rows for place in row.places], np.int64) - self._before
        targets = np.array([target for row in rows for target in row.targets], np.int64)
        numbers, forks, shifts = np.repeat(np.array(where, np.int64).reshape(-1, 3), counts, 0).T
        places += shifts * (places >= forks)
        lengths = [sum(len(ids) for _, ids in row) for row in joined]
        found, order = np.zeros(len(places)), sorted(range(len(joined)), key=lengths.__getitem__)
        for batch in batches(order, lengths.__getitem__, self.positions):
            line_of = np.full(len(joined), -1)
            line_of[batch] = np.arange(len(batch))
            lines = line_of[numbers]
            mine = np.flatnonzero(lines >= 0)
            asked = (torch.from_numpy(each[mine]) for each in (lines, places, targets))
            found[mine] = self._ln_p(*self._given([joined[i] for i in batch]), *asked)
        if len(wrong := np.flatnonzero(~np.isfinite(found))):
            row = rows[int(np.searchsorted(np.cumsum(counts), wrong[0], "right"))]
            text = line(self._tokenizer.decode(row.ids, skip_special_tokens=True), 80)
            where_from = self._tokenizer.name_or_path
            raise UserError(f"{where_from}: the score of {text!r} is not a number ({found[wrong[0]]}): {NOT_A_NUMBER}")
        return found

    def sums(self, rows: Sequence[Row]) -> np.ndarray:
        """Return the weighted sum of ln p of each row: [rows] float64."""
        owners = np.repeat(np.arange(len(rows)), [len(row.places) for row in rows])
        return np.bincount(owners, self.log_probs(rows), len(rows)) * [row.weight for row in rows]

    def groups(
        self, items: Iterable[int], rows_of: Callable[[int], list[list[Row]]]
    ) -> Iterator[tuple[list[int], list[list[float]]]]:
        """Yield items in groups, in their order, as they are scored: their numbers, and the sums of each one's parts.

        `rows_of` returns the rows of an item in parts, such as its sentences.
        """
        group: dict[int, list[list[Row]]] = {}
        size = 0
        for number in items:
            group[number] = rows_of(number)
            size += sum(len(row.ids) for part in group[number] for row in part)
            if size >= GROUP * self.positions:
                yield self._of_group(group)
                group, size = {}, 0
        if group:
            yield self._of_group(group)

    def _of_group(self, group: dict[int, list[list[Row]]]) -> tuple[list[int], list[list[float]]]:
        parts = [part for each in group.values() for part in each]
        ends = np.cumsum([len(part) for part in parts])
        sums = np.split(self.sums([row for part in parts for row in part]), ends[:-1])
        found = iter([float(of_part.sum()) for of_part in sums])
        return [*group], [[next(found) for _ in each] for each in group.values()]

    def _join(self, rows: Sequence[Row]) -> tuple[list[Joined], list[tuple[int, int, int]]]:
        """Return what the model reads, and where each row is in it: the number, and the fork and shift of its tokens.

        The token at a place from the fork on stands `shift` tokens later. In sorted order, the last first, a row that
        another one begins with follows it directly: then it is not read. With `FreePositions`, a row that has half of
        its tokens in common with another becomes a branch of that one.
        """
        if not self._causal:
            return [[(0, row.ids)] for row in rows], [(i, 0, 0) for i in range(len(rows))]
        found: list[Joined] = []
        where = [(0, 0, 0)] * len(rows)
        trunk, size = list[int](), 0  # of the last one, with its branches
        last, last_row = -1, list[int]()
        for i in sorted(range(len(rows)), key=lambda i: rows[i].ids, reverse=True):
            ids = rows[i].ids
            if last >= 0 and last_row[: len(ids)] == ids:
                where[i] = where[last]
            elif (
                self._attention
                and 2 * (fork := _common(ids, trunk)) >= len(ids)
                and size + len(ids) - fork <= max(LONG, 2 * len(trunk))
            ):
                where[i] = len(found) - 1, fork, size - fork
                found[-1].append((fork, ids[fork:]))
                size += len(ids) - fork
            else:
                where[i], trunk, size = (len(found), 0, 0), ids, len(ids)
                found.append([(0, ids)])
            last, last_row = i, ids
        return found, where

    def _given(self, rows: list[Joined]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return padded rows, [rows, longest], and which tokens they may see, of the same shape or [rows, T, T]."""
        lengths = torch.tensor([sum(len(part) for _, part in row) for row in rows])
        column = torch.arange(int(lengths.max()))
        there = column < lengths[:, None]

        def padded(numbers: Iterable[int], filling: int = 0) -> torch.Tensor:
            found = torch.full(there.shape, filling)
            found[there] = torch.tensor([*numbers])
            return found

        ids = padded((token for row in rows for _, part in row for token in part), self._pad)
        if not self._attention:
            return ids, there
        self._attention.positions = None
        if all(len(row) == 1 for row in rows):
            return ids, there
        branches = padded(i for row in rows for i, (_, part) in enumerate(row) for _ in part)
        forks = padded(fork for row in rows for fork, part in row for _ in part)
        positions = padded(fork + i for row in rows for fork, part in row for i in range(len(part)))
        self._attention.positions = positions.to(self._device)
        of_trunk = (branches == 0)[:, None] & (column < forks[:, :, None])
        seen = there[:, :, None] & there[:, None] & ((branches[:, :, None] == branches[:, None]) | of_trunk)
        return ids, seen

    def _ln_p(
        self, ids: torch.Tensor, seen: torch.Tensor, lines: torch.Tensor, places: torch.Tensor, targets: torch.Tensor
    ) -> np.ndarray:
        """Return ln p of targets, [targets] float64, from the model's logits at their places.

        The head of our architectures is computed only at these places, and only once at a place with several targets. A
        target's place is a line (row) and a position in `ids`, [rows, length]; `seen` is the attention mask.
        """
        where, which = torch.stack([lines, places]).unique(dim=1, return_inverse=True)
        where, which, targets = (each.to(self._device) for each in (where, which, targets))
        given = ids.to(self._device), seen.to(self._device)
        if not self._is_ours:
            logits = self._model(input_ids=given[0], attention_mask=given[1]).logits[*where].float()
        else:
            hidden = self._model.model(*given, return_dict=True).last_hidden_state
            logits = self._model._logits(hidden[*where]).float()
        return (logits[which, targets] - logits.logsumexp(-1)[which]).double().cpu().numpy()


def _common(one: list[int], other: list[int]) -> int:
    """Return how many tokens two rows have in common at their beginning."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def batches(rows: Iterable[AnyRow], length: Callable[[AnyRow], int], positions: int) -> Iterator[list[AnyRow]]:
    """Yield batches of rows, which must be sorted by `length`.

    A batch has at most `positions` positions, padding included; a longer row is a batch of its own.
    """
    batch: list[AnyRow] = []
    for row in rows:
        if batch and (len(batch) + 1) * length(row) > positions:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch
