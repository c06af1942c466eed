"""Predict the codes of many texts at once with a converted model of labels."""

import contextlib
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from babelmill.core import escape, manifest
from babelmill.core.files import UserError, read_json, sha256
from babelmill.core.words import NOT_A_NUMBER
from babelmill.model.code_decoder import longest_text
from babelmill.release.folder import loading
from babelmill.tokens.clean_text import Cleaning

CPU_TOKENS, GPU_TOKENS = 4096, 65536  # tokens per batch, including padding; also the largest number of beams
BESIDE = (".md", ".png", ".svg", ".jsonl")  # files of a model that do not affect predictions
NO_TEXT, CUT, YES = "no text", "cut", "yes"  # values of the column `predicted`

Pair = tuple[str, str]  # context and text


class Wanted(NamedTuple):
    """Says what to predict.

    Attributes:
        top: how many of the most probable codes to return.
        method: "blocks" (the decoder spells the codes) or "linear" (the classifier).
        threshold: the probability from which on the classifier gives a text a second or later code; None stands for
            the folder's own threshold.
    """

    top: int = 5
    method: str = "blocks"
    threshold: float | None = None


class Predictor:
    """Predicts the codes of texts.

    Args:
        folder: `converted/{model}`, or any other exported folder.
        wanted: what to predict.
        device: the device that computes.

    Attributes:
        columns: the names of the values that `predict` returns for a text.
        cleaning: what to change in a text before it is predicted.
        longest: how many tokens the encoder can read.
        contexts: whether the training text had contexts; None if this is not known.

    Raises:
        UserError: the folder does not contain a model of labels, or a threshold is given that would have no effect.
    """

    def __init__(self, folder: Path, wanted: Wanted, device: torch.device):
        labels = labels_of(folder)
        check_threshold(folder, labels, wanted)
        self._blocks, self._wanted, self._device = labels["blocks"], wanted, device
        self._shown, self._names = min(wanted.top, len(labels["codes"])), labels.get("names", {})
        self._beams = self._shown if wanted.method == "blocks" and labels["decoder_layers"] else 1  # beams per text
        self.columns = columns_of(self._blocks, self._shown, bool(self._names))
        self.contexts: bool | None = labels.get("contexts")
        self.cleaning = Cleaning(**labels.get("cleaning", {}))
        import transformers  # takes seconds

        transformers.utils.logging.disable_progress_bar()
        trust = loading.runs_code(folder)  # otherwise transformers would ask on the terminal
        self._tokenizer = transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=trust)
        self._model: Any = loading.load(transformers.AutoModel, folder, None).to(device)
        self.longest = int(min(self._tokenizer.model_max_length, longest_text(self._model.config) or 1 << 20))

    def predict(self, pairs: Sequence[Pair], tick: Callable[[float], None]) -> list[tuple[str, ...]]:
        """Return the values of each text, in the order of the texts.

        `tick` is called with the share of the tokens that are done.
        """
        rows = self._tokens(pairs)
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]), reverse=True)
        budget = CPU_TOKENS if self._device.type == "cpu" else GPU_TOKENS
        found: list[tuple[str, ...]] = [()] * len(rows)
        done, read, tokens = 0, 0, max(1, sum(map(len, rows)))
        while done < len(order):
            length = min(len(rows[order[done]]), self.longest)
            batch = order[done : done + max(1, budget // max(1, length, self._beams))]
            ids = [rows[i] if len(rows[i]) <= self.longest else self._shortened(pairs[i]) for i in batch]
            for i, values in zip(batch, self._batch(ids), strict=True):
                found[i] = (CUT if len(rows[i]) > self.longest else YES, *values)
            done += len(batch)
            read += sum(len(rows[i]) for i in batch)
            tick(read / tokens)
        return found

    def _tokens(self, pairs: Sequence[Pair]) -> list[list[int]]:
        """Return all token ids of each text. A text without a context is encoded alone, as in training."""
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
        """Return the token ids of a text that is too long, without its end."""
        given = pair if pair[0] else pair[1:]
        return self._tokenizer(*given, truncation=True, max_length=self.longest)["input_ids"]

    def _batch(self, rows: list[list[int]]) -> list[list[str]]:
        """Return the values of one batch of texts, given their token ids."""
        padded = self._tokenizer.pad({"input_ids": rows}, padding=True, return_tensors="pt").to(self._device)
        with_padding = padded["input_ids"], padded["attention_mask"]
        found = self._model.predict(*with_padding, **self._wanted._asdict())
        if not all(math.isfinite(chance) for each in found for _, chance in (*each.codes, *each.likeliest)):
            raise UserError(f"the probability of a code is not a number: {NOT_A_NUMBER}")
        both = [(self._written(each.codes, self._blocks), self._written(each.likeliest, self._shown)) for each in found]
        return [[*codes, *likeliest] for codes, likeliest in both]

    def _written(self, codes: Sequence[tuple[str, float]], count: int) -> list[str]:
        """Return codes with names (if there are any) and probabilities as strings, padded with "" to `count` codes."""
        names = self._names
        found = [
            text
            for code, chance in codes[:count]
            for text in (code, *([names.get(code, "")] if names else []), f"{chance:.4g}")
        ]
        return found + [""] * ((3 if names else 2) * count - len(found))


def columns_of(blocks: int, shown: int, named: bool) -> list[str]:
    """Return the names of the columns that are predicted.

    Args:
        blocks: how many codes a text has at most.
        shown: how many of the most probable codes are written.
        named: whether the codes have names, which then get their own columns.
    """
    of_codes = ["code_{}", *(["name_{}"] if named else []), "probability_{}"]
    of_likeliest = ["likeliest_{}", *(["likeliest_name_{}"] if named else []), "likeliest_probability_{}"]
    codes = [name.format(i) for i in range(1, blocks + 1) for name in of_codes]
    likeliest = [name.format(i) for i in range(1, shown + 1) for name in of_likeliest]
    return ["predicted", *codes, *likeliest]


def check_threshold(folder: Path, labels: dict[str, Any], wanted: Wanted) -> None:
    """Raise a UserError if a threshold is given that would have no effect."""
    if wanted.threshold is None:
        return
    if labels["exclusive"]:
        raise UserError(f"{folder} gives each text one code, so predict.threshold has no effect: remove it")
    if wanted.method != "linear" and labels["decoder_layers"]:
        raise UserError(
            "predict.threshold works only with predict.method: linear, since the decoder itself says how many codes a"
            " text has"
        )


def labels_of(folder: Path) -> dict[str, Any]:
    """Return `labels` in the `config.json` of a model. Raise a UserError if it has none, or is not converted."""
    if not folder.is_dir():
        there = escape.some(path.as_posix() for path in sorted(Path("converted").glob("*")) if path.is_dir())
        raise UserError(
            f"{folder}: no such folder; {f'there are {there}' if there else 'name one such as converted/occ'}"
        )
    if not (folder / "config.json").is_file():
        raise UserError(f"{folder} is not a model, since it has no config.json; name a folder such as converted/occ")
    config = read_json(folder / "config.json")
    labels = config.get("labels")
    if not isinstance(labels, dict) or "codes" not in labels:
        raise UserError(f"{folder} is not a model of labels (train.objective: labels), so it cannot predict codes")
    if "auto_map" not in config:
        raise UserError(f"{folder} is a result of training, which is not converted; name converted/{folder.name}")
    return labels


def identity_of(folder: Path) -> dict[str, str]:
    """Return {file: sha256} of the files that decide a model's predictions. If there is a manifest, verify them."""
    if (folder / manifest.NAME).is_file():
        files = {name: entry["sha256"] for name, entry in manifest.verify(folder)["files"].items()}
    else:
        files = {path.name: sha256(path) for path in sorted(folder.iterdir()) if path.is_file()}
    return {name: digest for name, digest in files.items() if not name.endswith(BESIDE)}


@contextlib.contextmanager
def without_a_warning() -> Iterator[None]:
    """Silence the warning of transformers that a text is too long, since such texts are cut and counted."""
    logger = logging.getLogger("transformers.tokenization_utils_base")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)
