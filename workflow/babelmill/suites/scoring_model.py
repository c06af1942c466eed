"""Load an exported model, and score the sentences of a suite's items with it."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

from babelmill.config.snapshots import FOLDER, about, names
from babelmill.core import manifest
from babelmill.core.bars import Bar
from babelmill.core.files import UserError, canonical_json, read_json
from babelmill.core.words import plural
from babelmill.release.folder.loading import aligned, load, runs_code, tokenizer_of
from babelmill.suites import predictions
from babelmill.suites.partial import Kept
from babelmill.suites.sentences import Item, Method, Scorer, encode, in_order, scores
from babelmill.training.kernels.compilation import scoring_device
from babelmill.training.networks.transformers_models import longest_row

LOADED = (".safetensors", ".bin", ".json", ".txt", ".model", ".py")  # ends of files that decide a model's scores


class ScoringModel:
    """An exported model that scores sentences by some methods. All its scores depend on `made_of`."""

    def __init__(self, folder: Path, made_of: dict[str, Any], extra: bool = False):
        self.folder, self._made_of, self._extra = folder, made_of, extra
        self.tokenizer: Any = tokenizer_of(folder)
        self.too_long = 0

    def method(self, name: str) -> Method:
        """Return the method with this name; raise a UserError if it hides tokens and the model has no mask token."""
        mask = self.tokenizer.mask_token_id
        mask = read_json(self.folder / "config.json").get("mask_token_id") if mask is None else mask
        if mask is None and name != "causal":
            raise UserError(f"{self.folder}: method {name} hides tokens, but the tokenizer has no mask token")
        return Method(name, mask)

    def has_unknown(self, text: str) -> bool:
        """Return whether a text has a token that the tokenizer does not know."""
        unknown = self.tokenizer.unk_token_id
        return unknown is not None and unknown in self.tokenizer.encode(text.strip(), add_special_tokens=False)

    def scorer(self, how: Method) -> tuple[Scorer, int | None]:
        """Load the model for a method; return a scorer of rows, and the most tokens that it reads (None: no limit)."""
        auto = AutoModelForCausalLM if how.causal else AutoModelForMaskedLM
        model: Any = load(auto, self.folder, None, self._extra, **aligned(self.folder))
        model.to(scoring_device()).config.use_cache = False
        longest = None if runs_code(self.folder) else longest_row(model)
        return Scorer(model, self.tokenizer, how.causal), longest

    def items(self, texts: Sequence[Sequence[str]], how: Method, prompts: Sequence[Sequence[int]] | None) -> list[Item]:
        """Return the tokens of each item's texts; `prompts`: see `score`."""
        flat = [text for item in texts for text in item]
        starts = None if prompts is None else [start for item in prompts for start in item]
        found = iter(encode(self.tokenizer, flat, how.causal, starts))
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
        """Return the scores of the texts of each item by a method, [items, most texts + 1]: see `sentences.scores`.

        Items that are not chosen or cannot be scored are nan. Sums of scores are kept in the folder `partial`.
        `prompts`: the number of characters of the prompt that each text begins with, if only what follows is scored.
        `mean`: return means over the scored tokens instead of sums.
        """
        how = self.method(name)
        items = self.items(texts, how, prompts)
        scorer, longest = self.scorer(how)
        able = in_order(items, longest, scorer.shares)
        self.too_long = len(items) - len(able)
        digest = hashlib.sha256(canonical_json([texts, prompts]).encode()).hexdigest()
        most = max(map(len, items))
        kept = Kept(partial / f"{name}.rows", self._made_of | {"method": name, "items": digest}, most + 1)
        found = np.full((len(items), most + 1), np.nan)
        found[kept.items] = kept.scores
        found[~chosen] = np.nan
        total, left = sum(chosen[i] for i in able), [i for i in able if chosen[i] and np.isnan(found[i, 0])]
        self._fill(
            found, left, scores(scorer, items, left, how), kept, total, f"{name}: {{:,}} of {plural(total, 'item')}"
        )
        if mean:
            for row, item in zip(found, items, strict=True):
                row[: len(item)] /= [len(each.scored) or 1 for each in item]
        return found

    def surprisals(
        self,
        name: str,
        words: Sequence[Sequence[str]],
        predicted: Callable[[int | None], list[predictions.Word]],
        partial: Path,
    ) -> np.ndarray:
        """Return the surprisal of each (context, word) by a method, [words] float64, in nats; nan if it has none.

        Surprisals are kept in the folder `partial`. `predicted` returns what the model predicts for each word; it takes
        the id of the mask (None for `causal`).
        """
        how = self.method(name)
        asked = predicted(None if how.causal else how.mask)
        scorer, longest = self.scorer(how)
        able = predictions.in_order(asked, longest)
        self.too_long = len(asked) - len(able)
        digest = hashlib.sha256(canonical_json([*map(list, words)]).encode()).hexdigest()
        kept = Kept(partial / f"{name}.rows", self._made_of | {"method": name, "words": digest}, 1)
        found = np.full((len(asked), 1), np.nan)
        found[kept.items] = kept.scores
        left = [i for i in able if np.isnan(found[i, 0])]
        values = (each[:, None] for each in predictions.surprisals(scorer, asked, left, how.causal))
        self._fill(found, left, values, kept, len(able), f"{name}: {{:,}} of {plural(len(able), 'word')}")
        return found[:, 0]

    def _fill(
        self, found: np.ndarray, left: list[int], values: Iterator[np.ndarray], kept: Kept, total: int, text: str
    ) -> None:
        """Put the values of the items `left`, in their order, into `found` as they are computed, and keep them."""
        count = total - len(left)
        bar = Bar(total, count)
        for rows in values:
            numbers, left = left[: len(rows)], left[len(rows) :]
            kept.add(numbers, rows)
            found[numbers] = rows
            count += len(rows)
            bar.show(count, text.format(count))
        bar.close()

    def snapshots(self) -> Iterator[tuple[str, dict[str, Any], "ScoringModel"]]:
        """Yield each snapshot of the model's run, the earliest first: its name, its place in the run, and the model."""
        for name in names(self.folder):
            folder = self.folder / FOLDER / name
            manifest.verify(folder, within=self.folder)
            yield (
                name,
                about(folder),
                ScoringModel(folder, self._made_of | {"files": loaded_files(folder)}, self._extra),
            )


def loaded_files(folder: Path) -> dict[str, str]:
    """Return {name: sha256} of the files of a model's folder that decide its scores, as its manifest says."""
    files = {name: entry["sha256"] for name, entry in manifest.read(folder)["files"].items()}
    return {name: files[name] for name in sorted(files) if is_loaded(name)}


def is_loaded(name: str) -> bool:
    """Return whether a file of a model's folder decides its scores: weights, configuration, tokenizer, code."""
    other_variant = name.startswith("model.") and name not in ("model.safetensors", "model.safetensors.index.json")
    return "/" not in name and name.endswith(LOADED) and not other_variant and name != manifest.NAME
