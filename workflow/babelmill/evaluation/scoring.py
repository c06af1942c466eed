"""Scoring a token stream with an exported model: negative log-likelihoods of every token of the text, each once.

The stream is cut into rows as in training. An exported model attends across `<s>`, so the rows are cut again where
documents begin, and these parts are batched by length. Special tokens are no text: they are context only.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F

from babelmill.tokens.vocabulary import Vocabulary

BATCH_TOKENS = {"cpu": 2048, "cuda": 65536}


@dataclass(frozen=True)
class ScoringRows:
    """ScoringRows to score, [rows, length] arrays.

    Attributes:
        inputs: int64, what the model is given.
        targets: int64, the token to score at each position.
        scored: bool, where there is a token to score.
    """

    inputs: np.ndarray
    targets: np.ndarray
    scored: np.ndarray


def cut(tokens: np.ndarray, length: int, pad: int) -> np.ndarray:
    """A stream as [rows, length] int64, the last row padded."""
    rows = np.full((-(-len(tokens) // length), length), pad, np.int64)
    rows.reshape(-1)[: len(tokens)] = tokens
    return rows


def with_bos(rows: np.ndarray, bos: int) -> np.ndarray:
    """[rows, length] -> [rows, length + 1], `<s>` before each."""
    return np.concatenate([np.full((len(rows), 1), bos), rows], 1)


def causal_rows(tokens: np.ndarray, length: int, vocabulary: Vocabulary) -> ScoringRows:
    """The rows of training: `<s>` and length - 1 tokens are the input, all `length` tokens the targets."""
    targets = cut(tokens, length, vocabulary.pad)
    return ScoringRows(with_bos(targets, vocabulary.bos)[:, :-1], targets, ~vocabulary.is_special[targets])


def masked_rows(tokens: np.ndarray, length: int, masks: int, vocabulary: Vocabulary) -> Iterator[ScoringRows]:
    """Rows of `<s>` and length - 1 tokens, given `masks` times, each time with another `masks`-th of the text hidden.

    A position is scored for its own token (`logits_alignment` "mlm"), so every token to score is in the row.
    """
    targets = with_bos(cut(tokens, length - 1, vocabulary.pad), vocabulary.bos)
    text = ~vocabulary.is_special[targets]
    turn = np.where(text, (np.cumsum(text, 1) - 1) % masks, -1)
    for k in range(masks):
        yield ScoringRows(np.where(turn == k, vocabulary.mask, targets), targets, turn == k)


def parts(rows: ScoringRows, vocabulary: Vocabulary) -> list[tuple[int, int, int]]:
    """The documents' parts in the rows that have a token to score: (row, first position, end), the shortest first."""
    found = []
    for row, (inputs, scored) in enumerate(zip(rows.inputs, rows.scored, strict=True)):
        starts = np.flatnonzero(inputs == vocabulary.bos)
        for start, end in zip(starts, [*starts[1:], np.count_nonzero(inputs != vocabulary.pad)], strict=True):
            if scored[start:end].any():
                found.append((row, int(start), int(end)))
    return sorted(found, key=lambda part: part[2] - part[1])


def batches(found: list[tuple[int, int, int]], size: int) -> Iterator[list[tuple[int, int, int]]]:
    """Parts in batches of at most `size` positions, padding included (one part may be longer)."""
    batch: list[tuple[int, int, int]] = []
    for part in found:
        if batch and (len(batch) + 1) * (part[2] - part[1]) > size:
            yield batch
            batch = []
        batch.append(part)
    if batch:
        yield batch


@torch.inference_mode()
def nats(model: torch.nn.Module, rows: ScoringRows, vocabulary: Vocabulary, progress: Callable[[int], None]) -> float:
    """Return the sum of -ln p over the scored targets. `progress` is told how many of them each batch held."""
    device = next(model.parameters()).device
    total = torch.zeros((), dtype=torch.float64, device=device)
    for batch in batches(parts(rows, vocabulary), BATCH_TOKENS[device.type]):
        shape = len(batch), batch[-1][2] - batch[-1][1]
        inputs, targets = np.full(shape, vocabulary.pad), np.full(shape, vocabulary.pad)
        scored = np.zeros(shape, bool)
        for i, (row, start, end) in enumerate(batch):
            inputs[i, : end - start] = rows.inputs[row, start:end]
            targets[i, : end - start] = rows.targets[row, start:end]
            scored[i, : end - start] = rows.scored[row, start:end]
        inputs, targets, scored = (torch.from_numpy(array).to(device) for array in (inputs, targets, scored))
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            logits = model(input_ids=inputs, attention_mask=inputs != vocabulary.pad).logits
        total += F.cross_entropy(logits[scored].float(), targets[scored], reduction="sum").double()
        progress(int(scored.sum()))
    return total.item()
