"""Make the tidy table of a report, with one row per score."""

import csv
from collections.abc import Iterator
from typing import IO, Any, NamedTuple

from babelmill.evaluation.metrics import SHARE, metrics_of, value_of
from babelmill.reporting.results import Model
from babelmill.suites.results import Z

ALL = "all"  # in place of the phenomenon, in a row with a suite's headline
UNNAMED = "unnamed"  # the phenomenon of pairs without one, which the stage `suite` names "all"


class Row(NamedTuple):
    """A score.

    Attributes:
        model: the model's name.
        language: the code of the language.
        suite: the name of the suite; "" for a score on the validation text.
        method: how sentences are scored; on the validation text, the metric.
        phenomenon: ALL, or a phenomenon of the suite.
        score: the share of pairs that are right; on the validation text, a value in the metric's unit, such as bits
            per byte.
        n: the number of pairs, or of documents of the validation text.
        low, high: the 95 % interval; None if it is not known.
    """

    model: str
    language: str
    suite: str
    method: str
    phenomenon: str
    score: float
    n: int
    low: float | None
    high: float | None


def rows_of(model: Model) -> Iterator[Row]:
    """Yield the scores of a model, for the variant that users load."""
    for code in model.languages:
        found = model.variants_of(code)
        documents = found.get("documents", {}).get("scored", 0)
        for name, score in found.get("variants", {}).get(model.default, {}).items():
            value, error = value_of(score), score.get("standard_error")
            low, high = (None, None) if error is None else (value - Z * error, value + Z * error)
            yield Row(model.name, code, "", name, ALL, value, documents, low, high)
        for suite, scores in model.scores.items():
            if code in scores["languages"]:
                yield from of_suite(model.name, code, suite, scores)


def of_suite(model: str, code: str, suite: str, scores: dict[str, Any]) -> Iterator[Row]:
    """Yield the scores of a language in scores.json."""
    headline = scores["headline"]["of"]
    for method, found in scores["languages"][code]["methods"].items():
        groups = {UNNAMED if name == ALL else name: share for name, share in found["by_phenomenon"].items()}
        if groups.keys() == {UNNAMED}:  # no pair has a phenomenon: the headline says it all
            groups = {}
        for phenomenon, share in [(ALL, found[headline]), *groups.items()]:
            if share:
                low, high = share["interval"]
                yield Row(model, code, suite, method, phenomenon, share["score"], share["n"], low, high)


def snapshots_of(model: Model) -> Iterator[tuple[float, Row]]:
    """Yield the scores of a model's snapshots, each with the millions of words after which it was kept."""
    for suite, scores in model.scores.items():
        for each in scores.get("snapshots", []):
            for code in each["languages"]:
                yield from ((each["million_words"], row) for row in of_suite(model.name, code, suite, scores | each))


def write_csv(models: list[Model], file: IO[str]) -> None:
    """Write the table of all models. The column `million_words` is empty for finished models, not for snapshots."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([*Row._fields, "million_words"])
    for model in models:
        rows = [(*row, None) for row in rows_of(model)] + [(*row, words) for words, row in snapshots_of(model)]
        for row in rows:
            writer.writerow(f"{cell:.6g}" if isinstance(cell, float) else cell for cell in row)


def metrics_of_all(models: list[Model]) -> dict[str, str]:
    """Return the metrics of the models as {name: unit}; metrics where less is better come first."""
    found: dict[str, str] = {}
    for evaluation in [model.evaluation for model in models if model.evaluation]:
        measured = next(iter(evaluation["variants"].values()))
        found |= {name: metric.unit for name, metric in metrics_of(evaluation).items() if name in measured}
    return dict(sorted(found.items(), key=lambda item: item[1] == SHARE))
