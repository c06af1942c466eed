"""Compute the numbers of a challenge's leaderboard, each with a 95 % interval.

Numbers are in percent. A number is the mean of its tasks, a task the mean of its subtasks, and what is missing counts 0
there and here. Intervals of means combine the standard errors of their parts, which are taken to be independent.
"""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from babelmill.config.submissions import Rules
from babelmill.suites.challenge.results import Results
from babelmill.suites.results import mean_of_groups, share


@dataclass(frozen=True)
class Score:
    """A score in percent."""

    value: float  # the score
    half: float = 0.0  # the half of its 95 % interval
    missing: list[str] = field(default_factory=list)  # why it, or a part of it, counts 0
    least: float = 0.0  # the least score that is possible; the most is 100

    def as_json(self) -> dict[str, Any]:
        interval = [max(self.least, self.value - self.half), min(100.0, self.value + self.half)]
        return {"score": self.value, "interval": interval, "missing": self.missing}


def mean(scores: Sequence[Score]) -> Score:
    """Return the mean of scores."""
    half = math.sqrt(sum(each.half**2 for each in scores)) / len(scores)
    missing = list(dict.fromkeys(reason for each in scores for reason in each.missing))
    value, least = (sum(each) / len(scores) for each in zip(*((s.value, s.least) for s in scores), strict=True))
    return Score(value, half, missing, least)


def of_entry(entry: dict[str, Any]) -> Score:
    """Return a score of scores.json in percent."""
    low, high = entry.get("interval") or (entry["score"], entry["score"])
    return Score(100 * entry["score"], 50 * (high - low))


def of_task(of: Results, name: str, right: dict[str, np.ndarray], missing: str) -> Score:
    """Return the score of a task: the mean of its subtasks, of which those that are missing count 0.

    `right`: {subtask: which of its predictions are right}. `missing`: why the task counts 0; "" if it does not.
    """
    task, scored, tuned = of.rules.tasks[name], of.scored.get(name), of.tuned.get(name)
    if tuned:
        found = {subtask: of_entry(entry) for subtask, entry in tuned.scores().items()}
        lacking = [subtask for subtask in task.tuned if subtask not in found]
        none = [Score(0.0, missing=[f"{name}: the model is not fine-tuned for {subtask}"]) for subtask in lacking]
        return mean([*found.values(), *none])
    if missing or scored is None:
        return Score(0.0, missing=[f"{name}: {missing}"])
    if task.kind == "acquisition":
        return dataclasses.replace(of_entry(scored.entry["pairs"]), least=-100.0)  # a correlation
    if task.kind in ("reading", "accuracy", "hidden"):  # of reading, the mean of both parts; their words are the same
        return of_entry(scored.entry["pairs"])
    if task.kind == "examples":
        return of_entry(share(np.concatenate([*right.values()])))
    there = {each.lower() for each in right}
    lacking = [each for each in task.subtasks() if each.lower() not in there]
    whole, part = of_entry(mean_of_groups(right.values())), len(there) / (len(there) + len(lacking))
    reasons = [f"{name}: no items of {subtask}" for subtask in lacking]
    return Score(part * whole.value, part * whole.half, reasons)


def numbers(of: Results, right: dict[str, dict[str, np.ndarray]], missing: dict[str, str]) -> dict[str, Score]:
    """Return the numbers of the leaderboard.

    `right`: {task: {subtask: which of its predictions are right}}. `missing`: {task: why it has no scores, or why those
    that it has do not count}.
    """
    tasks = {name: of_task(of, name, right.get(name, {}), missing.get(name, "")) for name in of.rules.tasks}
    return {name: mean([tasks[task] for task in each.tasks]) for name, each in of.rules.numbers.items()}


def overall(rules: Rules, found: dict[str, Score]) -> Score:
    """Return the leaderboard's number: the mean of the numbers; with groups, the mean of the groups' means."""
    groups: dict[str, list[Score]] = {}
    for name, each in rules.numbers.items():
        groups.setdefault(each.group, []).append(found[name])
    return mean([mean(group) for group in groups.values()])
