"""Make the files that a challenge takes (`config/submissions/`), in the form that its own programs write.

Strict tracks: one file with the predictions of all tasks and the scores of the checkpoints. A task without scores is
null there, and a checkpoint without scores, too. Multilingual track: one file of scores, and one of predictions.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from babelmill.config.submissions import Rules
from babelmill.core.files import UserError, atomic_write
from babelmill.suites.challenge import tuned
from babelmill.suites.challenge.scored import READING, Scored, hidden, predictions, reading, surprisals
from babelmill.suites.challenge.tuned import Tuned


def strict(
    rules: Rules,
    scored: dict[str, Scored],
    fast: dict[str, Scored],
    checkpoints: list[str],
    there: set[str],
    model: str,
    of_tuned: dict[str, Tuned],
) -> tuple[dict[str, Any], dict[str, dict[str, np.ndarray]]]:
    """Return the content of the file for a strict track, and {task: {subtask: which predictions are right}}.

    `scored`, `of_tuned`: the scores of the final model by task, and those after fine-tuning; tasks without scores are
    left out. `fast`: the same for the suites of the checkpoints. `checkpoints`: the names of all that the challenge
    asks for; `there`: those that the model has.
    """
    content: dict[str, Any] = {}
    right: dict[str, dict[str, np.ndarray]] = {}
    for name, task in rules.tasks.items():
        of_task = scored.get(name)
        if task.kind == "acquisition":
            # The challenge's program takes surprisals at all checkpoints or none; the leaderboard takes no age without.
            complete = of_task is not None and not lacking_checkpoints(of_task, checkpoints)
            content[f"{name}_surprisals"] = surprisals(of_task, model, checkpoints) if of_task and complete else None
            content[name] = of_task and {name: of_task.entry["pairs"]["score"]}
        elif task.kind == "labels":
            content[name] = tuned.predictions(of_tuned[name]) if name in of_tuned else {}
        elif task.kind == "reading":
            content[name] = of_task and reading(of_task)
        elif of_task:
            content[name], right[name] = predictions(of_task)
        else:
            content[name] = None
    content["fast_eval_results"] = {
        name: at_checkpoints(name, fast.get(name), checkpoints, there)
        for name, task in rules.tasks.items()
        if task.fast
    }
    return content, right


def lacking_checkpoints(scored: Scored, checkpoints: list[str]) -> list[str]:
    """Return the checkpoints at which there are no surprisals of words for the age of acquisition."""
    there = set(scored.rows["snapshot"].to_pylist())
    return [name for name in checkpoints if name not in there]


def at_checkpoints(
    name: str, scored: Scored | None, checkpoints: list[str], there: set[str]
) -> list[dict[str, float] | None]:
    """Return the scores of each subtask at each checkpoint; null for a checkpoint that does not exist.

    A UserError says that the model has a checkpoint, but no scores of it.
    """
    entries = scored.at_checkpoints() if scored else {}
    if scored and (lacking := [each for each in checkpoints if each in there and each not in entries]):
        raise UserError(
            f"{scored.folder / 'scores.json'}: has no scores of the snapshot {lacking[0]}; add {scored.task.fast} to"
            " evaluation.snapshot_suites, or delete the folder, then it is scored again"
        )
    return [at_checkpoint(name, scored, entries[each]) if scored and each in entries else None for each in checkpoints]


def at_checkpoint(name: str, scored: Scored, entry: dict[str, Any]) -> dict[str, float]:
    """Return the scores of each subtask at a checkpoint."""
    if scored.task.kind in ("examples", "accuracy", "hidden"):
        return {name: entry["pairs"]["score"]}
    if scored.task.kind == "reading":
        return {part: entry["by_paradigm"][part]["score"] for part in READING}
    return {scored.subtask(paradigm): each["score"] for paradigm, each in entry["by_paradigm"].items()}


def multilingual(
    rules: Rules,
    scored: dict[str, Scored],
    fast: dict[str, Scored],
    checkpoints: list[str],
    there: set[str],
    of_tuned: dict[str, Tuned],
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the content of the files of scores and of predictions for the multilingual track; see `strict`.

    What the challenge scores itself is in the predictions alone, item by item. At the checkpoints, it is scored here.
    """
    shares = {name: of_task.entry["pairs"] for name, of_task in scored.items()}
    of_challenge = [name for name in scored if rules.tasks[name].kind == "hidden"]
    scores = {name: {name: share["score"]} for name, share in shares.items() if name not in of_challenge}
    for name, each in of_tuned.items():
        task, code = name.rsplit("_", 1)
        (score,) = each.scores().values()
        scores.setdefault(task, {})[code] = score["metrics"]["accuracy"]["score"]
    raw: dict[str, Any] = {}
    for name, share in shares.items():
        metric = "acc_norm" if rules.tasks[name].normalized else "acc"
        raw[name] = {"alias": f" - {name}", f"{metric},none": share["score"]}
        raw[name][f"{metric}_stderr,none"] = standard_error(share)
    found = [at_checkpoints(name, of_task, checkpoints, there) for name, of_task in fast.items()]
    of_checkpoints = [
        {name: value for each in at if each for name, value in each.items()} for at in zip(*found, strict=True)
    ]
    content = {
        "zeroshot": raw,
        "finetune": {
            name: tuned.tags(each) if rules.tasks[name].kind == "tags" else tuned.indexed(each)
            for name, each in of_tuned.items()
        },
        "hidden": {name: hidden(scored[name]) for name in of_challenge},
    }
    return scores, content | ({"fast_eval_results": of_checkpoints} if of_checkpoints else {})


def standard_error(share: dict[str, Any]) -> float:
    """Return the standard error of a share, as lm-evaluation-harness estimates it."""
    return float(np.sqrt(share["score"] * (1 - share["score"]) / max(share["n"] - 1, 1)))


def write(path: Path, content: Any, indent: int | None = None) -> None:
    """Write JSON; NaN stays NaN, which is no JSON, but what the challenge's programs write and read."""
    with atomic_write(path, "w") as file:
        json.dump(content, file, indent=indent)
