"""Make the tidy table of a report, with one row per score."""

import csv
import json
from collections.abc import Iterator
from typing import IO, Any, NamedTuple

from babelmill.core.escape import csv_cell
from babelmill.evaluation.metrics import SHARE, Metric, metrics_of
from babelmill.evaluation.suite_scores import headline_method, measure_of
from babelmill.evaluation.tuned_scores import summarize
from babelmill.reporting.results import ReportedModel
from babelmill.suites.results import Z

ALL = "all"  # in place of the phenomenon and the paradigm, in a row with a suite's score
TUNED = "fine-tuned"  # the method of a score after fine-tuning, a mean over seeds
UNNAMED = "unnamed"  # the phenomenon of pairs without one, which the stage `suite` names "all"


class ScoreRow(NamedTuple):
    """A score."""

    model: str  # the model's name
    language: str  # the code of the language
    suite: str  # the name of the suite or task; "" for a score on the validation text
    method: str  # how sentences are scored; on the validation text, the metric; of a task, TUNED
    # ALL, or a phenomenon of the suite; "" in the row of a paradigm, whose phenomenon scores.json does not name.
    phenomenon: str
    paradigm: str  # ALL, or a paradigm of the suite
    # The share of pairs that are right, or the suite's own measure, such as a correlation; on the validation text, a
    # value in the metric's unit.
    score: float
    unit: str  # the unit of score, low and high: "share", the measure, or that of the metric, such as "bits per byte"
    n: int  # the number of pairs, of documents of the validation text, or of test rows of a task
    # low, high: the 95 % interval; None if it is not known.
    low: float | None
    high: float | None

    @property
    def is_whole(self) -> bool:
        """Return whether this is the score of a whole suite or of the validation text."""
        return self.phenomenon == ALL == self.paradigm


def rows_of(model: ReportedModel) -> Iterator[ScoreRow]:
    """Yield the scores of a model, for the variant that users load."""
    metrics = metrics_of(model.evaluation) if model.evaluation else {}
    for code in model.languages:
        found = model.variants_of(code)
        documents = found.get("documents", {}).get("scored", 0)
        measured = found.get("variants", {}).get(model.default, {})
        for name, score in [(name, score) for name, score in measured.items() if name in metrics]:
            value, error = score["value"], score.get("standard_error")
            low, high = (None, None) if error is None else (value - Z * error, value + Z * error)
            if low is not None and high is not None and metrics[name].unit == SHARE:
                low, high = max(0.0, low), min(1.0, high)
            yield ScoreRow(model.name, code, "", name, ALL, ALL, value, unit_of(metrics[name]), documents, low, high)
        for suite, scores in model.scores.items():
            if code in scores["languages"]:
                yield from of_suite(model.name, code, suite, scores)
    for each in summarize(model.tuned):
        where = model.name, each.language, each.task, TUNED, ALL, ALL
        yield ScoreRow(*where, each.mean, SHARE, each.rows, *each.interval)


def unit_of(metric: Metric) -> str:
    """Return the unit of a metric, which says whether its scores are upper bounds."""
    return f"{metric.unit}, upper bound" if metric.bound else metric.unit


def of_suite(model: str, code: str, suite: str, scores: dict[str, Any]) -> Iterator[ScoreRow]:
    """Yield the scores of a language in scores.json: of all pairs, of the phenomena, of the paradigms."""
    of, unit = scores["headline"]["of"], measure_of(scores) or SHARE
    for method, found in scores["languages"][code]["methods"].items():
        groups = {UNNAMED if name == ALL else name: share for name, share in found["by_phenomenon"].items()}
        paradigms = found.get("by_paradigm", {})
        if paradigms.keys() == found["by_phenomenon"].keys():
            paradigms = {}  # they are the phenomena
        if groups.keys() == {UNNAMED}:  # no pair has a phenomenon: the headline says it all
            groups = {}
        shares = [(ALL, ALL, found[of]), *((name, ALL, share) for name, share in groups.items())]
        for phenomenon, paradigm, share in [*shares, *(("", name, share) for name, share in paradigms.items())]:
            if share:
                low, high = share["interval"]
                yield ScoreRow(
                    model, code, suite, method, phenomenon, paradigm, share["score"], unit, share["n"], low, high
                )


def head(model: str, code: str, suite: str, scores: dict[str, Any], method: str = "") -> ScoreRow | None:
    """Return the headline score (or that of a `method`) of a language, from scores.json or a snapshot's entry in it."""
    method = method or headline_method(scores)
    return next((row for row in of_suite(model, code, suite, scores) if row.method == method and row.is_whole), None)


def snapshots_of(model: ReportedModel) -> Iterator[tuple[float, ScoreRow]]:
    """Yield the scores of a model's snapshots, each with the millions of words after which it was kept."""
    for suite, scores in model.scores.items():
        for each in scores.get("snapshots", []):
            for code in each["languages"]:
                yield from ((each["million_words"], row) for row in of_suite(model.name, code, suite, scores | each))


def training_settings(model: ReportedModel) -> dict[str, Any]:
    """Return the settings that decide a model's weights, by dotted key, from the manifests of its stages."""
    found = {}
    for stage, sections in (("tokenizer", ("tokenizer",)), ("train", ("model", "train", "labels", "mixture"))):
        settings = model.manifest(stage)["settings"]
        for section in sections:
            found |= {f"{section}.{key}": value for key, value in (settings.get(section) or {}).items()}
    return found


def differing_settings(models: list[ReportedModel]) -> dict[str, dict[str, str]]:
    """Return, for each model, its values of the settings in which the models differ, besides their seeds, as JSON.

    Models with the same values are the same recipe.
    """
    found = {model.name: training_settings(model) for model in models if ("train", "") in model.manifests}
    keys = dict.fromkeys(key for settings in found.values() for key in settings if key != "train.seed")
    texts = {name: {key: json.dumps(settings.get(key)) for key in keys} for name, settings in found.items()}
    differ = [key for key in keys if len({settings[key] for settings in texts.values()}) > 1]
    return {name: {key: settings[key] for key in differ} for name, settings in texts.items()}


def write_csv(models: list[ReportedModel], file: IO[str]) -> None:
    """Write the table of all models: a row's attributes, the seed, and these columns.

    `million_words` says after how many words a snapshot was kept. `settings` are those of `differing_settings`, as
    `train.learning_rate=0.01 train.optimizer="lamb"`.
    """
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([*ScoreRow._fields, "million_words", "seed", "settings"])
    differing = differing_settings(models)
    for model in models:
        settings = [f"{key}={value}" for key, value in differing.get(model.name, {}).items()]
        more = training_settings(model).get("train.seed"), " ".join(settings)
        rows = [(*row, None, *more) for row in rows_of(model)]
        rows += [(*row, words, *more) for words, row in snapshots_of(model)]
        for row in rows:
            writer.writerow(f"{cell:.6g}" if isinstance(cell, float) else csv_cell(cell) for cell in row)


def metrics_of_all(models: list[ReportedModel]) -> dict[str, Metric]:
    """Return the metrics by which models were measured, by name; metrics where less is better come first."""
    found: dict[str, Metric] = {}
    for evaluation in [model.evaluation for model in models if model.evaluation]:
        measured = next(iter(evaluation["variants"].values()))
        found |= {name: metric for name, metric in metrics_of(evaluation).items() if name in measured}
    return dict(sorted(found.items(), key=lambda item: item[1].unit == SHARE))
