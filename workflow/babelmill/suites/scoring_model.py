"""Load an exported model, and score the sentences of a suite's items with it."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
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
from babelmill.evaluation.rows import Row, Text, Word
from babelmill.release.folder.loading import aligned, load, runs_code, tokenizer_of
from babelmill.training.kernels.compilation import scoring_device
from babelmill.training.networks.transformers_models import longest_row

SAMPLES = 128  # samples per sentence for `bound`


@dataclass(frozen=True)
class Method:
    """A way to score sentences: "causal", "masked" or "bound"; `mask` is the id of the token that hides others."""

    name: str
    mask: int | None = None  # None for `causal`

    @property
    def causal(self) -> bool:
        return self.name == "causal"

    def rows(self, text: Text, item: int = 0) -> list[Row]:
        """Return the rows of a sentence; those of an item hide the same places, if they have equally many tokens."""
        return rows.of_method(self.name, text, self.mask, SAMPLES, item)


class ScoringModel:
    """An exported model, or one from elsewhere, that scores sentences by some methods."""

    def __init__(self, folder: Path, made_of: Any = None):
        """Load the tokenizer. `made_of`: what its files are, as kept scores name it; None: as its manifest says."""
        self.folder, self._made_of = folder, manifest.digest(folder) if made_of is None else made_of
        self.tokenizer: Any = tokenizer_of(folder)
        self.too_long = 0

    def method(self, name: str) -> Method:
        """Return the method with this name; raise a UserError if it hides tokens and the model has no mask token."""
        if name == "causal":
            return Method(name)
        mask = self.tokenizer.mask_token_id
        mask = read_json(self.folder / "config.json").get("mask_token_id") if mask is None else mask
        if mask is None:
            raise UserError(f"{self.folder}: method {name} hides tokens, but the tokenizer has no mask token")
        return Method(name, mask)

    def has_unknown(self, text: str) -> bool:
        """Return whether a text has a token that the tokenizer does not know."""
        unknown = self.tokenizer.unk_token_id
        return unknown is not None and unknown in self.tokenizer.encode(text.strip(), add_special_tokens=False)

    def load(self, how: Method) -> tuple[Model, float]:
        """Load the model for a method; return it, and the most tokens that it reads."""
        auto = AutoModelForCausalLM if how.causal else AutoModelForMaskedLM
        model: Any = load(auto, self.folder, None, extra=True, **aligned(self.folder))
        model.to(scoring_device()).config.use_cache = False
        longest = None if runs_code(self.folder) else longest_row(model)
        return Model(model, self.tokenizer, how.causal), longest or np.inf

    def score(
        self,
        name: str,
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
        how = self.method(name)
        starts = None if prompts is None else [start for item in prompts for start in item]
        flat = iter(rows.encode(self.tokenizer, [text for item in texts for text in item], how.causal, starts))
        items = [[next(flat) for _ in item] for item in texts]
        longest = [max(len(each.ids) for each in item) if all(each.scored for each in item) else 0 for item in items]
        found = self._sums(
            how,
            lambda i: [how.rows(each, i) for each in items[i]],
            longest,
            sorted(np.flatnonzero(chosen).tolist(), key=longest.__getitem__),
            Kept(partial / name, [self._made_of, texts, prompts]),
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
        name: str,
        words: Sequence[tuple[str, str]],
        predictions: Callable[[Any, Sequence[tuple[str, str]], int | None], list[Word]],
        partial: Path,
    ) -> np.ndarray:
        """Return the surprisal of each (context, word) by a method, [words] float64, in nats; nan if it has none.

        It is minus the sum of ln p of the word's pieces: 0 for a word without any. Sums are kept in the folder
        `partial`. `predictions` returns what the model predicts for each word, of the tokenizer, the words, and the id
        of the mask (None for `causal`).
        """
        how = self.method(name)
        asked = predictions(self.tokenizer, words, how.mask)
        sizes = [[len(row.ids) for row in word] for word in asked]
        longest = [max(each, default=1) if all(each) else 0 for each in sizes]
        order = sorted(range(len(asked)), key=lambda i: [row.ids for row in asked[i]])  # a beginning in common
        kept = Kept(partial / name, [self._made_of, *map(list, words)])
        return -self._sums(how, lambda i: [asked[i]], longest, order, kept, 1, "word")[:, 0]

    def _sums(
        self,
        how: Method,
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
        model, limit = self.load(how)
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
                    found[number, : len(each)] = [part.sum() for part in each]
                kept.add(numbers, found[numbers])
                count += len(numbers)
                bar.show(count, f"{how.name}: {count:,} of {plural(len(able), noun)}")
        return found

    def snapshots(self) -> Iterator[tuple[str, dict[str, Any], "ScoringModel"]]:
        """Yield each snapshot of the model's run, the earliest first: its name, its place in the run, and the model."""
        for name in names(self.folder):
            folder = self.folder / FOLDER / name
            manifest.verify(folder, within=self.folder)
            yield name, about(folder), ScoringModel(folder)
