"""The tidy table of a report: a line for each score."""

import csv
from collections.abc import Iterator
from typing import IO, Any, NamedTuple

from babelmill.evaluation.metrics import SHARE, metrics_of, value_of
from babelmill.reporting.results import Model
from babelmill.suites.results import Z

ALL = "all"  # the phenomenon of a suite's headline


class Row(NamedTuple):
    """A score.

    Attributes:
        suite: "" of a score on the validation text.
        method: how sentences are scored, or the metric.
        phenomenon: ALL, or one of the suite.
        score: share of the pairs that are right; of the validation text, in the unit of the metric: bits per byte.
        n: pairs, or documents of the validation text.
        low, high: 95 % interval; None where it is not known.
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
    """Yield the scores of a model, those of the variant that users load."""
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
    """Yield what scores.json says of a language."""
    headline = scores["headline"]["of"]
    for method, found in scores["languages"][code]["methods"].items():
        groups = {ALL: found[headline], **found["by_phenomenon"]}
        for phenomenon, share in groups.items():
            if share:
                low, high = share["interval"]
                yield Row(model, code, suite, method, phenomenon, share["score"], share["n"], low, high)


def write_csv(models: list[Model], file: IO[str]) -> None:
    """Write the table of all models."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(Row._fields)
    for model in models:
        for row in rows_of(model):
            writer.writerow(f"{cell:.6g}" if isinstance(cell, float) else cell for cell in row)


def metrics_of_all(models: list[Model]) -> dict[str, str]:
    """Return the metrics of the models, those where less is better first: {name: unit}."""
    found: dict[str, str] = {}
    for evaluation in [model.evaluation for model in models if model.evaluation]:
        measured = next(iter(evaluation["variants"].values()))
        found |= {name: metric.unit for name, metric in metrics_of(evaluation).items() if name in measured}
    return dict(sorted(found.items(), key=lambda item: item[1] == SHARE))
