"""Count the words that a run has read: shards hold tokens, but people count words, and so do snapshots.

The stage `shards` counts words while it reads the text. Shards that were made before it did are decoded again.
"""

import contextlib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tokenizers import Tokenizer

from babelmill.config.snapshots import kept_at_the_end
from babelmill.core import manifest, words
from babelmill.core.files import UserError, read_json, write_json
from babelmill.core.words import plural
from babelmill.tokens.shard_file import ShardFile
from babelmill.tokens.tokenizer_file import load_tokenizer
from babelmill.training.plan.plan import Plan
from babelmill.training.plan.schedule import PERIOD

BLOCK = 100_000  # tokens per block
BLOCKS = 10_000  # the largest number of blocks that are decoded per language, which takes minutes
SAMPLE = "It's a \"well-known\" test (2 of 3), e.g. $5.50 -- isn't it?"  # many tokenizers put spaces into it


def training_words(shards: Path, tokenizer: Path, bytes_per_word: float | None, kept: Path) -> tuple[float, bool]:
    """Return the number of words of a language's training text, and whether it is exact.

    Words are separated by whitespace, unless `bytes_per_word` says how many bytes count as a word. Words of shards
    that have no such number are exact if all of them are decoded by a tokenizer that gives text back as it was.

    Args:
        shards: the folder of the language's shards.
        tokenizer: the folder of the tokenizer.
        bytes_per_word: see `Language.bytes_per_word`.
        kept: a file of the run, which keeps what was decoded: decoding again at each start would take minutes.
    """
    figures = manifest.read(shards)["figures"]
    if bytes_per_word is not None:
        return figures["bytes"]["train"] / bytes_per_word, True
    if "words" in figures:
        return figures["words"]["train"], True
    known: dict[str, Any] = {}
    with contextlib.suppress(UserError, KeyError, TypeError):  # missing or damaged: it is written again
        known = dict(read_json(kept))
        return known[shards.name]["words"], known[shards.name]["exact"]
    shard, decoder = ShardFile.open(shards / "train.safetensors"), load_tokenizer(tokenizer / "tokenizer.json")
    found = words_in_shard(shard, decoder), len(shard.tokens) <= BLOCK * BLOCKS and gives_back(decoder, SAMPLE)
    write_json(kept, known | {shards.name: {"words": found[0], "exact": found[1]}})
    return found


def gives_back(tokenizer: Tokenizer, text: str) -> bool:
    """Return whether a tokenizer decodes the tokens of a text to the same text."""
    return tokenizer.decode(tokenizer.encode(text, add_special_tokens=False).ids) == text


def words_in_shard(shard: ShardFile, tokenizer: Tokenizer) -> float:
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


class WordRate(NamedTuple):
    """Holds the mean number of words per token of a run, and whether all of its words are counted exactly."""

    per_token: float
    exact: bool

    def say(self, tokens: int) -> str:
        """Return `12,345 words`, or `about 12,345 words`, for a number of tokens."""
        return f"{'' if self.exact else 'about '}{plural(round(self.per_token * tokens), 'word')}"

    def figures(self, tokens: int) -> dict[str, int]:
        """Return the number of words of so many tokens, for a manifest; nothing if it is not exact."""
        return {"words": round(self.per_token * tokens)} if self.exact else {}


def word_rate(plan: Plan, counts: Sequence[tuple[float, bool]]) -> WordRate:
    """Return the words per token of a run. `counts`: what `training_words` returns for each language."""
    each = [count / layout.tokens for (count, _), layout in zip(counts, plan.layouts, strict=True)]
    return WordRate(float(plan.mixture.shares @ np.array(each)) / PERIOD, all(exact for _, exact in counts))


def snapshot_steps(plan: Plan, per_token: float, points: list[float]) -> dict[int, list[float]]:
    """Return {step: points}: for each point, in million words, the first step after which the run has read that many.

    A point shortly after the end of the run belongs to the last step. Later ones are dropped.
    """
    found: dict[int, list[float]] = {}
    for point in kept_at_the_end(points, per_token * plan.tokens_until(plan.steps) / 1e6):
        step = plan.first_step_with(point * 1e6 / per_token) or plan.steps
        found.setdefault(step, []).append(point)
    return found
