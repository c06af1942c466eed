"""Make the tidy table of scores, one row per score. Comparisons, reports, runs and experiments are made from it."""

import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import pandas as pd

from babelmill.core.escape import csv_cell, write_rows
from babelmill.core.words import plural, short
from babelmill.evaluation.metrics import BITS, SHARE, metrics_of
from babelmill.evaluation.statistics import Z
from babelmill.evaluation.suite_scores import chance, headline_method, measure_of, sample_of
from babelmill.evaluation.tuned_scores import summarize
from babelmill.reporting.results import ModelResults

Frame = Any  # a pandas.DataFrame; no type checker can follow the annotations of pandas
ALL = "all"  # in place of the phenomenon and the paradigm, in a row with a suite's score
TUNED = "fine-tuned"  # the method of a score after fine-tuning, a mean over seeds
UNNAMED = "unnamed"  # the phenomenon of pairs without one, which the stage `suite` names "all"


class ScoreRow(NamedTuple):
    """A score. `None` stands for what is not known, or does not apply."""

    model: str  # the model's name
    language: str  # the code of the language
    suite: str  # the name of the suite or task; "" for a score on the validation text
    method: str  # how sentences are scored; on the validation text, the metric; of a task, TUNED
    # ALL, or a phenomenon of the suite; "" in the row of a paradigm, whose phenomenon scores.json does not name.
    phenomenon: str
    paradigm: str  # ALL, or a paradigm of the suite
    # The share of items that are right, or the suite's own measure, such as a correlation; on the validation text, a
    # value in the metric's unit.
    score: float
    unit: str  # the unit of score, low and high: "share", the measure, or that of the metric, such as "bits per byte"
    n: int  # the number of pairs, of documents of the validation text, or of test rows of a task
    # low, high: the 95 % interval
    low: float | None
    high: float | None
    headline: bool  # whether it is the score that a reader is shown first: of all items, by one method
    simple: float | None = None  # the score of guessing; on the validation text, that of a much simpler model
    remark: str = ""  # what a reader must know: that a sample was scored, or a model has learnt nothing
    million_words: float | None = None  # of a snapshot: after so many million words it was kept
    items: str = ""  # where the items of a suite come from: a commit, or files
    seed: int | None = None  # of the training

    @property
    def ends(self) -> str:
        """Return the interval as text; "" if it is not known."""
        return "" if self.low is None else f"{shown(self.low, self.unit)} to {shown(self.high, self.unit)}"

    @property
    def baseline(self) -> str:
        """Return the score of guessing, or of a much simpler model, as text: `chance 50.0`, `unigram 2.310`."""
        name = "chance" if self.suite and self.method != TUNED else "most frequent"
        return f"{'unigram' if less_is_better(self.unit) else name} {shown(self.simple, self.unit)}"

    @property
    def is_worse(self) -> bool:
        """Return whether the score is not better than that of guessing, or of a much simpler model."""
        return self.simple is not None and not_better(self.score, self.simple, self.unit)


def score_table(models: list[ModelResults]) -> Frame:
    """Return the scores of models, for the variant that users load: a column for each attribute of `ScoreRow`."""
    seeds = {model.name: model.manifest("train")["settings"].get("train", {}).get("seed") for model in models}
    return score_frame(row._replace(seed=seeds[model.name]) for model in models for row in rows_of(model))


def score_frame(rows: Iterable[ScoreRow]) -> Frame:
    """Return rows as a table; what is not known is NaN in the columns of numbers."""
    numbers = dict.fromkeys(("score", "low", "high", "simple", "million_words"), float)
    return frame_of(rows, ScoreRow._fields).astype(numbers | {"headline": bool})


def frame_of(rows: Iterable[Sequence[Any]], columns: Iterable[object]) -> Frame:
    """Return a table, whose cells stay what they are."""
    return pd.DataFrame([*rows], columns=pd.Index([*columns]), dtype=object)


def rows_in(scores: Frame) -> list[ScoreRow]:
    """Return the rows of a table of scores, with None for what is not known."""
    known = scores[[*ScoreRow._fields]].astype(object).where(scores[[*ScoreRow._fields]].notna(), None)
    return [ScoreRow(*row) for row in known.itertuples(index=False)]


def write_csv(table: Frame, file: IO[str]) -> None:
    """Write a table of scores, in which no cell is a formula."""
    shown = table.drop(columns="headline")
    rows = shown.astype(object).where(shown.notna(), "").itertuples(index=False)
    cells = ([f"{cell:.6g}" if isinstance(cell, float) else str(csv_cell(cell)) for cell in row] for row in rows)
    write_rows(file, [[*shown.columns], *cells])


def rows_of(model: ModelResults) -> Iterator[ScoreRow]:
    """Yield the scores of a model: on the validation text, on suites (also of snapshots), and after fine-tuning."""
    metrics = metrics_of(model.evaluation) if model.evaluation else {}
    for code in model.languages:
        found = model.variants_of(code)
        measured, simple = found.get("variants", {}).get(model.default, {}), found.get("most_frequent", {})
        for name in sorted(
            metrics.keys() & measured, key=lambda name: (metrics[name].unit == SHARE, [*metrics].index(name))
        ):
            unit = f"{metrics[name].unit}, upper bound" if metrics[name].bound else metrics[name].unit
            value, error = measured[name]["value"], measured[name].get("standard_error")
            least, most = (0.0, 1.0) if unit == SHARE else (-math.inf, math.inf)
            ends = (None, None) if error is None else (max(least, value - Z * error), min(most, value + Z * error))
            beside = (found.get("unigram") or simple.get(name) or {}).get("value")
            where = model.name, code, "", name, ALL, ALL
            yield ScoreRow(*where, value, unit, found.get("documents", {}).get("scored", 0), *ends, True, beside)
    for suite, scores in model.scores.items():
        yield from of_suite(model.name, suite, scores)
        for each in scores.get("snapshots", []):
            rows = of_suite(model.name, suite, scores | each)
            yield from (row._replace(million_words=each["million_words"]) for row in rows)
    for each in summarize(model.tuned.values()):
        where = model.name, each.language, each.task, TUNED, ALL, ALL
        remark = "; ".join(filter(None, [plural(each.seeds, "seed"), each.remarks]))
        yield ScoreRow(*where, each.mean, SHARE, each.rows, *each.interval, True, each.simple, remark)


def of_suite(model: str, suite: str, scores: dict[str, Any]) -> Iterator[ScoreRow]:
    """Yield the scores in scores.json, or with a snapshot's entry of it: of all pairs, of phenomena, of paradigms."""
    of, unit = scores["headline"]["of"], measure_of(scores) or SHARE
    named, simple = headline_method(scores), chance(scores)
    for code, of_language in scores["languages"].items():
        items = origin(of_language.get("pairs", {}))
        for method, found in of_language["methods"].items():
            groups = {UNNAMED if name == ALL else name: share for name, share in found["by_phenomenon"].items()}
            paradigms = found.get("by_paradigm", {})
            if paradigms.keys() == found["by_phenomenon"].keys():
                paradigms = {}  # they are the phenomena
            if groups.keys() == {UNNAMED}:  # no pair has a phenomenon: the headline says it all
                groups = {}
            shares = [(ALL, ALL, found[of]), *((name, ALL, share) for name, share in groups.items())]
            for phenomenon, paradigm, share in [*shares, *(("", name, share) for name, share in paradigms.items())]:
                if share:
                    first = method == named and phenomenon == paradigm == ALL
                    (low, high), remark = share["interval"], sample_of(scores, method)
                    score = share["score"], unit, share["n"], low, high, first, simple, remark
                    yield ScoreRow(model, code, suite, method, phenomenon, paradigm, *score, items=items)


def origin(figures: dict[str, Any]) -> str:
    """Return where the data of a manifest comes from: a repository at a commit, or files with their sha256."""
    if hub := figures.get("hub"):
        parts = hub.get("parts", [hub])
        return ", ".join(f"{each['repository']} at {each['commit'][:12]}" for each in parts if "commit" in each)
    return ", ".join(f"{Path(each['path']).name} ({each['sha256'][:12]})" for each in figures.get("sources", [])[:3])


# Scores as text. Shares and correlations are shown times 100.


def less_is_better(unit: str) -> bool:
    """Return whether the best score is the smallest one."""
    return unit.startswith(BITS)


def not_better(score: float, simple: float, unit: str) -> bool:
    """Return whether a score is at best as good as that of guessing, or of a much simpler model."""
    return score >= simple if less_is_better(unit) else score <= simple


def unit_text(unit: str) -> str:
    """Return the unit of a score as `shown` writes it."""
    return unit if less_is_better(unit) else "%" if unit == SHARE else f"{unit} x 100"


def shown(value: float | None, unit: str, signed: bool = False) -> str:
    """Return a score as text; a dash if it is not known."""
    if value is None:
        return "–"
    sign = "+" if signed else ""
    return f"{value:{sign}.3f}" if less_is_better(unit) else f"{100 * value:{sign}.1f}"


def amount(value: float | None) -> str | None:
    """Return a number in short; None if it is not known."""
    if value is None or value != value:
        return None
    return short(value) if value >= 1e6 else f"{value:,.0f}" if value >= 1e3 else f"{value:.4g}"
