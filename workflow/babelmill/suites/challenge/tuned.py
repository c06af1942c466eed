"""Read what a fine-tuned model predicts for the rows of a challenge's tasks, and how it scores."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from babelmill.core import manifest
from babelmill.core.files import read_json


@dataclass(frozen=True)
class Tuned:
    """The scores of a model that was fine-tuned for the subtasks of a task."""

    folders: dict[str, Path]  # {subtask: a result of the stage `tune`}
    code: str  # the language of the model that the task is about

    def scores(self) -> dict[str, dict[str, Any]]:
        """Return {subtask: the entry of the language in scores.json}."""
        for folder in self.folders.values():
            manifest.verify(folder, "scores.json", "predictions.parquet")
        return {
            name: read_json(folder / "scores.json")["languages"][self.code] for name, folder in self.folders.items()
        }

    def labels(self) -> dict[str, list[str]]:
        """Return {subtask: the predicted label of each row}."""
        found = {}
        for name, folder in self.folders.items():
            rows = pq.ParquetFile(folder / "predictions.parquet").read(["language", "prediction"]).to_pylist()
            found[name] = [row["prediction"] for row in rows if row["language"] == self.code]
        return found


def predictions(tuned: Tuned) -> dict[str, Any]:
    """Return the entry of a task in the file of a strict track: the number of each row's class."""
    scores, found = tuned.scores(), {}
    for name, labels in tuned.labels().items():
        classes = scores[name]["classes"]
        rows = [{"id": f"{name}_{i}", "pred": classes.index(label)} for i, label in enumerate(labels)]
        found[name] = {"predictions": rows}
    return found


def tags(tuned: Tuned) -> list[dict[str, Any]]:
    """Return the entry of a tagging task in the same file: the labels of each sentence that is only predicted.

    A word without a prediction is left out, as the challenge's script does it.
    """
    (folder,) = tuned.folders.values()
    manifest.verify(folder, "predicted.parquet")
    found: dict[int, list[str]] = {}
    for row in pq.ParquetFile(folder / "predicted.parquet").read().to_pylist():
        if row["language"] == tuned.code:
            found.setdefault(row["sentence"], []).extend(filter(None, [row["prediction"]]))
    return [{"index": i, "prediction": " ".join(labels)} for i, labels in found.items()]


def indexed(tuned: Tuned) -> list[dict[str, Any]]:
    """Return the entry of a task in the file of predictions of the multilingual track: the label of each row."""
    (labels,) = tuned.labels().values()
    return [{"index": i, "prediction": label} for i, label in enumerate(labels)]
