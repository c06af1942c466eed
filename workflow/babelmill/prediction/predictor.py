"""A converted model of labels, asked for the codes of many texts at once."""

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from babelmill.core import manifest
from babelmill.core.files import UserError, read_json, sha256
from babelmill.model.code_decoder import longest_text
from babelmill.release import loading

CPU_TOKENS, GPU_TOKENS = 4096, 65536  # of a batch, padding included
BESIDE = (".md", ".png", ".svg", ".jsonl")  # files of a model that change no prediction
NO_TEXT, CUT, YES = "no text", "cut", "yes"  # values of the column `predicted`

Pair = tuple[str, str]  # context and text


class Predictor:
    """Predicts the codes of texts.

    Args:
        folder: `converted/{model}` or any other that the export made.
        top: how many of the likeliest codes to give.
        method: "blocks", as the decoder spells them, or "linear", by the classifier.
        device: that computes.

    Attributes:
        columns: names of the values that `predict` gives for a text.
        longest: tokens that the encoder reads.

    Raises:
        UserError: the folder is not of a model of labels.
    """

    def __init__(self, folder: Path, top: int, method: str, device: torch.device):
        labels = labels_of(folder)
        self._blocks, self._top, self._method, self._device = labels["blocks"], top, method, device
        self._shown = min(top, len(labels["codes"]))
        self.columns = columns_of(self._blocks, self._shown)
        import transformers  # takes seconds

        transformers.utils.logging.disable_progress_bar()
        self._tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        self._model: Any = loading.load(transformers.AutoModel, folder, None).to(device)
        self.longest = int(min(self._tokenizer.model_max_length, longest_text(self._model.config) or 1 << 20))

    def predict(self, pairs: Sequence[Pair], tick: Callable[[int], None]) -> list[tuple[str, ...]]:
        """Return the values of each text, in its order; `tick` hears how many are done."""
        rows = self._tokens(pairs)
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]), reverse=True)
        budget = CPU_TOKENS if self._device.type == "cpu" else GPU_TOKENS
        found: list[tuple[str, ...]] = [()] * len(rows)
        done = 0
        while done < len(order):
            batch = order[done : done + max(1, budget // max(1, min(len(rows[order[done]]), self.longest)))]
            ids = [rows[i] if len(rows[i]) <= self.longest else self._shortened(pairs[i]) for i in batch]
            for i, values in zip(batch, self._batch(ids), strict=True):
                found[i] = (CUT if len(rows[i]) > self.longest else YES, *values)
            done += len(batch)
            tick(done)
        return found

    def _tokens(self, pairs: Sequence[Pair]) -> list[list[int]]:
        """Return the ids of each text, uncut. A text without a context stands alone, as in training."""
        found: list[list[int]] = [[]] * len(pairs)
        for with_context in (True, False):
            places = [i for i, (context, _) in enumerate(pairs) if bool(context) == with_context]
            texts = [[pairs[i][1] for i in places]]
            if places:
                given = [[pairs[i][0] for i in places], *texts] if with_context else texts
                with without_a_warning():
                    for i, ids in zip(places, self._tokenizer(*given, verbose=False)["input_ids"], strict=True):
                        found[i] = ids
        return found

    def _shortened(self, pair: Pair) -> list[int]:
        """Return the ids of a text that loses its end."""
        given = pair if pair[0] else pair[1:]
        return self._tokenizer(*given, truncation=True, max_length=self.longest)["input_ids"]

    def _batch(self, rows: list[list[int]]) -> list[list[str]]:
        """Return the values of a few texts, given their ids."""
        padded = self._tokenizer.pad({"input_ids": rows}, padding=True, return_tensors="pt").to(self._device)
        found = self._model.predict(padded["input_ids"], padded["attention_mask"], top=self._top, method=self._method)
        return [
            [*written(each.codes, self._blocks), *written(each.likeliest[: self._shown], self._shown)] for each in found
        ]


def written(codes: Sequence[tuple[str, float]], count: int) -> list[str]:
    """Return codes with their probabilities as texts, and empty ones up to `count` codes."""
    found = [text for code, chance in codes[:count] for text in (code, f"{chance:.4g}")]
    return found + [""] * (2 * count - len(found))


def columns_of(blocks: int, shown: int) -> list[str]:
    """Return the names of what is predicted: the codes that a text has, and the likeliest ones."""
    codes = [name for i in range(1, blocks + 1) for name in (f"code_{i}", f"probability_{i}")]
    likeliest = [name for i in range(1, shown + 1) for name in (f"likeliest_{i}", f"likeliest_probability_{i}")]
    return ["predicted", *codes, *likeliest]


def labels_of(folder: Path) -> dict[str, Any]:
    """Return what `config.json` of a model says of its labels; a UserError if it has none."""
    if not (folder / "config.json").is_file():
        raise UserError(f"{folder}: no model: there is no config.json; name a folder such as converted/occ")
    labels = read_json(folder / "config.json").get("labels")
    if not isinstance(labels, dict) or "codes" not in labels:
        raise UserError(f"{folder}: not a model of labels (train.objective: labels): there are no codes to predict")
    return labels


def identity_of(folder: Path) -> dict[str, str]:
    """Return {file: sha256} of what decides a model's predictions, verified where the folder has a manifest."""
    if (folder / manifest.NAME).is_file():
        files = {name: entry["sha256"] for name, entry in manifest.verify(folder)["files"].items()}
    else:
        files = {path.name: sha256(path) for path in sorted(folder.iterdir()) if path.is_file()}
    return {name: digest for name, digest in files.items() if not name.endswith(BESIDE)}


@contextlib.contextmanager
def without_a_warning() -> Iterator[None]:
    """Let transformers not say that a text is too long: it is cut and counted."""
    logger = logging.getLogger("transformers.tokenization_utils_base")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)
