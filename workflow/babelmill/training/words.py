"""Count the words that a run has read: shards hold tokens, but people count words, and so do snapshots.

The stage `shards` counts words while it reads the text. Shards that were made before it did are decoded again.
"""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from babelmill.config.snapshots import kept_at_the_end
from babelmill.core import manifest, words
from babelmill.tokens.shard_file import ShardFile
from babelmill.tokens.tokenizer_file import load_tokenizer
from babelmill.training.plan import PERIOD, Plan

BLOCK = 100_000  # tokens per block
BLOCKS = 10_000  # the largest number of blocks that are decoded per language, which takes minutes


def training_words(shards: Path, tokenizer: Path, bytes_per_word: float | None) -> float:
    """Return the number of words of a language's training text.

    Words are separated by whitespace, unless `bytes_per_word` says how many bytes count as a word.

    Args:
        shards: the folder of the language's shards.
        tokenizer: the folder of the tokenizer.
        bytes_per_word: see `Language.bytes_per_word`.
    """
    figures = manifest.read(shards)["figures"]
    if bytes_per_word is not None:
        return figures["bytes"]["train"] / bytes_per_word
    if "words" in figures:
        return figures["words"]["train"]
    return count_words(ShardFile.open(shards / "train.safetensors"), load_tokenizer(tokenizer / "tokenizer.json"))


def count_words(shard: ShardFile, tokenizer: Tokenizer) -> float:
    """Return the number of words of a shard, from its tokens.

    Above a thousand million tokens, it is estimated from evenly spread blocks. A word counts in the block in which it
    begins.
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
            found -= _count(tokenizer, [shard.tokens[begin - 1 : begin]])
        found += _count(tokenizer, [shard.tokens[a:b] for a, b in parts])
        seen += end - begin
    return found * size / seen


def _count(tokenizer: Tokenizer, parts: list[np.ndarray]) -> int:
    return words.count_words(tokenizer.decode_batch([part.tolist() for part in parts], skip_special_tokens=True))


def words_per_token(plan: Plan, counts: Sequence[float]) -> float:
    """Return the mean number of words per token of the run. `counts` is the number of words of each language."""
    each = [count / layout.tokens for count, layout in zip(counts, plan.layouts, strict=True)]
    return float(plan.mixture.shares @ np.array(each)) / PERIOD


def snapshot_steps(plan: Plan, per_token: float, points: list[float]) -> dict[int, list[float]]:
    """Return {step: points}: for each point, in million words, the first step after which the run has read that many.

    A point shortly after the end of the run belongs to the last step. Later ones are dropped.
    """
    found: dict[int, list[float]] = {}
    for point in kept_at_the_end(points, per_token * plan.tokens_until(plan.steps) / 1e6):
        step = plan.first_step_with(point * 1e6 / per_token) or plan.steps
        found.setdefault(step, []).append(point)
    return found
