"""Scoring a token stream with an exported model: rows, the mask that keeps documents apart, negative log-likelihoods.

The stream is cut into rows, several documents to a row; a block mask keeps them from seeing each other, as in training.
Every token of the text is scored exactly once. Special tokens are no text.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer

from babelmill.tokenizer_file import BOS, MASK, PAD, special_ids, vocab_size

BATCH_TOKENS = {"cpu": 4096, "cuda": 65536}


@dataclass(frozen=True)
class Vocabulary:
    """What scoring needs to know of the tokenizer: ids, and [vocabulary size] bool, true for special tokens."""

    bos: int
    pad: int
    mask: int
    special: np.ndarray

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> "Vocabulary":
        """What a tokenizer says."""
        special = np.zeros(vocab_size(tokenizer), bool)
        special[special_ids(tokenizer)] = True
        return cls(*(tokenizer.token_to_id(token) for token in (BOS, PAD, MASK)), special)


@dataclass(frozen=True)
class Rows:
    """Rows to score, [rows, length] arrays.

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


def causal_rows(tokens: np.ndarray, length: int, vocabulary: Vocabulary) -> Rows:
    """The rows of training: `<s>` and length - 1 tokens are the input, all `length` tokens the targets."""
    targets = cut(tokens, length, vocabulary.pad)
    return Rows(with_bos(targets, vocabulary.bos)[:, :-1], targets, ~vocabulary.special[targets])


def masked_rows(tokens: np.ndarray, length: int, masks: int, vocabulary: Vocabulary) -> Iterator[Rows]:
    """Rows of `<s>` and length - 1 tokens, given `masks` times, each time with another `masks`-th of the text hidden.

    A position is scored for its own token (`logits_alignment` "mlm"), so every token to score is in the row.
    """
    targets = with_bos(cut(tokens, length - 1, vocabulary.pad), vocabulary.bos)
    text = ~vocabulary.special[targets]
    turn = np.where(text, (np.cumsum(text, 1) - 1) % masks, -1)
    for k in range(masks):
        yield Rows(np.where(turn == k, vocabulary.mask, targets), targets, turn == k)


def attention_mask(inputs: torch.Tensor, causal: bool, vocabulary: Vocabulary) -> torch.Tensor:
    """[B, T] -> [B, T, T] bool, true where a query (second axis) may see a key (third): its document, and no padding.

    Padding sees itself, so that no position sees nothing.
    """
    segments = (inputs == vocabulary.bos).cumsum(1).masked_fill(inputs == vocabulary.pad, 0)
    allowed = segments[:, :, None] == segments[:, None, :]
    return allowed.tril() if causal else allowed


@torch.inference_mode()
def nats(model, rows: Rows, causal: bool, vocabulary: Vocabulary, progress: Callable[[int], None]) -> float:
    """Sum of -ln p over the scored targets. `progress` is told the number of positions of each batch."""
    device = model.device
    total = torch.zeros((), dtype=torch.float64, device=device)
    batch = max(1, BATCH_TOKENS[device.type] // rows.inputs.shape[1])
    for start in range(0, len(rows.inputs), batch):
        inputs, targets, scored = (
            torch.from_numpy(array[start : start + batch]).to(device)
            for array in (rows.inputs, rows.targets, rows.scored)
        )
        mask = attention_mask(inputs, causal, vocabulary)
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            logits = model(input_ids=inputs, attention_mask=mask).logits
        total += F.cross_entropy(logits[scored].float(), targets[scored], reduction="sum").double()
        progress(inputs.numel())
    return total.item()
