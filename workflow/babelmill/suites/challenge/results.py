"""Read what a model has for the tasks of a challenge: scores on suites, and predictions after fine-tuning.

A prediction is the option with the best score; of several, the first. (The challenge breaks ties at random.) It is
right if its text is that of the right option, as the challenge compares texts: so a pair of two equal sentences is
always right.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from babelmill.config.snapshots import name_of
from babelmill.config.submissions import Rules, Task
from babelmill.core import manifest
from babelmill.core.escape import line
from babelmill.core.files import UserError, read_json
from babelmill.suites.items import ITEMS

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
        return self._entry_in(self.scores["languages"])

    def at_checkpoints(self) -> dict[str, dict[str, Any]]:
        """Return {name of a checkpoint: the entry of the language and the method} of all scored checkpoints."""
        return {each["name"]: self._entry_in(each["languages"]) for each in self.scores.get("snapshots", [])}

    def _entry_in(self, languages: dict[str, Any]) -> dict[str, Any]:
        methods = languages.get(self.code, {}).get("methods", {})
        if self.method not in methods:
            raise UserError(
                f"{self.folder / 'scores.json'}: has no {self.method} score of {self.code}, only {', '.join(methods)};"
                " set evaluation.backend of the model to a backend whose scores it has"
            )
        return methods[self.method]

    @cached_property
    def rows(self) -> pa.Table:
        """Return the scored items of the language, in their order."""
        manifest.verify(self.folder, ITEMS)
        return pq.ParquetFile(self.folder / ITEMS).read().filter(pc.field("language") == self.code)

    def columns(self, *names: str) -> Iterator[tuple[Any, ...]]:
        """Yield the cells of some columns of each item, None where there is nothing."""
        return zip(*(self.rows[name].to_pylist() for name in names), strict=True)

    def items(self, *names: str) -> Iterator[tuple[Any, ...]]:
        """Yield the options of each item, and the cells of some columns; raise a UserError if an item has no score."""
        for options, *row in self.columns("options", *names):
            if None in row:
                raise UserError(
                    f"{self.folder}: an item of {line(self.task.suite or '')} has no {self.method} score"
                    f" ({line(options[0], 60)!r}): it is longer than the model reads, or only a sample was scored"
                    " (evaluation.max_items, max_masked_items)"
                )
            yield options, *row

    def subtask(self, paradigm: str) -> str:
        """Return how the challenge calls a paradigm of the suite."""
        return self.task.paradigms.get(paradigm, paradigm)


@dataclass(frozen=True)
class Tuned:
    """The scores of a model that was fine-tuned for the subtasks of a task."""

    folders: dict[str, Path]  # {subtask: a result of the stage `tune`}
    code: str  # the language of the model that the task is about

    def scores(self) -> dict[str, dict[str, Any]]:
        """Return {subtask: the entry of the language in scores.json}."""
        for folder in self.folders.values():
            manifest.verify(folder, "scores.json")
        return {
            name: read_json(folder / "scores.json")["languages"][self.code] for name, folder in self.folders.items()
        }

    def rows(self, subtask: str, file: str = "predictions.parquet") -> list[dict[str, Any]]:
        """Return the predictions of the language in a file."""
        manifest.verify(self.folders[subtask], file)
        rows = pq.ParquetFile(self.folders[subtask] / file).read().to_pylist()
        return [row for row in rows if row["language"] == self.code]


@dataclass(frozen=True)
class Results:
    """All that a model has for a challenge, by task; tasks without scores are left out."""

    rules: Rules
    scored: dict[str, Scored] = field(default_factory=dict)  # of the final model
    fast: dict[str, Scored] = field(default_factory=dict)  # on the suites of the checkpoints
    tuned: dict[str, Tuned] = field(default_factory=dict)
    there: frozenset[str] = frozenset()  # the checkpoints that the model has

    @cached_property
    def checkpoints(self) -> list[str]:
        """Return the names of the checkpoints that the challenge asks for."""
        return [name_of(point) for point in self.rules.points()]


def predictions(scored: Scored) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the entry of a task in the challenge's file, and {subtask: which of its predictions are right}."""
    found, points = dict[str, Any](), dict[str, list[bool]]()
    for texts, prompts, right, paradigm, scores in scored.items("prompts", "right", "paradigm", scored.method):
        if scored.task.prediction == "whole":
            texts = [prompt + option for prompt, option in zip(prompts, texts, strict=True)]
        name, pred = scored.subtask(paradigm), texts[int(np.argmax(scores))]
        of_subtask = found.setdefault(name, {"predictions": []})["predictions"]
        of_subtask.append({"id": f"{name}_{len(of_subtask)}", "pred": pred})
        points.setdefault(name, []).append(pred.strip() == texts[right].strip())
    return found, {name: np.array(each, float) for name, each in points.items()}


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
    return {
        name: {"scores": scores, "has_unk": scores.index(max(scores)) == right and points == 0}
        for _, name, right, scores, points in scored.items(
            "harness_id", "right", scored.method, f"{scored.method}_points"
        )
    }


def reading(scored: Scored) -> dict[str, Any]:
    """Return the entry of the reading task: the surprisal of each word, and of the word before it."""
    rows = scored.columns("item_id", scored.method, f"{scored.method}_prev")
    found = [{"id": number, "pred": number_of(own), "prev_pred": number_of(before)} for number, own, before in rows]
    return {"reading": {"predictions": found}}


def number_of(value: float | None) -> float:
    """Return a number; NaN if there is none, which the challenge's files hold, too."""
    return float("nan") if value is None else float(value)


def surprisals(scored: Scored, model: str, checkpoints: list[str]) -> dict[str, Any]:
    """Return the surprisals of words in contexts at all checkpoints of the challenge, for the age of acquisition."""
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
        for step, words, word, number, context, value in scored.columns(*names)
        if step in checkpoints
    ]
    done = len({each["step"] for each in found})
    about = {"model_name": model, "use_bos_only": False, "total_steps": len(checkpoints), "completed_steps": done}
    return {"metadata": about, "results": found}


def classes(tuned: Tuned) -> dict[str, Any]:
    """Return the entry of a task in the file of a strict track: the number of each row's class."""
    found = {}
    for name, score in tuned.scores().items():
        labels = [score["classes"].index(row["prediction"]) for row in tuned.rows(name)]
        found[name] = {"predictions": [{"id": f"{name}_{i}", "pred": label} for i, label in enumerate(labels)]}
    return found


def labels(tuned: Tuned, tags: bool) -> list[dict[str, Any]]:
    """Return the entry of a task in the file of the multilingual track: the label of each row.

    `tags`: return those of the words of each sentence that is only predicted, without words that have none, as the
    challenge's script does it.
    """
    (name,) = tuned.folders
    rows = tuned.rows(name, "predicted.parquet" if tags else "predictions.parquet")
    found: dict[int, list[str]] = {}
    for number, row in enumerate(rows):
        found.setdefault(row["sentence"] if tags else number, []).extend(filter(None, [row["prediction"]]))
    return [{"index": i, "prediction": " ".join(each)} for i, each in found.items()]
