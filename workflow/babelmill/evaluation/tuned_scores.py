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
    language: str  # the code of the language
    metric: str  # accuracy, f1 or mcc
    mean: float  # the mean over seeds
    interval: tuple[float, float]  # its 95 % interval: over seeds, or over rows if there is one seed
    seeds: int  # how many seeds there are
    rows: int  # how many rows were scored
    simple: float  # the score of the class that most training rows have, given to all rows
    entries: list[dict[str, Any]]  # what scores.json says of each seed

    @property
    def text(self) -> str:
        """Return the score in percent: `68.3 (64.1 to 72.5), most frequent class 53.2, 3 seeds of 90 steps, n = 99`."""
        low, high = (100 * end for end in self.interval)
        steps = [entry["steps"] for entry in self.entries]
        made = "" if min(steps) == max(steps) else f"{min(steps):,} to "
        beside = f"most frequent class {100 * self.simple:.1f}"
        seeds = f"{plural(self.seeds, 'seed')} of {made}{plural(max(steps), 'step')}"
        return f"{100 * self.mean:.1f} ({low:.1f} to {high:.1f}), {beside}, {seeds}, n = {self.rows:,}"

    @property
    def warning(self) -> str:
        """Return what is wrong if the model has learnt nothing: `majority class "no", 53.2 %`; else ""."""
        same = [entry["majority"] for entry in self.entries if entry["majority"]]
        if not same:
            return "no better than the most frequent class" if self.mean <= self.simple else ""
        of = "" if len(same) == self.seeds else f" in {len(same)} of {self.seeds} seeds"
        shares = {each["class"]: each["share"] for each in same}
        named = " or ".join(f'"{name}", {100 * share:.1f} %' for name, share in shares.items())
        return f"majority class {named}{of}"

    @property
    def remarks(self) -> str:
        """Return the warning, and how many test rows the model was trained on, or lack a text."""
        first = self.entries[0]
        counts = {"also trained on": first["test_rows_in_train"], "without a text": first["test_rows_without_text"]}
        rows = plural(first["rows"]["test"], "test row")
        told = [f"{count:,} of {rows} {what}" for what, count in counts.items() if count]
        return "; ".join(filter(None, [self.warning, *told]))


def summarize(runs: Iterable[dict[str, Any]]) -> list[TunedScore]:
    """Return a score for each task and language; `runs`: the scores.json of all tasks and seeds of a model."""
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for run in runs:
        for code, entry in run["languages"].items():
            groups.setdefault((run["task"], code, run["metric"]), []).append(entry)
    found = []
    for (task, code, metric), entries in groups.items():
        (mean, half), least = over_seeds([entry["score"] for entry in entries]), LEAST.get(metric, 0.0)
        low, high = entries[0]["interval"] if half is None else (max(least, mean - half), min(1.0, mean + half))
        simple = statistics.fmean(entry["most_frequent"] for entry in entries)
        rows = entries[0]["n"]
        found.append(TunedScore(task, code, metric, mean, (low, high), len(entries), rows, simple, entries))
    return found
