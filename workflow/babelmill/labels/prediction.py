"""Predict the codes of texts with an exported label model, for its evaluation and for tables.

Of a table, each different text is predicted once, in parts that are kept, so that a killed run continues. The parts are
not in an output of a rule, since Snakemake deletes the outputs of a job that failed. The table is in memory.
"""

import contextlib
import itertools
import logging
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from babelmill.config import schema
from babelmill.core import manifest
from babelmill.core.bars import Bar
from babelmill.core.escape import csv_cell, write_rows
from babelmill.core.files import UserError, atomic_write, read_json, sha256
from babelmill.core.formats import DELIMITERS
from babelmill.core.words import NOT_A_NUMBER
from babelmill.evaluation.kept import Kept
from babelmill.evaluation.likelihood import batches
from babelmill.model.code_decoder import longest_text
from babelmill.release.folder import loading
from babelmill.runtime.run_lock import locked
from babelmill.stages import PredictStage
from babelmill.tables.rows import Asked, whole_table
from babelmill.tables.text import Form
from babelmill.tokens.label_text import Cleaning, context_text
from babelmill.training.kernels.compilation import scoring_device

CPU_TOKENS, GPU_TOKENS = 4096, 65536  # tokens per batch, including padding; also the largest number of beams
BESIDE = (".md", ".png", ".svg", ".jsonl")  # files of a model that do not affect predictions

Pair = tuple[str, str]  # a text's context, "" if it has none, and the text
NUMBER = "row"  # the column with the numbers of rows
NO_TEXT, CUT, YES = "no text", "cut", "yes"  # values of the column `predicted`

log = logging.getLogger("babelmill")


# Texts.


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
        self, pairs: Sequence[Pair], asked: schema.Predict, bar: Bar | None = None, done: int = 0
    ) -> np.ndarray:
        """Return the predictions for texts, [texts, 1 + 2 n] float64. Texts of similar lengths are predicted together.

        These are: 1 if the end of the text was not read, else 0; the numbers of n codes, which are the predicted ones
        and after them the most probable ones, -1 for none; and the probability of each. `asked` says by which method,
        and how many of the most probable codes. `bar` shows how far all texts are, of which so many were `done` before;
        by default, these texts alone. A UserError says that a probability is not a number.
        """
        tokens, bar = self._tokens(pairs), bar or Bar(len(pairs))
        lengths = np.array([len(ids) for ids in tokens])
        most = CPU_TOKENS if self.device.type == "cpu" else GPU_TOKENS
        blocks, shown = self.labels["blocks"], min(asked.top, len(self._index))
        how = {"top": asked.top, "method": asked.method, "threshold": asked.threshold}
        beams = shown if asked.method == "blocks" and self.labels["decoder_layers"] else 1
        sizes = np.clip(lengths, beams, max(beams, self.longest))  # positions of each text, which may be beams
        order = batches(np.argsort(sizes, kind="stable").tolist(), lambda i: int(sizes[i]), most)
        cut: dict[str, Any] = {"truncation": True, "max_length": self.longest}
        codes = np.full((len(pairs), blocks + shown), -1)
        chances = np.zeros(codes.shape)
        for batch in reversed([*order]):  # the longest first, so that memory runs out at once or never
            rows = [tokens[i] if lengths[i] <= self.longest else self._tokens([pairs[i]], **cut)[0] for i in batch]
            padded = self._tokenizer.pad({"input_ids": rows}, padding=True, return_tensors="pt").to(self.device)
            answers = self._model.predict(padded["input_ids"], padded["attention_mask"], **how)
            for i, found in zip(batch, answers, strict=True):
                for first, given in ((0, found.codes[:blocks]), (blocks, found.likeliest[:shown])):
                    for place, (code, chance) in enumerate(given, first):
                        codes[i, place], chances[i, place] = self._index[code], chance
            done += len(batch)
            bar.show(done, f"{done:,} texts")
        if not np.isfinite(chances).all():
            raise UserError(f"{asked.method}: the probability of a code is not a number: {NOT_A_NUMBER}")
        return np.column_stack([lengths > self.longest, codes, chances])

    def _tokens(self, pairs: Sequence[Pair], **how: Any) -> list[list[int]]:
        """Return the token ids of each text. A text without a context is encoded alone, as in training."""
        found: dict[int, list[int]] = {}
        for with_context in (True, False):
            places = [i for i, (context, _) in enumerate(pairs) if bool(context) == with_context]
            given = zip(*(pairs[i] if with_context else pairs[i][1:] for i in places), strict=True)
            # Not verbose: texts that are too long are cut and counted, so they need no warning.
            encoded = self._tokenizer(*map(list, given), verbose=False, **how)["input_ids"] if places else []
            found |= zip(places, encoded, strict=True)
        return [found[i] for i in range(len(pairs))]


def labels_of(folder: Path) -> dict[str, Any]:
    """Return `labels` in the `config.json` of a model. Raise a UserError if it has none, or is not converted."""
    config = read_json(folder / "config.json") if (folder / "config.json").is_file() else {}
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


# Tables.


@contextlib.contextmanager
def held(folder: Path) -> Iterator[None]:
    """Lock the folder of a prediction. At the end, delete it if the prediction succeeded, or if no part was done.

    A UserError says that another process makes the same predictions.
    """
    with locked(folder, "another prediction"):
        done = False
        try:
            yield
            done = True
        finally:
            if done or not any(folder.glob("*.npz")):
                shutil.rmtree(folder, ignore_errors=True)


def review_of(out: Path) -> Path:
    """Return the file beside the predictions for the rows that a person should check first."""
    return out.with_suffix(f".review{out.suffix}")


def predict(folder: Path, path: Path, asked: schema.Predict, out: Path, partial: Path) -> dict[str, Any]:
    """Write the predictions of a table to `out`, .csv or .tsv, which appears at the end. Return the figures.

    `partial` is the folder of what is done so far, which this process has `held`: a call with the same model, table and
    settings continues from there.
    """
    if out.suffix not in DELIMITERS:
        raise UserError(f"{out}: predictions are written only as .csv or .tsv; change the name of the file")
    columns = [Asked(str(asked.text_column), "predict.text_column")]
    if asked.context_column is not None:
        columns.append(Asked(asked.context_column, "predict.context_column", "value"))
    settings = asked.model_dump(exclude={"tables", "review"})
    names, cells = whole_table(path, columns, Form.of("predict", settings))
    predictor = Predictor(folder, scoring_device())
    labels = predictor.labels
    shown = labels["blocks"] + min(asked.top, len(labels["codes"]))
    predicted = cells_of(np.empty((0, 1 + 2 * shown)), labels)
    if taken := [name for name in names if name in (NUMBER, *predicted)]:
        raise UserError(f"the table already has a column {taken[0]!r}, which the predictions need: rename it")
    given = bool(asked.context_column or asked.context)
    if labels.get("contexts", given) != given:
        how, gets = ("without", "some") if given else ("with", "none")
        log.warning("the model was trained %s contexts, but gets %s (predict.context_column)", how, gets)
    rows = pd.DataFrame(cells, columns=names, dtype=object)
    pairs, of_row = different_texts(rows, asked, Cleaning(**labels.get("cleaning", {})))
    if not pairs:
        raise UserError(f"{path}: no row has a text in the column {asked.text_column!r}: there is nothing to predict")
    identity = {"table": sha256(path), "model": identity_of(folder), "version": PredictStage.version} | settings
    found = answers_to(pairs, predictor, asked, Kept(partial, identity))
    predicted = cells_of(found, labels).reindex(of_row).fillna({"predicted": NO_TEXT}).fillna("")
    whole = pd.concat([rows, predicted.set_index(rows.index)], axis=1)
    write_table(out, whole)
    whole.insert(0, NUMBER, np.arange(1, len(whole) + 1).astype(str))
    sure = pd.Series(certainty(found, labels["blocks"])).reindex(of_row).set_axis(whole.index).dropna()
    write_table(review_of(out), whole.loc[sure.sort_values(kind="stable").index[: asked.review]])
    with_text = of_row[of_row >= 0]
    figures: dict[str, Any] = {"rows": len(rows), "without_text": len(rows) - len(with_text), "texts": len(pairs)}
    figures |= {"cut": int(found[with_text, 0].sum()), "longest": predictor.longest}
    figures["summary"] = in_words(out, figures)
    log.info("%s", figures["summary"])
    return figures


def different_texts(rows: pd.DataFrame, asked: schema.Predict, cleaning: Cleaning) -> tuple[list[Pair], np.ndarray]:
    """Return the different texts of a table with their contexts, and the number of each row's text, -1 for none."""
    texts, context = rows[asked.text_column], asked.context_column
    contexts = [asked.context or ""] * len(rows) if context is None else rows[context]
    numbers: dict[Pair, int] = {}
    of_row = []
    for pair in zip(map(context_text, contexts), texts, strict=True):
        cleaned = cleaning.of(pair[0]), cleaning.of(pair[1])
        of_row.append(numbers.setdefault(cleaned, len(numbers)) if cleaned[1].strip() else -1)
    return [*numbers], np.array(of_row, int)


def answers_to(pairs: list[Pair], predictor: Predictor, asked: schema.Predict, kept: Kept) -> np.ndarray:
    """Predict all texts but those kept. Return the predictions of all; see `Predictor.predict`."""
    known = {int(number) for part in kept.found for number in part[:, 0]}
    missing = [number for number in range(len(pairs)) if number not in known]
    if known:
        log.info("continuing after %s of %s texts", f"{len(known):,}", f"{len(pairs):,}")
    bar = Bar(len(pairs), len(known))
    for start in range(0, len(missing), PredictStage.at_once):
        places = missing[start : start + PredictStage.at_once]
        kept.add(places, predictor.predict([pairs[i] for i in places], asked, bar, len(known) + start))
    found = np.concatenate(kept.found)
    return found[np.argsort(found[:, 0]), 1:]


def cells_of(found: np.ndarray, labels: dict[str, Any]) -> pd.DataFrame:
    """Return the columns that are predicted, as text, with a row per text. For `found` see `Predictor.predict`.

    If the codes have names (`labels`: those in config.json), these get their own columns.
    """
    codes, chances = np.split(found[:, 1:], 2, axis=1)
    known, blocks = np.array([*labels["codes"], ""], object), labels["blocks"]  # the last one is that of -1
    cells: dict[str, Any] = {"predicted": np.where(found[:, 0] > 0, CUT, YES)}
    for place in range(codes.shape[1]):
        more, i = ("", place + 1) if place < blocks else ("likeliest_", place + 1 - blocks)
        names = known[codes[:, place].astype(int)]
        cells[f"{more or 'code_'}{i}"] = names
        if "names" in labels:
            cells[f"{more}name_{i}"] = [labels["names"].get(name, "") for name in names]
        chance_of = zip(names, chances[:, place], strict=True)
        cells[f"{more}probability_{i}"] = [f"{chance:.4g}" if name else "" for name, chance in chance_of]
    return pd.DataFrame(cells, dtype=object)


def certainty(found: np.ndarray, blocks: int) -> np.ndarray:
    """Return the probability of each text's least probable predicted code, 0 without one; see `Predictor.predict`."""
    codes, chances = (each[:, :blocks] for each in np.split(found[:, 1:], 2, axis=1))
    further = np.arange(blocks) > 0
    return np.where(further & (codes < 0), 1.0, chances).min(1)


def write_table(path: Path, table: pd.DataFrame) -> None:
    """Write a .csv or .tsv file whose cells are safe to open in a spreadsheet and in a terminal."""
    rows = itertools.chain([table.columns], table.itertuples(index=False, name=None))
    with atomic_write(path, "w") as file:
        write_rows(file, ([csv_cell(value) for value in row] for row in rows), DELIMITERS[path.suffix])


def in_words(out: Path, figures: dict[str, Any]) -> str:
    """Return the figures of a prediction in one line of text."""
    parts = [f"{figures['rows']:,} rows", f"{figures['texts']:,} different texts"]
    parts += [f"{figures['without_text']:,} without text"] if figures["without_text"] else []
    parts += [f"{figures['cut']:,} cut at {figures['longest']:,} tokens"] if figures["cut"] else []
    return f"{out}: {', '.join(parts)}"
