"""Predict all rows of a table: each different text once, in parts that are kept, so that a killed run continues.

The parts are not in an output of a rule, since Snakemake deletes the outputs of a job that failed. Memory grows with
the different texts, by some 400 bytes each, and by 4 bytes for each row.
"""

import contextlib
import heapq
import logging
import shutil
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from babelmill.core.bars import Bar
from babelmill.core.escape import csv_cell, write_rows
from babelmill.core.files import UserError, atomic_write, read_json, write_json
from babelmill.core.formats import DELIMITERS
from babelmill.evaluation.kept import intact_arrays, write_arrays
from babelmill.labels.predictor import Pair, Predictor, Wanted
from babelmill.runtime.run_lock import locked
from babelmill.tables.rows import Asked, Table
from babelmill.tokens.label_text import Cleaning, context_text

PART = 4096  # different texts that are sorted by length, predicted and kept together
NUMBER = "row"  # the column with the numbers of rows
NO_TEXT, CUT, YES = "no text", "cut", "yes"  # values of the column `predicted`

log = logging.getLogger("babelmill")


@dataclass(frozen=True)
class TextColumns:
    """Says which columns of a table to predict from."""

    text: str  # the column of the text
    # The column of the text's context (a language, a source), or None if there is no such column.
    context: str | None = None
    one_context: str = ""  # the context of all rows, if no column holds it

    def columns(self, text: str, context: str) -> list[Asked]:
        """Return the columns as the table checks them; `text` and `context` say what names them, for errors."""
        named = [] if self.context is None else [Asked(self.context, context, "value")]
        return [Asked(self.text, text), *named]


@contextlib.contextmanager
def held(folder: Path) -> Iterator[None]:
    """Lock the folder of a prediction. At the end, delete it if the prediction succeeded, or if no part was done.

    A UserError says that another process makes the same predictions.
    """
    with locked(folder, "another prediction"):
        try:
            yield
        except BaseException:
            if not part_of(folder, 0).is_file():
                shutil.rmtree(folder, ignore_errors=True)
            raise
        shutil.rmtree(folder, ignore_errors=True)


def part_of(folder: Path, number: int) -> Path:
    """Return the file of the predictions of the texts from `number * PART` on."""
    return folder / f"{number:06}.npz"


def keep_only(folder: Path, identity: dict[str, Any]) -> None:
    """Delete the parts in a locked folder unless they are of this model, table and wish (the identity)."""
    identity = identity | {"part": PART}
    with contextlib.suppress(UserError):  # there is none
        if read_json(folder / "identity.json") == identity:
            return
    for path in (folder / "identity.json", *folder.glob("*.npz")):
        path.unlink(missing_ok=True)
    write_json(folder / "identity.json", identity)


class Prediction:
    """Predicts the rows of a table from the columns `asked`."""

    def __init__(self, table: Table, asked: TextColumns, predictor: Predictor, wanted: Wanted):
        self._table, self._predictor, self._wanted = table, predictor, wanted
        labels = predictor.labels
        self._blocks, self._names, self._codes = labels["blocks"], labels.get("names", {}), labels["codes"]
        self._shown = min(wanted.top, len(self._codes))
        predicted = columns_of(self._blocks, self._shown, bool(self._names))
        if taken := [name for name in table.columns if name in {*predicted, NUMBER}]:
            raise UserError(f"the table already has a column {taken[0]!r}, which the predictions need: rename it")
        self.columns = [*table.columns, *predicted]
        self._clean = Cleaning(**labels.get("cleaning", {})).of
        self._one_context = self._clean(context_text(asked.one_context))
        self._text = table.place(asked.text)
        self._context = None if asked.context is None else table.place(asked.context)
        if message := about_contexts(labels.get("contexts"), asked):
            log.warning("%s", message)
        self._of_row = array("i")  # the number of each row's text, in the order in which they first occur; -1 for none
        self._found: dict[str, np.ndarray] = {}  # what `values` returns, of all texts

    def run(self, folder: Path) -> dict[str, Any]:
        """Predict all texts, with the parts in a locked folder. Return the figures: counts of rows and texts, speed."""
        texts: dict[Pair, int] = {}
        for row in self._table:
            pair = self._pair(row)
            self._of_row.append(-1 if pair is None else texts.setdefault(pair, len(texts)))
        pairs, parts = [*texts], list[dict[str, np.ndarray]]()
        bar, made, seconds = Bar(len(pairs)), 0, 0.0
        for start in range(0, max(1, len(pairs)), PART):
            path, part = part_of(folder, start // PART), pairs[start : start + PART]
            if (found := intact_arrays(path)) is None:
                if start and not made:
                    log.info("continuing after %s of %s texts", f"{start:,}", f"{len(pairs):,}")
                begun, found = time.monotonic(), self.values(part)
                write_arrays(path, found)
                made, seconds = made + len(part), seconds + time.monotonic() - begun
            parts.append(found)
            bar.show(start + len(part), f"{start + len(part):,} of {len(pairs):,} texts")
        self._found = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        of_row = np.array(self._of_row)
        with_text = of_row[of_row >= 0]
        figures = {"rows": len(of_row), "without_text": len(of_row) - len(with_text), "texts": len(pairs)}
        figures |= {"cut": int(self._found["cut"][with_text].sum()), "longest": self._predictor.longest}
        return figures | ({"texts_per_second": made / seconds} if made else {})

    def _pair(self, row: list[str]) -> Pair | None:
        """Return the context and the text of a row; None if it has no text."""
        text = self._clean(row[self._text])
        if not text.strip():
            return None
        return self._one_context if self._context is None else self._clean(context_text(row[self._context])), text

    def values(self, pairs: Sequence[Pair], tick: Callable[[int], None] = lambda texts: None) -> dict[str, np.ndarray]:
        """Return what is predicted for each text, in the order of the texts.

        `cut` [texts] bool: whether its end was not read; `codes` [texts, n] int32: the predicted codes and, after them,
        the likeliest ones, as numbers, and -1 where there is none; `chances` [texts, n] float32.
        """
        index = {code: number for number, code in enumerate(self._codes)}
        cut = np.zeros(len(pairs), bool)
        codes = np.full((len(pairs), self._blocks + self._shown), -1, np.int32)
        chances = np.zeros(codes.shape, np.float32)
        for i, cut[i], found in self._predictor.found(pairs, self._wanted, tick):
            for first, given in ((0, found.codes[: self._blocks]), (self._blocks, found.likeliest[: self._shown])):
                for place, (code, chance) in enumerate(given, first):
                    codes[i, place], chances[i, place] = index[code], chance
        return {"cut": cut, "codes": codes, "chances": chances}

    def rows(self) -> Iterator[list[str]]:
        """Yield the rows of the table, each followed by what was predicted, in the order of `columns`."""
        for row, number in zip(self._table, self._of_row, strict=True):
            if number < 0:
                yield [*row, NO_TEXT, *[""] * (len(self.columns) - len(row) - 1)]
                continue
            values = [CUT if self._found["cut"][number] else YES]
            for code, chance in zip(*(self._found[key][number].tolist() for key in ("codes", "chances")), strict=True):
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


def check_threshold(folder: Path, labels: dict[str, Any], wanted: Wanted) -> None:
    """Raise a UserError if a threshold is given that would have no effect. `labels`: those in config.json."""
    if wanted.threshold is None:
        return
    if labels["exclusive"]:
        raise UserError(f"{folder} gives each text one code, so predict.threshold has no effect: remove it")
    if wanted.method != "linear" and labels["decoder_layers"]:
        raise UserError(
            "predict.threshold works only with predict.method: linear, since the decoder itself says how many codes a"
            " text has"
        )


def about_contexts(trained: bool | None, asked: TextColumns) -> str:
    """Return a warning if the model was trained with contexts but gets none, or the other way round; "" if all is well.

    `trained` says whether the training text had contexts; it is None if this is not known.
    """
    given = asked.context is not None or bool(asked.one_context)
    if trained and not given:
        return "the model was trained with contexts, but gets none: add them (--context, predict.context_column)"
    if trained is False and given:
        return "the model was trained without contexts, but gets some: remove them (--context, predict.context)"
    return ""


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
