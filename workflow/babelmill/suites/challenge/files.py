"""Make the files that a challenge takes (`config/submissions/`), in the form that its own programs write.

Strict tracks: one file with the predictions of all tasks and the scores of the checkpoints. A task without scores is
null there, and a checkpoint without scores, too. Multilingual track: one file of scores, and one of predictions.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from babelmill.core.files import UserError, atomic_write
from babelmill.suites.challenge.results import (
    READING,
    Results,
    Scored,
    classes,
    hidden,
    labels,
    predictions,
    reading,
    surprisals,
)


def strict(of: Results, model: str) -> tuple[dict[str, Any], dict[str, dict[str, np.ndarray]]]:
    """Return the content of the file for a strict track, and {task: {subtask: which predictions are right}}."""
    content, right = dict[str, Any](), dict[str, dict[str, np.ndarray]]()
    for name, task in of.rules.tasks.items():
        scored = of.scored.get(name)
        if task.kind == "acquisition":
            # The challenge's program takes surprisals at all checkpoints or none; the leaderboard takes no age without.
            complete = scored is not None and not lacking_checkpoints(scored, of.checkpoints)
            content[f"{name}_surprisals"] = surprisals(scored, model, of.checkpoints) if scored and complete else None
            content[name] = scored and {name: scored.entry["pairs"]["score"]}
        elif task.kind == "labels":
            content[name] = classes(of.tuned[name]) if name in of.tuned else {}
        elif task.kind == "reading":
            content[name] = scored and reading(scored)
        elif scored:
            content[name], right[name] = predictions(scored)
        else:
            content[name] = None
    fast = [name for name, task in of.rules.tasks.items() if task.fast]
    return content | {"fast_eval_results": {name: at_checkpoints(of, name) for name in fast}}, right


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
    shares, tasks = {name: scored.entry["pairs"] for name, scored in of.scored.items()}, of.rules.tasks
    scores = {name: {name: share["score"]} for name, share in shares.items() if tasks[name].kind != "hidden"}
    for name, each in of.tuned.items():
        task, code = name.rsplit("_", 1)
        (score,) = each.scores().values()
        scores.setdefault(task, {})[code] = score["metrics"]["accuracy"]["score"]
    raw: dict[str, Any] = {}
    for name, share in shares.items():
        metric = "acc_norm" if tasks[name].normalized else "acc"
        raw[name] = {"alias": f" - {name}", f"{metric},none": share["score"]}
        raw[name][f"{metric}_stderr,none"] = standard_error(share)
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


def standard_error(share: dict[str, Any]) -> float:
    """Return the standard error of a share, as lm-evaluation-harness estimates it."""
    return float(np.sqrt(share["score"] * (1 - share["score"]) / max(share["n"] - 1, 1)))


def write(path: Path, content: Any, indent: int | None = None) -> None:
    """Write JSON; NaN stays NaN, which is no JSON, but what the challenge's programs write and read."""
    with atomic_write(path, "w") as file:
        json.dump(content, file, indent=indent)
