"""Count the words that a run has read: shards hold tokens, but snapshots are set in words (`config/snapshots.py`)."""

import math
from collections.abc import Sequence

import numpy as np
from tokenizers import Tokenizer

from babelmill.tokens.shard_file import ShardFile
from babelmill.training.plan import PERIOD, Plan

BLOCK = 1000  # tokens per block
BLOCKS = 5000  # the largest number of blocks that are read per language


def count_words(shard: ShardFile, tokenizer: Tokenizer, bytes_per_word: float | None) -> float:
    """Return the number of words of a shard. Above 5 million tokens, it is estimated from evenly spread blocks.

    Words are separated by whitespace, unless `bytes_per_word` says how many bytes count as a word. A word counts in the
    block in which it begins.
    """
    size = len(shard.tokens)
    stride = max(BLOCK, math.ceil(size / BLOCKS))
    found = seen = 0
    for begin in range(0, size, stride):
        end = min(begin + BLOCK, size)
        first, last = np.searchsorted(shard.offsets, [begin, end])
        starts = [begin, *(int(start) for start in shard.offsets[first:last] if start != begin)]
        parts = list(zip(starts, [*starts[1:], end], strict=True))
        if shard.offsets[first] != begin:  # the token before says whether the block begins within a word
            parts[0] = (begin - 1, parts[0][1])
            found -= _count(tokenizer, [shard.tokens[begin - 1 : begin]], bytes_per_word)
        found += _count(tokenizer, [shard.tokens[a:b] for a, b in parts], bytes_per_word)
        seen += end - begin
    return found * size / seen


def _count(tokenizer: Tokenizer, parts: list[np.ndarray], bytes_per_word: float | None) -> float:
    texts = tokenizer.decode_batch([part.tolist() for part in parts], skip_special_tokens=True)
    if bytes_per_word is None:
        return sum(len(text.split()) for text in texts)
    return sum(len(text.encode()) for text in texts) / bytes_per_word


def words_per_token(plan: Plan, words: Sequence[float]) -> float:
    """Return the mean number of words per token of the run. `words` is the number of words of each language."""
    each = [count / layout.tokens for count, layout in zip(words, plan.layouts, strict=True)]
    return float(plan.mixture.shares @ np.array(each)) / PERIOD


def snapshot_steps(plan: Plan, per_token: float, points: list[float]) -> dict[int, list[float]]:
    """Return {step: points}: for each point, in million words, the first step after which the run has read that many.

    Points after the end of the run are dropped.
    """
    found: dict[int, list[float]] = {}
    for point in points:
        step = plan.first_step_with(point * 1e6 / per_token)
        if step is not None:
            found.setdefault(step, []).append(point)
    return found
