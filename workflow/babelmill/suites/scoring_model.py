"""Load an exported model, and score the sentences of a suite's items with it."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

from babelmill.config.snapshots import FOLDER, about, names
from babelmill.core import manifest
from babelmill.core.bars import Bar
from babelmill.core.files import UserError, read_json
from babelmill.core.words import plural
from babelmill.evaluation import rows
from babelmill.evaluation.kept import Kept
from babelmill.evaluation.likelihood import Model
from babelmill.evaluation.rows import Row, Word
from babelmill.release.folder.loading import aligned, load, runs_code, tokenizer_of
from babelmill.training.kernels.compilation import scoring_device
from babelmill.training.networks.transformers_models import longest_row


class ScoringModel:
    """An exported model, or one from elsewhere, that scores sentences by some methods."""

    def __init__(self, folder: Path, made_of: Any = None):
        """Load the tokenizer. `made_of`: what its files are, as kept scores name it; None: as its manifest says."""
        self.folder, self._made_of = folder, manifest.digest(folder) if made_of is None else made_of
        self.tokenizer: Any = tokenizer_of(folder)
        self.too_long = 0

    def mask(self, method: str) -> int | None:
        """Return the id of the token that hides others; None for `causal`; raise a UserError if there is none."""
        if method == "causal":
            return None
        mask = self.tokenizer.mask_token_id
        mask = read_json(self.folder / "config.json").get("mask_token_id") if mask is None else mask
        if mask is None:
            raise UserError(f"{self.folder}: method {method} hides tokens, but the tokenizer has no mask token")
        return mask

    def has_unknown(self, text: str) -> bool:
        """Return whether a text has a token that the tokenizer does not know."""
        unknown = self.tokenizer.unk_token_id
        return unknown is not None and unknown in self.tokenizer.encode(text.strip(), add_special_tokens=False)

    def load(self, method: str, variant: str | None = None, extra: bool = True) -> tuple[Model, float]:
        """Load the model for a method; return it, and the most tokens that it reads; see `loading.load`."""
        auto = AutoModelForCausalLM if method == "causal" else AutoModelForMaskedLM
        model: Any = load(auto, self.folder, variant, extra, **aligned(self.folder))
        model.to(scoring_device()).config.use_cache = False
        longest = None if runs_code(self.folder) else longest_row(model)
        return Model(model, self.tokenizer, method == "causal"), longest or np.inf

    def score(
        self,
        method: str,
        texts: Sequence[Sequence[str]],
        chosen: np.ndarray,
        partial: Path,
        prompts: Sequence[Sequence[int]] | None = None,
        mean: bool = False,
    ) -> np.ndarray:
        """Return the scores of the texts of each item by a method, [items, most texts].

        What is not there, not chosen or cannot be scored is nan. Sums of scores are kept in the folder `partial`.
        `prompts`: the number of characters of the prompt that each text begins with, if only what follows is scored.
        `mean`: return means over the scored tokens instead of sums.
        """
        mask = self.mask(method)
        starts = None if prompts is None else [start for item in prompts for start in item]
        flat = iter(rows.encode(self.tokenizer, [text for item in texts for text in item], method == "causal", starts))
        items = [[next(flat) for _ in item] for item in texts]
        longest = [max(len(each.ids) for each in item) if all(each.scored for each in item) else 0 for item in items]
        found = self._sums(
            method,
            lambda i: [rows.of_method(method, each, mask, i) for each in items[i]],  # an item hides the same places
            longest,
            sorted(np.flatnonzero(chosen).tolist(), key=longest.__getitem__),
            Kept(partial / method, [self._made_of, texts, prompts]),
            max(map(len, texts)),
            "item",
        )
        found[~chosen] = np.nan
        if mean:
            for row, item in zip(found, items, strict=True):
                row[: len(item)] /= [len(each.scored) or 1 for each in item]
        return found

    def surprisals(
        self,
        method: str,
        words: Sequence[tuple[str, str]],
        predictions: Callable[[Any, Sequence[tuple[str, str]], int | None], list[Word]],
        partial: Path,
    ) -> np.ndarray:
        """Return the surprisal of each (context, word) by a method, [words] float64, in nats; nan if it has none.

        It is minus the sum of ln p of the word's pieces: 0 for a word without any. Sums are kept in the folder
        `partial`. `predictions` returns what the model predicts for each word, of the tokenizer, the words, and the id
        of the mask (None for `causal`).
        """
        asked = predictions(self.tokenizer, words, self.mask(method))
        sizes = [[len(row.ids) for row in word] for word in asked]
        longest = [max(each, default=1) if all(each) else 0 for each in sizes]
        order = sorted(range(len(asked)), key=lambda i: [row.ids for row in asked[i]])  # a beginning in common
        kept = Kept(partial / method, [self._made_of, *map(list, words)])
        return -self._sums(method, lambda i: [asked[i]], longest, order, kept, 1, "word")[:, 0]

    def _sums(
        self,
        method: str,
        rows_of: Callable[[int], list[list[Row]]],
        longest: Sequence[int],
        order: Sequence[int],
        kept: Kept,
        parts: int,
        noun: str,
    ) -> np.ndarray:
        """Return the sums of ln p of the rows of each part of an item, [items, parts]; nan if it is not scored.

        `longest`: the tokens of the longest row of each item; 0 for an item that cannot be scored. Those in `order` are
        scored, if they are not kept.
        """
        model, limit = self.load(method)
        self.too_long = sum(not 0 < size <= limit for size in longest)
        found = np.full((len(longest), parts), np.nan)
        for each in kept.found:
            found[each[:, 0].astype(int)] = each[:, 1:]
        able = [i for i in order if 0 < longest[i] <= limit]
        left = [i for i in able if np.isnan(found[i, 0])]
        count = len(able) - len(left)
        with contextlib.closing(Bar(len(able), count)) as bar:
            for numbers, sums in model.groups(left, rows_of):
                for number, each in zip(numbers, sums, strict=True):
                    found[number, : len(each)] = each
                kept.add(numbers, found[numbers])
                count += len(numbers)
                bar.show(count, f"{method}: {count:,} of {plural(len(able), noun)}")
        return found

    def snapshots(self) -> Iterator[tuple[str, dict[str, Any], "ScoringModel"]]:
        """Yield each snapshot of the model's run, the earliest first: its name, its place in the run, and the model."""
        for name in names(self.folder):
            folder = self.folder / FOLDER / name
            manifest.verify(folder, within=self.folder)
            yield name, about(folder), ScoringModel(folder)
