"""Read what a model scored on the suite of a task: what it predicts for each item, and its numbers at the checkpoints.

A prediction is the option with the best score; of several, the first. (The challenge breaks ties at random, and lets an
option without a score lose.) A prediction is right if its text is that of the right option, as the challenge compares
texts: so a pair of two equal sentences is always right.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from babelmill.config.submissions import Task
from babelmill.core import manifest
from babelmill.core.escape import line
from babelmill.core.files import UserError, read_json

PAIRS, ITEMS = "pairs.parquet", "items.parquet"
READING = ("spr", "rt")  # the parts of a reading score, in the order of the challenge's file


@dataclass(frozen=True)
class Scored:
    """The scores of a model on the suite of a task."""

    folder: Path  # a result of the stage `score`
    task: Task  # the task
    code: str  # the language of the model that the task is about
    method: str  # how items are scored: causal or masked

    @cached_property
    def scores(self) -> dict[str, Any]:
        manifest.verify(self.folder, "scores.json")
        return read_json(self.folder / "scores.json")

    @property
    def entry(self) -> dict[str, Any]:
        """Return the entry of the language and the method in scores.json."""
        return self._entry_in(self.scores["languages"], self.folder / "scores.json")

    def _entry_in(self, languages: dict[str, Any], where: Path) -> dict[str, Any]:
        if self.code not in languages:
            raise UserError(f"{where}: has no scores of {self.code}")
        methods = languages[self.code]["methods"]
        if self.method not in methods:
            raise UserError(
                f"{where}: has no {self.method} score, only {', '.join(methods)}; set evaluation.backend of the model"
                " to a backend whose scores it has"
            )
        return methods[self.method]

    @cached_property
    def rows(self) -> pa.Table:
        """Return the scored items of the language, in their order."""
        name = ITEMS if "kind" in self.scores else PAIRS  # pairs have no `kind` there
        manifest.verify(self.folder, name)
        table = pq.ParquetFile(self.folder / name).read()
        return table.filter(pa.array([code == self.code for code in table["language"].to_pylist()], pa.bool_()))

    def at_checkpoints(self) -> dict[str, dict[str, Any]]:
        """Return {name of a checkpoint: the entry of the language and the method} of all scored checkpoints."""
        where = self.folder / "scores.json"
        return {each["name"]: self._entry_in(each["languages"], where) for each in self.scores.get("snapshots", [])}

    def subtask(self, paradigm: str) -> str:
        """Return how the challenge calls a paradigm of the suite."""
        return self.task.paradigms.get(paradigm, paradigm)


def predictions(scored: Scored) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the entry of a task in the challenge's file, and {subtask: which of its predictions are right}."""
    rows, method = scored.rows, scored.method
    if "good" in rows.column_names:
        options = list(zip(rows["good"].to_pylist(), rows["bad"].to_pylist(), strict=True))
        scores = list(zip(rows[f"{method}_good"].to_pylist(), rows[f"{method}_bad"].to_pylist(), strict=True))
        prompts, right = [("", "")] * len(rows), [0] * len(rows)
    else:
        names = ("prompts", "options", "right", method)
        prompts, options, right, scores = (rows[name].to_pylist() for name in names)
    whole = scored.task.prediction == "whole"
    found: dict[str, Any] = {}
    points: dict[str, list[bool]] = {}
    for subtask, before, texts, best, values in zip(
        rows["paradigm"].to_pylist(), prompts, options, right, scores, strict=True
    ):
        if values is None or all(is_missing(value) for value in values):
            raise without_score(scored, subtask, texts[best])
        if whole:
            texts = [start + text for start, text in zip(before, texts, strict=True)]
        chosen = max(range(len(texts)), key=lambda i: -np.inf if is_missing(values[i]) else values[i])
        name = scored.subtask(subtask)
        of_subtask = found.setdefault(name, {"predictions": []})["predictions"]
        of_subtask.append({"id": f"{name}_{len(of_subtask)}", "pred": texts[chosen]})
        points.setdefault(name, []).append(texts[chosen].strip() == texts[best].strip())
    return found, {name: np.array(each, float) for name, each in points.items()}


def without_score(scored: Scored, subtask: str, text: str) -> UserError:
    """Return the error about an item that has no score."""
    return UserError(
        f"{scored.folder}: an item of {line(subtask)} has no {scored.method} score ({text[:60]!r}): it is longer than"
        " the model reads, or only a sample was scored (evaluation.pairs, masked_pairs)"
    )


def hidden(scored: Scored) -> dict[str, Any]:
    """Return the entry of a task that the challenge scores itself: {name of the item: its scores}.

    An item is marked as one with an unknown token if it is wrong although the right option is the first with the best
    score: as by the challenge's program, this is so for two equal scores, too.
    """
    if "harness_id" not in scored.rows.column_names:
        raise UserError(
            f"{scored.folder}: its items have no `harness_id`, by which the challenge knows them; set"
            f" suites.{scored.task.suite}.harness_ids: true"
        )
    columns = ("harness_id", "options", "right", scored.method, f"{scored.method}_points")
    found: dict[str, Any] = {}
    for name, options, right, scores, points in zip(*(scored.rows[each].to_pylist() for each in columns), strict=True):
        if scores is None:
            raise without_score(scored, str(scored.task.suite), options[right])
        found[name] = {"scores": scores, "has_unk": scores.index(max(scores)) == right and points == 0}
    return found


def is_missing(value: float | None) -> bool:
    """Return whether a score is none."""
    return value is None or bool(np.isnan(value))


def reading(scored: Scored) -> dict[str, Any]:
    """Return the entry of the reading task: the surprisal of each word, and of the word before it."""
    rows, method = scored.rows, scored.method
    columns = (rows[name].to_pylist() for name in ("item_id", method, f"{method}_prev"))
    found = [
        {"id": number, "pred": number_of(own), "prev_pred": number_of(before)}
        for number, own, before in zip(*columns, strict=True)
    ]
    return {"reading": {"predictions": found}}


def number_of(value: float | None) -> float:
    """Return a number; NaN if there is none, which the challenge's files hold, too."""
    return float("nan") if value is None else float(value)


def surprisals(scored: Scored, model: str, checkpoints: list[str]) -> dict[str, Any]:
    """Return the surprisals of words in contexts at all checkpoints of the challenge, for the age of acquisition."""
    rows, wanted = scored.rows, set(checkpoints)
    names = ("snapshot", "million_words", "target_word", "context_id", "context", scored.method)
    found = [
        {
            "step": step,
            "word_count": round(1e6 * words),
            "target_word": word,
            "context_id": number,
            "context": context,
            "surprisal": number_of(value),
        }
        for step, words, word, number, context, value in zip(*(rows[name].to_pylist() for name in names), strict=True)
        if step in wanted
    ]
    done = len({each["step"] for each in found})
    about = {"model_name": model, "use_bos_only": False, "total_steps": len(checkpoints), "completed_steps": done}
    return {"metadata": about, "results": found}
