"""Count the words that a run has read, and say which snapshots of its weights are due: people count in words.

The stage `shards` counts words while it reads the text. Shards that were made before it did are decoded again.
"""

import contextlib
import logging
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tokenizers import Tokenizer

from babelmill.config.snapshots import kept_at_the_end, missing_points, name_of, points, say_missing
from babelmill.config.stage_settings import RunSettings
from babelmill.core import escape, manifest, words
from babelmill.core.files import UserError, read_json, write_json
from babelmill.core.words import plural
from babelmill.runtime.run_folder import Done, RunFolder
from babelmill.tokens.shard_file import ShardFile
from babelmill.tokens.tokenizer_file import load_tokenizer
from babelmill.training.plan.plan import Plan

log = logging.getLogger(__name__)

BLOCK = 100_000  # tokens per block
BLOCKS = 10_000  # the largest number of blocks that are decoded per language, which takes minutes
SAMPLE = "It's a \"well-known\" test (2 of 3), e.g. $5.50 -- isn't it?"  # many tokenizers put spaces into it


def training_words(shards: Path, tokenizer: Path, bytes_per_word: float | None, kept: Path) -> tuple[float, bool]:
    """Return the number of words of a language's training text, and whether it is exact.

    Words are separated by whitespace, unless `bytes_per_word` says how many bytes count as a word. Words of shards that
    have no such number are exact if all of them are decoded by a tokenizer that gives text back as it was. What was
    decoded stands in the file `kept` of the run: decoding again at each start would take minutes.
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
    log.info("counting the words of %s", shards)
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
    return WordRate(plan.words_per_token([count for count, _ in counts]), all(exact for _, exact in counts))


def snapshot_steps(plan: Plan, per_token: float, points: list[float]) -> dict[int, list[float]]:
    """Return {step: points}: for each point, in million words, the first step after which the run has read that many.

    A point shortly after the end of the run belongs to the last step. Later ones are dropped.
    """
    found: dict[int, list[float]] = {}
    for point in kept_at_the_end(points, per_token * plan.tokens_until(plan.steps) / 1e6):
        step = plan.first_step_with(point * 1e6 / per_token) or plan.steps
        found.setdefault(step, []).append(point)
    return found


class DueSnapshots:
    """Says which snapshots of its weights a run keeps (`run.snapshots`)."""

    def __init__(self, looked_after: RunSettings, plan: Plan, rate: WordRate, folder: RunFolder):
        self._looked_after, self._plan, self._rate, self._folder = looked_after, plan, rate, folder
        self._asked = points(looked_after.run.snapshots)
        self._possible = plan.train.objective != "labels"
        self._read = rate.per_token * plan.tokens_until(plan.steps) / 1e6  # million words of the whole run

    def due(self, done: Done) -> dict[int, list[float]]:
        """Return {step: points} of the snapshots to be kept. Log those whose steps this run has passed before."""
        if not self._asked:
            return {}
        if not self._possible:
            log.warning("run.snapshots: no snapshot is kept, since a label model does not read running text")
            return {}
        last, kept = self._plan.steps, self._folder.snapshots.kept()
        steps = snapshot_steps(self._plan, self._rate.per_token, self._asked)
        late = {step: [point for point in found if name_of(point) not in kept] for step, found in steps.items()}
        # Weights that are here just now can still be kept, also those of a finished run.
        ahead = {step: late[step] if step == done.steps else steps[step] for step in steps if step >= done.steps}
        text = f"{plural(sum(map(len, ahead.values())), 'snapshot')} will be kept in {self._read:,.4g} million words"
        if lost := [name_of(point) for step in late if step < done.steps for point in late[step]]:
            text += f"; not kept, since the run is already further: {escape.some(lost)}"
        if after := [name_of(point) for point in steps.get(last, []) if point > self._read]:
            text += f"; {after[0]} holds the weights of the run's end"
        if later := self._asked[sum(map(len, steps.values())) :]:
            text += f"; the run ends before {escape.some(map(name_of, later), 1)}"
        log.info("run.snapshots: %s", text)
        self._too_late()
        return ahead

    def missing(self) -> list[str]:
        """Return the names of the snapshots that the finished run has not kept, and warn of those it ended before."""
        if not self._possible:
            return []
        reached, kept = kept_at_the_end(self._asked, self._read), self._folder.snapshots.kept()
        return [*(name for name in map(name_of, reached) if name not in kept), *self._too_late()]

    def _too_late(self) -> list[str]:
        """Return the names of the snapshots that the run ends too early for, and warn about them."""
        plan = self._plan
        missing = missing_points(self._looked_after.run.snapshots, self._read)
        ends = plan.epochs(plan.steps), plan.train.max_steps, self._looked_after.set_aside, plan.train.words
        if text := say_missing(missing, self._read, *ends):
            log.warning("run.snapshots: %s", text)
        return [name_of(point) for point in missing]
