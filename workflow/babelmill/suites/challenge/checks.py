"""Check what a challenge checks before it takes a submission: sizes, types, checkpoints, and the model card.

Each function returns what would be refused, a line for each reason. What is merely missing is not refused: it counts 0.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard

from babelmill.config.submissions import Rules, Task
from babelmill.core.words import plural
from babelmill.suites.challenge.scored import READING

SHORTEST_CARD = 200  # characters of a model card's text
SERVER_SCORED = ("hanzi_structure", "hanzi_pinyin", "meco_l1", "meco_l2")  # which scores nobody may upload


def wrong_in_strict(content: dict[str, Any], rules: Rules, checkpoints: list[str]) -> list[str]:
    """Return what the challenge would refuse in the file for a strict track."""
    found: list[str] = []
    for name, task in rules.tasks.items():
        entry = content.get(f"{name}_surprisals" if task.kind == "acquisition" else name)
        if entry:
            found += wrong_in_task(name, task, entry, checkpoints)
    for name, of_checkpoints in (content.get("fast_eval_results") or {}).items():
        found += wrong_at_checkpoints(name, rules.tasks[name], of_checkpoints, checkpoints)
    return found


def wrong_in_task(name: str, task: Task, entry: dict[str, Any], checkpoints: list[str]) -> Iterator[str]:
    """Yield what is wrong with the predictions of a task."""
    if task.kind == "acquisition":
        yield from wrong_in_surprisals(name, task, entry, checkpoints)
        return
    kind, words = {"reading": (float, "a number"), "labels": (int, "a whole number")}.get(task.kind, (str, "text"))
    known = {each.lower(): size for each, size in task.subtasks().items()}
    if task.kind == "examples" and len(entry) != task.sizes:
        yield f"{name} has {plural(len(entry), 'example')}, but the challenge's data has {task.sizes}"
    for subtask, found in entry.items():
        count = len(found["predictions"])
        size = {"examples": 1, "reading": task.sizes}.get(task.kind) or known.get(subtask.lower())
        if size is None:
            yield f"{name}: the challenge has no subtask {subtask}"
        elif count != size:
            yield f"{name}: {subtask} has {plural(count, 'prediction')}, but the challenge's data has {size:,} items"
        if any(type(each["pred"]) is not kind for each in found["predictions"]):
            yield f"{name}: {subtask} has a prediction that is not {words}"


def wrong_in_surprisals(name: str, task: Task, entry: dict[str, Any], checkpoints: list[str]) -> Iterator[str]:
    """Yield what is wrong with the surprisals of words at the checkpoints."""
    counts: dict[str, int] = {}
    for row in entry["results"]:
        counts[row["step"]] = counts.get(row["step"], 0) + 1
    if len(counts) > len(checkpoints):
        yield f"{name} has surprisals of {len(counts)} checkpoints, but the challenge takes at most {len(checkpoints)}"
    for step, count in counts.items():
        if count != task.sizes:
            yield f"{name}: {step} has {plural(count, 'surprisal')}, but the challenge's data has {task.sizes:,} items"


def wrong_at_checkpoints(
    name: str, task: Task, found: list[dict[str, float] | None], checkpoints: list[str]
) -> Iterator[str]:
    """Yield what is wrong with the scores of a task at the checkpoints."""
    if len(found) > len(checkpoints):
        yield f"{name} has scores at {len(found)} checkpoints, but the challenge takes at most {len(checkpoints)}"
    wanted: set[str] = {"examples": {name}, "reading": {*READING}}.get(task.kind, {*task.subtasks(fast=True)})
    wanted = {each.lower() for each in wanted}
    for checkpoint, scores in zip(checkpoints, found, strict=False):
        if scores is None:
            continue
        here = {each.lower() for each in scores}
        for subtask in sorted(wanted - here):
            yield f"{name} at {checkpoint}: {subtask} is missing"
        for subtask in sorted(here - wanted):
            yield f"{name} at {checkpoint}: the challenge has no subtask {subtask}"


def wrong_sizes_of_scores(name: str, task: Task, checkpoint: str, entry: dict[str, Any]) -> Iterator[str]:
    """Yield the subtasks of a checkpoint whose scores are not of the challenge's data. `entry`: of scores.json."""
    if task.kind == "reading":  # whose regressions leave out words without some figure
        return
    by_paradigm: dict[str, Any] = entry["by_paradigm"]
    shares = {task.paradigms.get(paradigm, paradigm): share for paradigm, share in by_paradigm.items()}
    sizes = {each.lower(): size for each, size in task.subtasks(fast=True).items()}
    if task.kind == "examples" and isinstance(task.sizes, int):
        shares, sizes = {name: entry["pairs"]}, {name.lower(): task.sizes}
    for subtask, share in shares.items():
        if (size := sizes.get(subtask.lower())) and share["n"] != size:
            yield f"{name} at {checkpoint}: {subtask} has {share['n']:,} items, but the challenge's data has {size:,}"


def wrong_in_multilingual(scores: dict[str, Any], predictions: dict[str, Any], checkpoints: list[str]) -> list[str]:
    """Return what the challenge would refuse in the files for the multilingual track."""
    found = [
        f"{name} is scored by the challenge, and may not be in the scores" for name in SERVER_SCORED if name in scores
    ]
    for name, entry in scores.items():
        if not isinstance(entry, dict) or not entry:
            found.append(f"{name} has no score")
        elif not all(type(value) in (int, float) for value in entry.values()):
            found.append(f"{name} has a score that is not a number")
    if not any(predictions.get(part) for part in ("zeroshot", "finetune", "hidden")):
        found.append("there are no predictions: the model is scored on no suite of the challenge")
    if len(predictions.get("fast_eval_results", [])) > len(checkpoints):
        found.append(f"there are scores at more than the {len(checkpoints)} checkpoints of the challenge")
    return found


def wrong_in_card(folder: Path) -> list[str]:
    """Return what the challenge would refuse in the model card of a folder: it wants a licence and a description."""
    path = folder / "README.md"
    if not path.is_file():
        return [f"{path}: there is no model card"]
    card = ModelCard.load(path)
    found = []
    about = card.data.to_dict()
    if not about.get("license") and not all(about.get(key) for key in ("license_name", "license_link")):
        found.append(f"{path}: the model card names no licence; set card.license")
    if len(card.text) < SHORTEST_CARD:
        found.append(
            f"{path}: the text of the model card has {len(card.text)} characters, but the challenge wants"
            f" {SHORTEST_CARD}; set card.description"
        )
    return found
