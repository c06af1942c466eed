"""Load an exported model, and score the sentences of a suite's items with it."""

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

    def items(
        self, texts: Sequence[Sequence[str]], how: Method, prompts: Sequence[Sequence[int]] | None
    ) -> list[list[Text]]:
        """Return the tokens of each item's texts; `prompts`: see `score`."""
        flat = [text for item in texts for text in item]
        starts = None if prompts is None else [start for item in prompts for start in item]
        found = iter(rows.encode(self.tokenizer, flat, how.causal, starts))
        return [[next(found) for _ in item] for item in texts]

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
        items, most = self.items(texts, how, prompts), max(map(len, texts))
        model, longest = self.load(how)
        sizes = [max(len(each.ids) for each in item) for item in items]
        able = [i for i, item in enumerate(items) if sizes[i] <= longest and all(each.scored for each in item)]
        self.too_long = len(items) - len(able)
        kept = Kept(partial / name, [self._made_of, texts, prompts])
        found = self._fill(
            model,
            kept,
            sorted((i for i in able if chosen[i]), key=lambda i: sizes[i]),
            lambda i: [how.rows(each, i) for each in items[i]],
            lambda parts: [*(float(part.sum()) for part in parts), *[np.nan] * (most - len(parts))],
            (len(items), most),
            f"{name}: {{:,}} of {plural(int(sum(chosen[able])), 'item')}",
        )
        found[~chosen] = np.nan
        if mean:
            for row, item in zip(found, items, strict=True):
                row[: len(item)] /= [len(each.scored) or 1 for each in item]
        return found

    def surprisals(
        self,
        name: str,
        words: Sequence[Sequence[str]],
        predicted: Callable[[int | None], list[Word]],
        partial: Path,
    ) -> np.ndarray:
        """Return the surprisal of each (context, word) by a method, [words] float64, in nats; nan if it has none.

        It is minus the sum of ln p of the word's pieces: 0 for a word without any. Surprisals are kept in the folder
        `partial`. `predicted` returns what the model predicts for each word; it takes the id of the mask (None for
        `causal`).
        """
        how = self.method(name)
        asked = predicted(how.mask)
        model, longest = self.load(how)
        able = [i for i, word in enumerate(asked) if all(0 < len(each.ids) <= longest for each in word)]
        self.too_long = len(asked) - len(able)
        kept = Kept(partial / name, [self._made_of, *map(list, words)])
        return self._fill(
            model,
            kept,
            sorted(able, key=lambda i: [each.ids for each in asked[i]]),  # words with a beginning in common
            lambda i: [asked[i]],
            lambda parts: [-float(parts[0].sum())],
            (len(asked), 1),
            f"{name}: {{:,}} of {plural(len(able), 'word')}",
        )[:, 0]

    def _fill(
        self,
        model: Model,
        kept: Kept,
        order: list[int],
        rows_of: Callable[[int], list[list[Row]]],
        scores_of: Callable[[list[np.ndarray]], list[float]],
        shape: tuple[int, int],
        text: str,
    ) -> np.ndarray:
        """Return the scores of items, nan without any: those that are kept, and the others in this order."""
        found = np.full(shape, np.nan)
        for each in kept.found:
            found[each[:, 0].astype(int)] = each[:, 1:]
        left = [i for i in order if np.isnan(found[i, 0])]
        count = len(order) - len(left)
        bar = Bar(len(order), count)
        for numbers, parts in model.groups(left, rows_of):
            found[numbers] = [scores_of(each) for each in parts]
            kept.add(numbers, found[numbers])
            count += len(numbers)
            bar.show(count, text.format(count))
        bar.close()
        return found

    def snapshots(self) -> Iterator[tuple[str, dict[str, Any], "ScoringModel"]]:
        """Yield each snapshot of the model's run, the earliest first: its name, its place in the run, and the model."""
        for name in names(self.folder):
            folder = self.folder / FOLDER / name
            manifest.verify(folder, within=self.folder)
            yield name, about(folder), ScoringModel(folder)
