"""Check what a challenge checks before it takes a submission: subtasks, sizes, checkpoints, and the model card.

Each function yields what would be refused, a line for each reason. What is merely missing is not refused: it counts 0.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard

from babelmill.config.submissions import Rules
from babelmill.suites.challenge.results import READING, Results

SHORTEST_CARD = 200  # characters of a model card's text


def wrong_in_strict(content: dict[str, Any], rules: Rules) -> Iterator[str]:
    """Yield what the challenge would refuse in the predictions for a strict track."""
    for name, task in rules.tasks.items():
        entry = content.get(f"{name}_surprisals" if task.kind == "acquisition" else name) or {}
        if task.kind == "acquisition":
            counts = Counter(row["step"] for row in entry.get("results", []))
            yield from wrong_sizes(name, counts, dict.fromkeys(counts, task.sizes))
        elif task.kind == "examples":
            counts = {name: len(entry)} if entry else {}
            yield from wrong_sizes(name, counts, {name: task.sizes})
        else:
            counts = {subtask: len(each["predictions"]) for subtask, each in entry.items()}
            yield from wrong_sizes(name, counts, task.subtasks() or dict.fromkeys(counts, task.sizes))


def wrong_at_checkpoints(of: Results, name: str) -> Iterator[str]:
    """Yield what the challenge would refuse in the scores of a task at the checkpoints."""
    scored, task = of.fast[name], of.fast[name].task
    for checkpoint, entry in scored.at_checkpoints().items():
        if task.kind == "examples":
            counts, sizes = {name: entry["pairs"]["n"]}, {name: task.sizes}
        elif task.kind == "reading":  # whose regressions leave out words without some figure
            counts = sizes = {str(part): 0 for part in READING}
        else:
            counts = {scored.subtask(paradigm): share["n"] for paradigm, share in entry["by_paradigm"].items()}
            sizes = task.subtasks(fast=True)
        if checkpoint in of.checkpoints:
            there = {each.lower() for each in counts}
            yield from wrong_sizes(f"{name} at {checkpoint}", counts, sizes)
            yield from (f"{name} at {checkpoint}: {each} is missing" for each in sizes if each.lower() not in there)


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
