"""Summarise the scores of a model that was fine-tuned for tasks: the mean over seeds, and what it hides.

All readers of the scores.json of `tune` ask these functions, so that card, report and comparison name the same number.
"""

import statistics
from collections.abc import Iterable
from typing import Any, NamedTuple

from babelmill.core.words import plural
from babelmill.evaluation.statistics import over_seeds

LEAST = {"mcc": -1.0}  # the lowest score by metric; that of others is 0


class TunedScore(NamedTuple):
    """The score of a model on a task in a language, over its seeds."""

    task: str  # the name of the task
    protocol: str  # the name of the protocol by which it was fine-tuned
    language: str  # the code of the language
    metric: str  # accuracy, f1 or mcc
    mean: float  # the mean over seeds
    interval: tuple[float, float]  # its 95 % interval: over seeds, or over rows if there is one seed
    seeds: int  # how many seeds there are
    rows: int  # how many rows were scored
    # How many seeds gave all rows the same class; and these classes, each with its share of the rows.
    majority: tuple[int, dict[str, float]] | None
    test_rows: int  # how many test rows there are
    in_train: int  # how many of them are training rows, too
    without_text: int  # how many of them lack a text
    simple: float  # the score of the class that most training rows have, given to all rows
    steps: tuple[int, int]  # the fewest and the most steps that a seed made

    @property
    def text(self) -> str:
        """Return the score in percent: `68.3 (64.1 to 72.5), most frequent class 53.2, 3 seeds of 90 steps, n = 99`."""
        low, high = (100 * end for end in self.interval)
        beside = f"most frequent class {100 * self.simple:.1f}"
        steps = plural(self.steps[1], "step")
        steps = steps if self.steps[0] == self.steps[1] else f"{self.steps[0]:,} to {steps}"
        seeds = f"{plural(self.seeds, 'seed')} of {steps}"
        return f"{100 * self.mean:.1f} ({low:.1f} to {high:.1f}), {beside}, {seeds}, n = {self.rows:,}"

    @property
    def warning(self) -> str:
        """Return what is wrong if the model has learnt nothing: `majority class "no", 53.2 %`; else ""."""
        if self.majority is None:
            return "no better than the most frequent class" if self.mean <= self.simple else ""
        count, shares = self.majority
        of = "" if count == self.seeds else f" in {count} of {self.seeds} seeds"
        named = " or ".join(f'"{name}", {100 * share:.1f} %' for name, share in shares.items())
        return f"majority class {named}{of}"

    @property
    def remarks(self) -> str:
        """Return the warning, and how many test rows the model was trained on, or lack a text."""
        counts = {"also trained on": self.in_train, "without a text": self.without_text}
        rows = plural(self.test_rows, "test row")
        told = [f"{count:,} of {rows} {what}" for what, count in counts.items() if count]
        return "; ".join(filter(None, [self.warning, *told]))


def summarize(runs: Iterable[dict[str, Any]]) -> list[TunedScore]:
    """Return a score for each task and language; `runs`: the scores.json of all tasks and seeds of a model."""
    groups: dict[tuple[str, str], list[tuple[dict[str, Any], dict[str, Any]]]] = {}
    for run in runs:
        for code, entry in run["languages"].items():
            groups.setdefault((run["task"], code), []).append((run, entry))
    found = []
    for (task, code), members in groups.items():
        run, first = members[0]
        scores = [entry["score"] for _, entry in members]
        (mean, half), least = over_seeds(scores), LEAST.get(run["metric"], 0.0)
        interval = first["interval"] if half is None else (max(least, mean - half), min(1.0, mean + half))
        same = [entry["majority"] for _, entry in members if entry["majority"]]
        found.append(
            TunedScore(
                *(task, run["protocol"], code, run["metric"], mean),
                *((interval[0], interval[1]), len(members), first["n"]),
                (len(same), {each["class"]: each["share"] for each in same}) if same else None,
                first["rows"]["test"],
                *(first["test_rows_in_train"], first["test_rows_without_text"]),
                statistics.fmean(entry["most_frequent"] for _, entry in members),
                (min(entry["steps"] for _, entry in members), max(entry["steps"] for _, entry in members)),
            )
        )
    return found
