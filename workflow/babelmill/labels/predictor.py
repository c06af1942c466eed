"""Predict the codes of many texts at once with an exported label model, for its evaluation and for tables."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from babelmill.core import escape, manifest
from babelmill.core.files import UserError, read_json, sha256
from babelmill.core.words import NOT_A_NUMBER
from babelmill.model.code_decoder import longest_text
from babelmill.release.folder import loading

CPU_TOKENS, GPU_TOKENS = 4096, 65536  # tokens per batch, including padding; also the largest number of beams
BESIDE = (".md", ".png", ".svg", ".jsonl")  # files of a model that do not affect predictions

Pair = tuple[str, str]  # a text's context, "" if it has none, and the text


class Wanted(NamedTuple):
    """Says what to predict."""

    top: int = 5  # how many of the most probable codes to return
    method: str = "blocks"  # "blocks" (the decoder spells the codes) or "linear" (the classifier)
    # The probability from which on the classifier gives a text a second or later code; None stands for the folder's own
    # threshold.
    threshold: float | None = None


class Answers(NamedTuple):
    """The predictions for texts, in the order of the texts."""

    cut: np.ndarray  # [texts] bool, whether the end of the text was not read
    # [texts, n] int64, numbers of codes: the predicted ones, and after them the most probable ones; -1 for none
    codes: np.ndarray
    chances: np.ndarray  # [texts, n] float64, the probability of each


class Predictor:
    """Predicts the codes of texts with an exported folder, such as `converted/{model}`, and a variant of its weights.

    The variant is None for the folder's default. A UserError says that the folder does not contain a label model.
    """

    def __init__(self, folder: Path, device: torch.device, variant: str | None = None):
        self.labels, self.device = labels_of(folder), device  # labels: `labels` in the folder's config.json
        import transformers  # takes seconds

        transformers.utils.logging.disable_progress_bar()
        self._tokenizer = loading.tokenizer_of(folder)
        self._model: Any = loading.load(transformers.AutoModel, folder, variant).to(device)
        # how many tokens the encoder can read
        self.longest = int(min(self._tokenizer.model_max_length, longest_text(self._model.config) or 1 << 20))
        self._index = {code: number for number, code in enumerate(self.labels["codes"])}

    def predict(
        self, pairs: Sequence[Pair], wanted: Wanted, tick: Callable[[int], None] = lambda texts: None
    ) -> Answers:
        """Return the predictions for texts. Texts of similar lengths are predicted together.

        `tick` is called with the number of texts of each batch. A UserError says that a probability is not a number.
        """
        tokens = self._tokens(pairs)
        lengths = np.array([len(ids) for ids in tokens])
        most = CPU_TOKENS if self.device.type == "cpu" else GPU_TOKENS
        spelt = wanted.method == "blocks" and self.labels["decoder_layers"]
        blocks, shown = self.labels["blocks"], min(wanted.top, len(self._index))
        codes = np.full((len(pairs), blocks + shown), -1)
        chances = np.zeros(codes.shape)
        for batch in batches(lengths.tolist(), self.longest, most, shown if spelt else 1):
            rows = [tokens[i] if lengths[i] <= self.longest else self._shortened(pairs[i]) for i in batch]
            padded = self._tokenizer.pad({"input_ids": rows}, padding=True, return_tensors="pt").to(self.device)
            answers = self._model.predict(padded["input_ids"], padded["attention_mask"], **wanted._asdict())
            for i, found in zip(batch, answers, strict=True):
                for first, given in ((0, found.codes[:blocks]), (blocks, found.likeliest[:shown])):
                    for place, (code, chance) in enumerate(given, first):
                        codes[i, place], chances[i, place] = self._index[code], chance
            tick(len(batch))
        if not np.isfinite(chances).all():
            raise UserError(f"{wanted.method}: the probability of a code is not a number: {NOT_A_NUMBER}")
        return Answers(lengths > self.longest, codes, chances)

    def _tokens(self, pairs: Sequence[Pair]) -> list[list[int]]:
        """Return all token ids of each text. A text without a context is encoded alone, as in training."""
        found: list[list[int]] = [[]] * len(pairs)
        for with_context in (True, False):
            places = [i for i, (context, _) in enumerate(pairs) if bool(context) == with_context]
            given = [[pairs[i][0] for i in places]] if with_context else []
            # Not verbose: texts that are too long are cut and counted, so they need no warning.
            encoded = self._tokenizer(*given, [pairs[i][1] for i in places], verbose=False) if places else {}
            for i, ids in zip(places, encoded.get("input_ids", []), strict=True):
                found[i] = ids
        return found

    def _shortened(self, pair: Pair) -> list[int]:
        """Return the token ids of a text that is too long, without its end."""
        given = pair if pair[0] else pair[1:]
        return self._tokenizer(*given, truncation=True, max_length=self.longest)["input_ids"]


def batches(lengths: Sequence[int], longest: int, positions: int, beams: int = 1) -> Iterator[list[int]]:
    """Yield the numbers of texts in batches of similar lengths, from the number of tokens of each.

    The longest come first, so that memory runs out at once or never. `longest`: how many tokens the encoder reads.
    `positions`: how many tokens a batch has at most, including padding; also the largest number of beams.
    """
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    done = 0
    while done < len(order):
        length = min(lengths[order[done]], longest)
        size = max(1, positions // max(1, length, beams))
        yield order[done : done + size]
        done += size


def labels_of(folder: Path) -> dict[str, Any]:
    """Return `labels` in the `config.json` of a model. Raise a UserError if it has none, or is not converted."""
    if not (folder / "config.json").is_file():
        there = escape.some(path.as_posix() for path in sorted(Path("converted").glob("*")) if path.is_dir())
        raise UserError(
            f"{folder}: no model is here (config.json); {f'there are {there}' if there else 'name one, converted/occ'}"
        )
    config = read_json(folder / "config.json")
    labels = config.get("labels")
    if not isinstance(labels, dict) or "codes" not in labels or "auto_map" not in config:
        raise UserError(
            f"{folder} is not a converted label model (train.objective: labels); name a folder such as converted/occ"
        )
    return labels


def identity_of(folder: Path) -> dict[str, str]:
    """Return {file: sha256} of the files that decide a model's predictions. If there is a manifest, verify them."""
    if (folder / manifest.NAME).is_file():
        files = {name: entry["sha256"] for name, entry in manifest.verify(folder)["files"].items()}
    else:
        files = {path.name: sha256(path) for path in sorted(folder.iterdir()) if path.is_file()}
    return {name: digest for name, digest in files.items() if not name.endswith(BESIDE)}
