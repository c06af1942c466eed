"""Predict all rows of a table, in order and window by window. Memory is bounded, and equal texts are predicted once."""

import hashlib
import heapq
import itertools
import logging
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from babelmill.core.bars import Bar
from babelmill.core.files import UserError
from babelmill.labels.predictor import Pair, Predictor, Wanted, batches
from babelmill.labels.windows import WINDOW, Windows, write_table
from babelmill.tables.rows import Asked, Table
from babelmill.tokens.clean_text import Cleaning
from babelmill.tokens.label_text import context_text

REMEMBERED = 100_000  # texts whose predictions are kept in memory, about 100 MB
CPU_TOKENS, GPU_TOKENS = 4096, 65536  # tokens per batch, including padding; also the largest number of beams
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


class LatestTexts(dict[bytes, tuple[str, ...]]):
    """Remembers the predictions of the latest texts, by their keys.

    What it remembers depends only on the earlier rows. So a run that continues after a stop passes the same texts to
    the model as a run that never stopped.
    """

    def add(self, window: dict[bytes, tuple[str, ...]]) -> None:
        """Remember the texts of a window, and forget those that have not occurred for the longest time."""
        for key, values in window.items():
            self.pop(key, None)
            self[key] = tuple(map(sys.intern, values))  # many values are equal, so they share memory
        for key in list(itertools.islice(self, max(0, len(self) - REMEMBERED))):
            del self[key]


class Prediction:
    """Predicts the rows of a table from the columns `asked`. New windows are added to those that are done."""

    def __init__(self, table: Table, asked: TextColumns, predictor: Predictor, wanted: Wanted, windows: Windows):
        self._table, self._predictor, self._wanted, self._windows = table, predictor, wanted, windows
        labels = predictor.labels
        self._blocks, self._names = labels["blocks"], labels.get("names", {})
        self._shown = min(wanted.top, len(labels["codes"]))
        self._predicted_columns = columns_of(self._blocks, self._shown, bool(self._names))
        self._clean = Cleaning(**labels.get("cleaning", {})).of
        self._one_context = self._clean(context_text(asked.one_context))
        self._text = table.place(asked.text)
        self._context = None if asked.context is None else table.place(asked.context)
        refuse_taken(table.columns, [*self._predicted_columns, NUMBER])
        # the names of the table's columns and, after them, of the predicted ones
        self.columns = [*table.columns, *self._predicted_columns]
        if message := about_contexts(labels.get("contexts"), asked):
            log.warning("%s", message)
        self._memory = LatestTexts()
        self._counts = Counter(rows=0, without_text=0, cut=0, texts=0)

    def run(self) -> dict[str, Any]:
        """Predict the windows that are not done. Return the figures: counts of rows and texts, and the speed."""
        bar, begun, before = Bar(self._table.rows, min(self._table.rows, self._windows.done * WINDOW)), 0.0, 0
        for number, rows in enumerate(in_windows(self._table)):
            if number < self._windows.done:
                self._take_up(rows, self._windows.read(number))
                continue
            if not begun:
                begun, before = time.monotonic(), self._counts["rows"]
                if before:
                    log.info("continuing after %s of %s rows", f"{before:,}", f"{self._table.rows:,}")
            self._windows.write(self._predicted(rows, bar))
        seconds = time.monotonic() - begun if begun else 0.0
        speed = {"rows_per_second": (self._counts["rows"] - before) / seconds} if seconds else {}
        return {**self._counts, "longest": self._predictor.longest, **speed}

    def _keys(self, rows: list[list[str]]) -> tuple[list[bytes | None], dict[bytes, Pair]]:
        """Return the key of each row's text (None for a row without text), and {key: (context, text)}."""
        keys: list[bytes | None] = []
        pairs: dict[bytes, Pair] = {}
        for row in rows:
            text = self._clean(row[self._text])
            if not text.strip():
                keys.append(None)
                continue
            context = self._one_context if self._context is None else self._clean(context_text(row[self._context]))
            both = f"{len(context)} {context}{text}".encode("utf-8", "surrogatepass")
            key = hashlib.blake2b(both, digest_size=16).digest()
            keys.append(key)
            pairs[key] = (context, text)
        return keys, pairs

    def _predicted(self, rows: list[list[str]], bar: Bar) -> list[list[str]]:
        """Return the rows of a window, each followed by its predicted values."""
        keys, pairs = self._keys(rows)
        new = [key for key in pairs if key not in self._memory]
        before, total = self._counts["rows"], self._table.rows

        def tick(share: float) -> None:
            at = before + int(len(rows) * share) - (share == 1)  # the last row counts once the window is on disk
            bar.show(at, f"{at:,} of {total:,} rows")

        found = dict(zip(new, self.values([pairs[key] for key in new], tick), strict=True))
        values = {key: found.get(key) or self._memory.get(key) or () for key in pairs}
        nothing = (NO_TEXT, *[""] * (len(self._predicted_columns) - 1))
        done = [[*row, *(nothing if key is None else values[key])] for row, key in zip(rows, keys, strict=True)]
        self._note(done, values, len(new))
        bar.show(self._counts["rows"], f"{self._counts['rows']:,} of {total:,} rows")
        return done

    def values(self, pairs: Sequence[Pair], tick: Callable[[float], None]) -> list[tuple[str, ...]]:
        """Return the values of the predicted columns for each text, in the order of the texts.

        `tick` is called with the share of the tokens that are done.
        """
        predictor, wanted = self._predictor, self._wanted
        tokens = predictor.tokens(pairs)
        lengths = [len(ids) for ids in tokens]
        most = CPU_TOKENS if predictor.device.type == "cpu" else GPU_TOKENS
        beams = self._shown if wanted.method == "blocks" and predictor.labels["decoder_layers"] else 1
        values: list[tuple[str, ...]] = [()] * len(pairs)
        read, total = 0, sum(lengths)
        for batch in batches(lengths, predictor.longest, most, beams):
            found = predictor.predict([pairs[i] for i in batch], [tokens[i] for i in batch], wanted)
            for i, each in zip(batch, found, strict=True):
                codes, likeliest = self._written(each.codes, self._blocks), self._written(each.likeliest, self._shown)
                values[i] = (CUT if lengths[i] > predictor.longest else YES, *codes, *likeliest)
            read += sum(lengths[i] for i in batch)
            tick(read / max(1, total))
        return values

    def _written(self, codes: Sequence[tuple[str, float]], count: int) -> list[str]:
        """Return codes with names (if there are any) and probabilities as strings, padded with "" to `count` codes."""
        names = self._names
        found = [
            text
            for code, chance in codes[:count]
            for text in (code, *([names.get(code, "")] if names else []), f"{chance:.4g}")
        ]
        return found + [""] * ((3 if names else 2) * count - len(found))

    def _take_up(self, rows: list[list[str]], done: list[list[str]]) -> None:
        """Count and remember a window that an earlier run has predicted."""
        keys, pairs = self._keys(rows)
        width = len(self._predicted_columns)
        by_key = {key: tuple(row[-width:]) for key, row in zip(keys, done, strict=True) if key is not None}
        self._note(done, by_key, sum(key not in self._memory for key in pairs))

    def _note(self, done: list[list[str]], values: dict[bytes, tuple[str, ...]], new: int) -> None:
        self._memory.add(values)
        states = [row[len(self._table.columns)] for row in done]
        self._counts.update(rows=len(done), without_text=states.count(NO_TEXT), cut=states.count(CUT), texts=new)


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


def in_windows(table: Table) -> Iterator[list[list[str]]]:
    """Yield the rows of a table, `WINDOW` of them at a time."""
    rows = iter(table)
    while window := list(itertools.islice(rows, WINDOW)):
        yield window


def about_contexts(trained: bool | None, asked: TextColumns) -> str:
    """Return a warning if the model was trained with contexts but gets none, or the other way round.

    `trained` says whether the training text had contexts; it is None if this is not known. The warning is "" if all is
    well.
    """
    given = asked.context is not None or bool(asked.one_context)
    if trained and not given:
        return "the model was trained with contexts, but gets none: add them (--context, predict.context_column)"
    if trained is False and given:
        return "the model was trained without contexts, but gets some: remove them (--context, predict.context)"
    return ""


def refuse_taken(columns: list[str], ours: list[str]) -> None:
    """Raise a UserError if a table already has a column of the predictions."""
    if taken := [name for name in columns if name in ours]:
        raise UserError(f"the table already has a column {taken[0]!r}, which the predictions need: rename it")


def write_review(path: Path, count: int, columns: list[str], windows: Windows) -> None:
    """Write the rows that a person should check, with their numbers, counted from 1.

    First come at most `count` rows without text. Then come the `count` least certain rows, the least certain first. How
    certain a row is depends on its least probable predicted code, or on its most probable code if none is predicted.
    """
    predicted, likeliest = columns.index("predicted"), columns.index("likeliest_probability_1")
    given = [place for place in range(predicted, likeliest) if columns[place].startswith("probability_")]
    without: list[list[str]] = []

    def with_text() -> Iterator[tuple[float, int, list[str]]]:
        for number, row in enumerate(windows, 1):
            if row[predicted] != NO_TEXT:
                yield min([float(row[i]) for i in given if row[i]] or [float(row[likeliest])]), number, row
            elif len(without) < count:
                without.append([str(number), *row])

    doubtful = heapq.nsmallest(count, with_text(), key=lambda each: each[:2])
    write_table(path, [NUMBER, *columns], [*without, *([str(number), *row] for _, number, row in doubtful)])


def in_words(out: Path, figures: dict[str, Any]) -> str:
    """Return the figures of a prediction in one line of text."""
    parts = [f"{figures['rows']:,} rows", f"{figures['texts']:,} different texts"]
    parts += [f"{figures['without_text']:,} without text"] if figures["without_text"] else []
    parts += [f"{figures['cut']:,} cut at {figures['longest']:,} tokens"] if figures["cut"] else []
    parts += [f"{figures['rows_per_second']:,.0f} rows/s"] if "rows_per_second" in figures else []
    return f"{out}: {', '.join(parts)}"
