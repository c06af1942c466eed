"""Predict the codes of texts with an exported label model, for its evaluation and for tables.

Of a table, each different text is predicted once, in parts that are kept, so that a killed run continues. The parts are
not in an output of a rule, since Snakemake deletes the outputs of a job that failed. Memory grows with the different
texts, by some 600 bytes each, and by 4 bytes for each row.
"""

import contextlib
import heapq
import logging
import shutil
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from babelmill.config import schema
from babelmill.core import escape, manifest
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
from babelmill.tables.rows import Asked, Table
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
        blocks, shown = self.labels["blocks"], min(wanted.top, len(self._index))
        beams = shown if wanted.method == "blocks" and self.labels["decoder_layers"] else 1
        sizes = np.clip(lengths, beams, max(beams, self.longest))  # positions of each text, which may be beams
        order = batches(np.argsort(sizes, kind="stable").tolist(), lambda i: int(sizes[i]), most)
        codes = np.full((len(pairs), blocks + shown), -1)
        chances = np.zeros(codes.shape)
        for batch in reversed([*order]):  # the longest first, so that memory runs out at once or never
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


def predict(folder: Path, path: Path, asked: schema.Predict, out: Path, partial: Path, review: Path) -> dict[str, Any]:
    """Write the predictions of a table to `out`, .csv or .tsv, which appears at the end. Return the figures.

    `partial` is the folder of what is done so far, which this process has `held`: a call with the same model, table and
    settings continues from there. `review`: the file for the rows that a person should check first.
    """
    if out.suffix not in DELIMITERS:
        raise UserError(f"{out}: predictions are written only as .csv or .tsv; change the name of the file")
    check_threshold(folder, labels_of(folder), asked)
    columns = [Asked(str(asked.text_column), "predict.text_column")]
    if asked.context_column is not None:
        columns.append(Asked(asked.context_column, "predict.context_column", "value"))
    settings = asked.model_dump(exclude={"inputs", "review"})
    table = Table(path, columns, Form.of("predict", settings))
    identity = {"table": sha256(path), "model": identity_of(folder), "version": PredictStage.version} | settings
    prediction = Prediction(table, asked, Predictor(folder, scoring_device()))
    figures = prediction.run(Kept(partial, identity))
    write_table(out, prediction.columns, prediction.rows())
    write_review(review, asked.review, prediction.columns, prediction.rows())
    figures["summary"] = in_words(out, figures)
    log.info("%s", figures["summary"])
    return figures


class Prediction:
    """Predicts the rows of a table."""

    def __init__(self, table: Table, asked: schema.Predict, predictor: Predictor):
        self._table, self._predictor, labels = table, predictor, predictor.labels
        self._wanted = Wanted(asked.top, asked.method, asked.threshold)
        self._names, self._codes = labels.get("names", {}), labels["codes"]
        predicted = columns_of(labels["blocks"], min(asked.top, len(self._codes)), bool(self._names))
        if taken := [name for name in table.columns if name in {*predicted, NUMBER}]:
            raise UserError(f"the table already has a column {taken[0]!r}, which the predictions need: rename it")
        self.columns = [*table.columns, *predicted]
        self._clean = Cleaning(**labels.get("cleaning", {})).of
        self._one_context = self._clean(context_text(asked.context or ""))
        self._text = table.place(str(asked.text_column))
        self._context = None if asked.context_column is None else table.place(asked.context_column)
        if message := about_contexts(labels.get("contexts"), asked):
            log.warning("%s", message)
        self._of_row = array("i")  # the number of each row's text, in the order in which they first occur; -1 for none
        self._found = np.empty((0, 0))  # [texts, 1 + 2 n] float64, the answers to all texts: cut, codes, chances

    def run(self, kept: Kept) -> dict[str, Any]:
        """Predict all texts but those kept. Return the figures: counts of rows and texts, speed."""
        texts: dict[Pair, int] = {}
        for row in self._table:
            pair = self._pair(row)
            self._of_row.append(-1 if pair is None else texts.setdefault(pair, len(texts)))
        pairs, begun = [*texts], time.monotonic()
        missing = np.ones(len(pairs), bool)
        for part in kept.found:
            missing[part[:, 0].astype(int)] = False
        done = made = len(pairs) - int(missing.sum())
        if done:
            log.info("continuing after %s of %s texts", f"{done:,}", f"{len(pairs):,}")
        bar = Bar(len(pairs), done)
        for start in range(0, len(pairs), PredictStage.at_once):
            if places := [i for i in range(start, min(start + PredictStage.at_once, len(pairs))) if missing[i]]:
                cut, codes, chances = self._predictor.predict([pairs[i] for i in places], self._wanted)
                kept.add(places, np.column_stack([cut, codes, chances]))
                made += len(places)
            bar.show(made, f"{made:,} of {len(pairs):,} texts")
        found = np.concatenate(kept.found) if pairs else np.empty((0, 2))
        self._found = found[np.argsort(found[:, 0]), 1:]
        of_row = np.array(self._of_row)
        with_text = of_row[of_row >= 0]
        figures = {"rows": len(of_row), "without_text": len(of_row) - len(with_text), "texts": len(pairs)}
        figures |= {"cut": int(self._found[with_text, 0].sum()), "longest": self._predictor.longest}
        return figures | ({"texts_per_second": (made - done) / (time.monotonic() - begun)} if made > done else {})

    def _pair(self, row: list[str]) -> Pair | None:
        """Return the context and the text of a row; None if it has no text."""
        text = self._clean(row[self._text])
        if not text.strip():
            return None
        return self._one_context if self._context is None else self._clean(context_text(row[self._context])), text

    def rows(self) -> Iterator[list[str]]:
        """Yield the rows of the table, each followed by what was predicted, in the order of `columns`."""
        for row, number in zip(self._table, self._of_row, strict=True):
            if number < 0:
                yield [*row, NO_TEXT, *[""] * (len(self.columns) - len(row) - 1)]
                continue
            cut, *found = self._found[number].tolist()
            values, half = [CUT if cut else YES], len(found) // 2
            for code, chance in zip(map(int, found[:half]), found[half:], strict=True):
                name = self._codes[code] if code >= 0 else ""
                values += [name, *([self._names.get(name, "")] if self._names else []), f"{chance:.4g}" if name else ""]
            yield [*row, *values]


def columns_of(blocks: int, shown: int, named: bool) -> list[str]:
    """Return the names of the columns that are predicted.

    `blocks`: how many codes a text has at most. `shown`: how many of the most probable codes are written. `named`:
    whether the codes have names, which then get their own columns.
    """
    of_codes = ["code_{}", *(["name_{}"] if named else []), "probability_{}"]
    of_likeliest = ["likeliest_{}", *(["likeliest_name_{}"] if named else []), "likeliest_probability_{}"]
    codes = [name.format(i) for i in range(1, blocks + 1) for name in of_codes]
    likeliest = [name.format(i) for i in range(1, shown + 1) for name in of_likeliest]
    return ["predicted", *codes, *likeliest]


def check_threshold(folder: Path, labels: dict[str, Any], asked: schema.Predict) -> None:
    """Raise a UserError if a threshold is given that would have no effect. `labels`: those in config.json."""
    spelt = asked.method != "linear" and labels["decoder_layers"]
    if asked.threshold is not None and (spelt or labels["exclusive"]):
        raise UserError(
            f"predict.threshold = {asked.threshold}: only for predict.method: linear of a model that gives texts more"
            f" codes than one; {folder} gives {'as many as its decoder says' if spelt else 'one'}"
        )


def about_contexts(trained: bool | None, asked: schema.Predict) -> str:
    """Return a warning if the model was trained with contexts but gets none, or the other way round; "" if all is well.

    `trained` says whether the training text had contexts; it is None if this is not known.
    """
    given = bool(asked.context_column or asked.context)
    if trained in (None, given):
        return ""
    how, gets = ("with", "none") if trained else ("without", "some")
    return f"the model was trained {how} contexts, but gets {gets} (--context, predict.context_column)"


def write_review(path: Path, count: int, columns: list[str], rows: Iterable[list[str]]) -> None:
    """Write the rows that a person should check, with their numbers, counted from 1.

    First come at most `count` rows without text. Then come the `count` least certain rows, the least certain first. How
    certain a row is depends on its least probable predicted code, or on its most probable code if none is predicted.
    """
    predicted, likeliest = columns.index("predicted"), columns.index("likeliest_probability_1")
    given = [place for place in range(predicted, likeliest) if columns[place].startswith("probability_")]
    without: list[list[str]] = []

    def with_text() -> Iterator[tuple[float, int, list[str]]]:
        for number, row in enumerate(rows, 1):
            if row[predicted] != NO_TEXT:
                yield min([float(row[i]) for i in given if row[i]] or [float(row[likeliest])]), number, row
            elif len(without) < count:
                without.append([str(number), *row])

    doubtful = heapq.nsmallest(count, with_text(), key=lambda each: each[:2])
    write_table(path, [NUMBER, *columns], [*without, *([str(number), *row] for _, number, row in doubtful)])


def write_table(path: Path, columns: list[str], rows: Iterable[list[str]]) -> None:
    """Write a .csv or .tsv file whose cells are safe to open in a spreadsheet and in a terminal."""
    with atomic_write(path, "w") as file:
        for part in ([columns], rows):
            write_rows(file, ([csv_cell(value) for value in row] for row in part), DELIMITERS[path.suffix])


def in_words(out: Path, figures: dict[str, Any]) -> str:
    """Return the figures of a prediction in one line of text."""
    parts = [f"{figures['rows']:,} rows", f"{figures['texts']:,} different texts"]
    parts += [f"{figures['without_text']:,} without text"] if figures["without_text"] else []
    parts += [f"{figures['cut']:,} cut at {figures['longest']:,} tokens"] if figures["cut"] else []
    parts += [f"{figures['texts_per_second']:,.0f} texts/s"] if "texts_per_second" in figures else []
    return f"{out}: {', '.join(parts)}"
