"""Keep the snapshots of a run: weights after given numbers of words (`config/snapshots.py`).

    snapshots/chck_10M.safetensors    the averaged weights, or the weights if there is no average
    snapshots/chck_10M.json           its sha256, and its place in the run; written last, so the weights are complete

They are in the run's folder, which is not an output of a rule. A run that continues from a checkpoint before a snapshot
writes the same snapshot again.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from babelmill.config.snapshots import FOLDER, name_of
from babelmill.core import manifest
from babelmill.core.files import UserError, read_json, sha256, write_json
from babelmill.runtime.checkpoint import write_tensors


def names(folder: Path) -> list[str]:
    """Return the names of the snapshots in a folder of a model, the earliest first."""
    found = {path.parent.name: about(path.parent) for path in (folder / FOLDER).glob(f"*/{manifest.NAME}")}
    return sorted(found, key=lambda name: found[name]["million_words"])


def about(folder: Path) -> dict[str, Any]:
    """Return the place of a snapshot in the run: `million_words`, `step`, `tokens`, and, if known, the true `words`."""
    return manifest.read(folder)["figures"]


class Snapshots:
    """The snapshots of a run. `folder`: the run's folder."""

    def __init__(self, folder: Path):
        self._folder = folder / FOLDER

    def save(
        self,
        point: float,
        tensors: Mapping[str, torch.Tensor],
        about: dict[str, Any],
        load: Callable[[str], torch.Tensor],
    ) -> None:
        """Save the snapshot after `point` million words; `about`: its place in the run; `load`: see `write_tensors`."""
        self._folder.mkdir(exist_ok=True)
        data = self._folder / f"{name_of(point)}.safetensors"
        data.with_suffix(".json").unlink(missing_ok=True)  # from an earlier attempt: its sha256 would be wrong
        for left in self._folder.glob(".chck_*"):  # left by a process that was killed
            left.unlink(missing_ok=True)
        digest = write_tensors(data, tensors, {"format": "pt"}, load)
        write_json(data.with_suffix(".json"), {"sha256": digest, "million_words": point} | about)

    def kept(self) -> dict[str, dict[str, Any]]:
        """Return {name: content of its .json file} of all snapshots, the earliest first."""
        found = {path.stem: read_json(path) for path in self._folder.glob("chck_*.json")}
        return dict(sorted(found.items(), key=lambda item: item[1]["million_words"]))

    def weights(self, name: str) -> Path:
        """Return the file of a snapshot; raise a UserError if it is damaged or missing."""
        data = self._folder / f"{name}.safetensors"
        if not data.is_file() or sha256(data) != read_json(data.with_suffix(".json"))["sha256"]:
            raise UserError(
                f"{data}: missing or damaged (its sha256 differs from the one in the .json beside it); delete both"
                " files, then the snapshot counts as not kept"
            )
        return data
