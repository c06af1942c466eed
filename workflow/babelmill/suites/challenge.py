"""Make what a challenge takes: the files in its form, its own checks, and the leaderboard's numbers.

`config/submissions/` says what a challenge takes. A prediction is the option with the best score; of several, the
first. (The challenge breaks ties at random.) It is right if its text is that of the right option, as the challenge
compares texts: so a pair of two equal sentences is always right.

Strict tracks: one file with the predictions of all tasks and the scores of the checkpoints. A task without scores is
null there, and a checkpoint without scores, too. Multilingual track: one file of scores, and one of predictions.

Numbers of the leaderboard are in percent, each with a 95 % interval. A number is the mean of its tasks, a task the mean
of its subtasks, and what is missing counts 0 there and here. Intervals of means combine the standard errors of their
parts, which are taken to be independent.
"""

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from huggingface_hub import ModelCard

from babelmill.config.snapshots import name_of
from babelmill.config.submissions import Rules, Task
from babelmill.core import manifest
from babelmill.core.escape import line
from babelmill.core.files import UserError, atomic_write, read_json
from babelmill.suites.items import ITEMS
from babelmill.suites.results import mean_of_groups, share

READING = ("spr", "rt")  # the parts of a reading score, in the order of the challenge's file
SHORTEST_CARD = 200  # characters of a model card's text


# What a model has.


def read_scores(folder: Path) -> dict[str, Any]:
    """Return the content of scores.json in a result."""
    manifest.verify(folder, "scores.json")
    return read_json(folder / "scores.json")


def read_rows(folder: Path, file: str, code: str) -> pa.Table:
    """Return the rows of a language in a table of a result, in their order."""
    manifest.verify(folder, file)
    return pq.ParquetFile(folder / file).read().filter(pc.field("language") == code)


@dataclass(frozen=True)
class Scored:
    """The scores of a model on the suite of a task."""

    folder: Path  # a result of the stage `score`
    task: Task  # the task
    code: str  # the language of the model that the task is about
    method: str  # how items are scored: causal or masked

    @cached_property
    def scores(self) -> dict[str, Any]:
        return read_scores(self.folder)

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
        """Return the scored items of the language."""
        return read_rows(self.folder, ITEMS, self.code)

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

    @cached_property
    def answers(self) -> dict[str, list[tuple[str, bool]]]:
        """Return {subtask: for each item, the text that the model predicts, and whether it is right}."""
        found: dict[str, list[tuple[str, bool]]] = {}
        for texts, prompts, right, paradigm, scores in self.items("prompts", "right", "paradigm", self.method):
            if self.task.prediction == "whole":
                texts = [prompt + option for prompt, option in zip(prompts, texts, strict=True)]
            answer = texts[int(np.argmax(scores))]
            of_subtask = found.setdefault(self.subtask(paradigm), [])
            of_subtask.append((answer, answer.strip() == texts[right].strip()))
        return found

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
        return {name: read_scores(folder)["languages"][self.code] for name, folder in self.folders.items()}

    def rows(self, subtask: str, file: str = "predictions.parquet") -> list[dict[str, Any]]:
        """Return the predictions of the language in a file."""
        return read_rows(self.folders[subtask], file, self.code).to_pylist()


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


# The entries of the files.


def predictions(of: dict[str, list[Any]]) -> dict[str, Any]:
    """Return the entry of a task in the file of a strict track, from the predictions of each subtask."""
    return {
        name: {"predictions": [{"id": f"{name}_{i}", "pred": pred} for i, pred in enumerate(each)]}
        for name, each in of.items()
    }


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


def classes(tuned: Tuned) -> dict[str, list[int]]:
    """Return the number of the class that is predicted for each row of each subtask."""
    return {
        name: [score["classes"].index(row["prediction"]) for row in tuned.rows(name)]
        for name, score in tuned.scores().items()
    }


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


# The files.


def strict(of: Results, model: str) -> dict[str, Any]:
    """Return the content of the file for a strict track."""
    content = dict[str, Any]()
    for name, task in of.rules.tasks.items():
        scored = of.scored.get(name)
        if task.kind == "acquisition":
            # The challenge's program takes surprisals at all checkpoints or none; the leaderboard takes no age without.
            complete = scored is not None and not lacking_checkpoints(scored, of.checkpoints)
            content[f"{name}_surprisals"] = surprisals(scored, model, of.checkpoints) if scored and complete else None
            content[name] = scored and {name: scored.entry["pairs"]["score"]}
        elif task.kind == "labels":
            content[name] = predictions(classes(of.tuned[name])) if name in of.tuned else {}
        elif scored is None:
            content[name] = None
        elif task.kind == "reading":
            content[name] = reading(scored)
        else:
            content[name] = predictions({part: [text for text, _ in each] for part, each in scored.answers.items()})
    fast = [name for name, task in of.rules.tasks.items() if task.fast]
    return content | {"fast_eval_results": {name: at_checkpoints(of, name) for name in fast}}


def lacking_checkpoints(scored: Scored, checkpoints: list[str]) -> list[str]:
    """Return the checkpoints at which there are no surprisals of words for the age of acquisition."""
    there = set(scored.rows["snapshot"].to_pylist())
    return [name for name in checkpoints if name not in there]


def at_checkpoints(of: Results, name: str) -> list[dict[str, float] | None]:
    """Return the scores of each subtask at each checkpoint; null for a checkpoint that does not exist.

    A UserError says that the model has a checkpoint, but no scores of it.
    """
    if not (scored := of.fast.get(name)):
        return [None] * len(of.checkpoints)
    entries = scored.at_checkpoints()
    if lacking := [each for each in of.checkpoints if each in of.there and each not in entries]:
        raise UserError(
            f"{scored.folder / 'scores.json'}: has no scores of the snapshot {lacking[0]}; add {scored.task.fast} to"
            " evaluation.snapshot_suites, or delete the folder, then it is scored again"
        )
    return [at_checkpoint(name, scored, entries[each]) if each in entries else None for each in of.checkpoints]


def at_checkpoint(name: str, scored: Scored, entry: dict[str, Any]) -> dict[str, float]:
    """Return the scores of each subtask at a checkpoint."""
    if scored.task.kind in ("examples", "accuracy", "hidden"):
        return {name: entry["pairs"]["score"]}
    if scored.task.kind == "reading":
        return {part: entry["by_paradigm"][part]["score"] for part in READING}
    return {scored.subtask(paradigm): each["score"] for paradigm, each in entry["by_paradigm"].items()}


def multilingual(of: Results) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the content of the files of scores and of predictions for the multilingual track.

    What the challenge scores itself is in the predictions alone, item by item. At the checkpoints, it is scored here.
    """
    wholes, tasks = {name: scored.entry["pairs"] for name, scored in of.scored.items()}, of.rules.tasks
    scores = {name: {name: whole["score"]} for name, whole in wholes.items() if tasks[name].kind != "hidden"}
    for name, each in of.tuned.items():
        task, code = name.rsplit("_", 1)
        (score,) = each.scores().values()
        scores.setdefault(task, {})[code] = score["metrics"]["accuracy"]["score"]
    raw: dict[str, Any] = {}
    for name, whole in wholes.items():
        metric, right = "acc_norm" if tasks[name].normalized else "acc", whole["score"]
        error = math.sqrt(right * (1 - right) / max(whole["n"] - 1, 1))  # as lm-evaluation-harness estimates it
        raw[name] = {"alias": f" - {name}", f"{metric},none": right, f"{metric}_stderr,none": error}
    content = {
        "zeroshot": raw,
        "finetune": {name: labels(each, tasks[name].kind == "tags") for name, each in of.tuned.items()},
        "hidden": {name: hidden(scored) for name, scored in of.scored.items() if tasks[name].kind == "hidden"},
    }
    if of.fast:
        found = zip(*(at_checkpoints(of, name) for name in of.fast), strict=True)
        content["fast_eval_results"] = [
            {name: value for each in at if each for name, value in each.items()} for at in found
        ]
    return scores, content


def write_file(path: Path, content: Any, indent: int | None = None) -> None:
    """Write JSON; NaN stays NaN, which is no JSON, but what the challenge's programs write and read."""
    with atomic_write(path, "w") as file:
        json.dump(content, file, indent=indent)


# What the challenge would refuse, a line for each reason. What is merely missing is not refused: it counts 0.


def wrong_in_strict(content: dict[str, Any], rules: Rules) -> Iterator[str]:
    """Yield what the challenge would refuse in the predictions for a strict track."""
    for name, task in rules.tasks.items():
        entry = content.get(f"{name}_surprisals" if task.kind == "acquisition" else name) or {}
        if task.kind == "acquisition":
            counts = Counter(row["step"] for row in entry.get("results", []))
        elif task.kind == "examples":
            counts = {name: len(entry)} if entry else {}
        else:
            counts = {subtask: len(each["predictions"]) for subtask, each in entry.items()}
        yield from wrong_sizes(name, counts, task.subtasks() or dict.fromkeys(counts, task.sizes))


def wrong_at_checkpoints(of: Results, name: str) -> Iterator[str]:
    """Yield what the challenge would refuse in the scores of a task at the checkpoints.

    The regressions of reading times leave out words without some figure, so they have no fixed size.
    """
    scored, task = of.fast[name], of.fast[name].task
    for checkpoint, entry in scored.at_checkpoints().items():
        if checkpoint not in of.checkpoints or task.kind == "reading":
            continue
        counts = {scored.subtask(paradigm): share["n"] for paradigm, share in entry["by_paradigm"].items()}
        sizes: Mapping[str, Any] = task.subtasks(fast=True)
        if task.kind == "examples":
            counts, sizes = {name: entry["pairs"]["n"]}, {name: task.sizes}
        where, there = f"{name} at {checkpoint}", {each.lower() for each in counts}
        yield from wrong_sizes(where, counts, sizes)
        yield from (f"{where}: {each} is missing" for each in sizes if each.lower() not in there)


def wrong_sizes(where: str, counts: Mapping[str, int], sizes: Mapping[str, Any]) -> Iterator[str]:
    """Yield each subtask that the challenge does not have, or that has another number of items there."""
    known = {subtask.lower(): size for subtask, size in sizes.items()}
    for subtask, count in counts.items():
        if subtask.lower() not in known:
            yield f"{where}: the challenge has no subtask {subtask}"
        elif count != (size := known[subtask.lower()]):
            yield f"{where}: {subtask} has {count:,} items, but the challenge's data has {size:,}"


def wrong_in_card(folder: Path) -> Iterator[str]:
    """Yield what the challenge would refuse in the model card of a folder: it wants a licence and a description."""
    path = folder / "README.md"
    if not path.is_file():
        yield f"{path}: there is no model card"
        return
    card = ModelCard.load(path)
    about = card.data.to_dict()
    if not about.get("license") and not all(about.get(key) for key in ("license_name", "license_link")):
        yield f"{path}: the model card names no licence; set card.license"
    if len(card.text) < SHORTEST_CARD:
        yield (
            f"{path}: the text of the model card has {len(card.text)} characters, but the challenge wants"
            f" {SHORTEST_CARD}; set card.description"
        )


# The numbers of the leaderboard.


class Score(NamedTuple):
    """A score in percent."""

    value: float  # the score
    half: float = 0.0  # the half of its 95 % interval
    missing: tuple[str, ...] = ()  # why it, or a part of it, counts 0
    least: float = 0.0  # the least score that is possible; the most is 100

    def as_json(self) -> dict[str, Any]:
        interval = [max(self.least, self.value - self.half), min(100.0, self.value + self.half)]
        return {"score": self.value, "interval": interval, "missing": [*self.missing]}


def mean(scores: Sequence[Score]) -> Score:
    """Return the mean of scores."""
    half = math.sqrt(sum(each.half**2 for each in scores)) / len(scores)
    missing = dict.fromkeys(reason for each in scores for reason in each.missing)
    value, least = (sum(each) / len(scores) for each in zip(*((s.value, s.least) for s in scores), strict=True))
    return Score(value, half, tuple(missing), least)


def of_entry(entry: dict[str, Any]) -> Score:
    """Return a score of scores.json in percent."""
    low, high = entry.get("interval") or (entry["score"], entry["score"])
    return Score(100 * entry["score"], 50 * (high - low))


def of_task(of: Results, name: str, missing: str) -> Score:
    """Return the score of a task: the mean of its subtasks, of which those that are missing count 0.

    `missing`: why the model has no scores of the task.
    """
    task, scored, tuned = of.rules.tasks[name], of.scored.get(name), of.tuned.get(name)
    if tuned:
        found = tuned.scores()
        lacking = [f"{name}: the model is not fine-tuned for {part}" for part in task.tuned if part not in found]
        return mean([*map(of_entry, found.values()), *(Score(0.0, missing=(reason,)) for reason in lacking)])
    if scored and task.kind == "acquisition" and lacking_checkpoints(scored, of.checkpoints):
        scored, missing = None, "the challenge takes it only with all checkpoints"
    if scored is None:
        return Score(0.0, missing=(f"{name}: {missing}",))
    if task.kind == "acquisition":
        return of_entry(scored.entry["pairs"])._replace(least=-100.0)  # a correlation
    if task.kind in ("reading", "accuracy", "hidden"):  # of reading, the mean of both parts; their words are the same
        return of_entry(scored.entry["pairs"])
    right = {part: np.array([right for _, right in each], float) for part, each in scored.answers.items()}
    if task.kind == "examples":
        return of_entry(share(np.concatenate([*right.values()])))
    there = {each.lower() for each in right}
    reasons = [f"{name}: no items of {part}" for part in task.subtasks() if part.lower() not in there]
    whole, part = of_entry(mean_of_groups(right.values())), len(there) / (len(there) + len(reasons))
    return Score(part * whole.value, part * whole.half, tuple(reasons))


def numbers(of: Results, missing: dict[str, str]) -> dict[str, Score]:
    """Return the numbers of the leaderboard; `missing`: {task: why the model has no scores of it}."""
    tasks = {name: of_task(of, name, missing.get(name, "")) for name in of.rules.tasks}
    return {name: mean([tasks[task] for task in each.tasks]) for name, each in of.rules.numbers.items()}


def overall(rules: Rules, found: dict[str, Score]) -> Score:
    """Return the leaderboard's number: the mean of the numbers; with groups, the mean of the groups' means."""
    groups: dict[str, list[Score]] = {}
    for name, each in rules.numbers.items():
        groups.setdefault(each.group, []).append(found[name])
    return mean([mean(group) for group in groups.values()])
