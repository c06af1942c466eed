"""Save and load the weights that a run keeps: checkpoints, so that only a broken disk can lose them, and snapshots.

A checkpoint is one safetensors file, `step-00000040.safetensors`. It holds the weights, their moving average and the
optimizer state, and in its metadata all other state as JSON. So reading it cannot run code, and it does not depend on
the number of processes. It is valid if the small file beside it, `step-00000040.json`, which is written after it, holds
its sha256, and if its metadata has the step of its name. A damaged checkpoint is skipped with a warning, and the one
before it is used. An incomplete file has another name.

Snapshots are weights after given numbers of words (`config/snapshots.py`). A run that continues from a checkpoint
before a snapshot writes the same snapshot again, if it is not kept.

    snapshots/chck_10M.safetensors    the averaged weights, or the weights if there is no average
    snapshots/chck_10M.json           its sha256, and its place in the run; written last, so the weights are complete
"""

import hashlib
import json
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import _TYPES, load_file

from babelmill.config.snapshots import FOLDER, name_of
from babelmill.core.files import UNREADABLE, UserError, atomic_write, read_json, sha256, write_json

log = logging.getLogger(__name__)

DTYPES = {_TYPES[name]: name for name in ("F64", "F32", "F16", "BF16", "I64", "I32", "U8", "BOOL")}
Tensors = Mapping[str, torch.Tensor]
Load = Callable[[str], torch.Tensor]  # reads a tensor by its name
RowsToRead = Callable[[str, Sequence[int]], slice]  # of a tensor with this name and shape

NAME = re.compile(r"step-(\d{8})\.json")


def steps_of(names: Iterable[str]) -> list[int]:
    """Return the steps of the checkpoints among the names of files, earliest first."""
    return sorted(int(match[1]) for name in names if (match := NAME.fullmatch(name)))


def write_tensors(path: Path, tensors: Tensors, metadata: Mapping[str, str], load: Load | None = None) -> str:
    """Write a safetensors file atomically, tensor by tensor, and return its sha256.

    The writer of the safetensors library returns no digest, sets the mode 0600, and needs all bytes in memory a second
    time. `load` reads each tensor by its name just before it is written; `tensors` may then be on the meta device.
    """
    header: dict[str, dict[str, Any]] = {"__metadata__": dict(metadata)}
    end = 0
    for name, tensor in tensors.items():
        begin, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text = text.ljust(-(-len(text) // 8) * 8)
    digest = hashlib.sha256()
    with atomic_write(path) as file:

        def put(data: bytes | memoryview) -> None:
            file.write(data)
            digest.update(data)

        put(len(text).to_bytes(8, "little") + text)
        for name, tensor in tensors.items():
            tensor = load(name) if load else tensor
            put(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def write_sealed(
    data: Path, tensors: Tensors, metadata: Mapping[str, str], about: Mapping[str, Any], load: Load | None
) -> None:
    """Write a file of weights, and then its seal: a .json file with its sha256, and what is known `about` it."""
    seal = data.with_suffix(".json")
    seal.unlink(missing_ok=True)  # from an earlier attempt: its sha256 would be wrong
    digest = write_tensors(data, tensors, {"format": "pt", **metadata}, load)
    write_json(seal, {"sha256": digest, **about})


def is_intact(data: Path) -> bool:
    """Return whether a file of weights is there, with the sha256 that its seal holds."""
    return data.is_file() and sha256(data) == read_json(data.with_suffix(".json"))["sha256"]


class Checkpoints:
    """The checkpoints in a run's `folder`. Only the newest `keep` stay."""

    def __init__(self, folder: Path, keep: int = 2):
        self.folder, self._keep = folder, keep

    def steps(self) -> list[int]:
        """Return the steps of the checkpoints, earliest first."""
        return steps_of(path.name for path in self.folder.glob("*.json"))

    def paths(self, step: int) -> tuple[Path, Path]:
        """Return the paths of a checkpoint's weights and of its seal."""
        path = self.folder / f"step-{step:08d}"
        return path.with_suffix(".safetensors"), path.with_suffix(".json")

    def save(self, step: int, tensors: Tensors, state: dict[str, Any], load: Load | None = None) -> None:
        """Save the state after `step` steps; then remove old checkpoints, and files that killed processes have left.

        `load`: see `write_tensors`.
        """
        write_sealed(self.paths(step)[0], tensors, {"step": str(step), "state": json.dumps(state)}, {}, load)
        kept = {path for step in self.steps()[-self._keep :] for path in self.paths(step)}
        for path in sorted(self.folder.glob("*step-*")):  # the seal of a checkpoint first
            if path not in kept:
                path.unlink(missing_ok=True)

    def newest(self) -> int:
        """Return the step of the newest valid checkpoint, 0 if there is none; mark damaged ones as not valid."""
        for step in reversed(self.steps()):
            data, seal = self.paths(step)
            try:
                if not is_intact(data):
                    raise UserError("it is missing, or its sha256 differs from the one in its .json file")
                if (saved := metadata_of(data).get("step")) != str(step):
                    raise UserError(f"it was saved after step {saved} under another name")
                return step
            except UNREADABLE as error:
                log.warning("checkpoint %s is damaged (%s); using the one before it", data, error)
                seal.unlink()
        return 0

    def load(self, step: int, rows: RowsToRead | None = None) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Return tensors and state of a checkpoint that `newest` found valid.

        Each tensor is read from the file when it is used. `rows` takes its name and shape, and returns which of its
        rows are wanted.
        """
        data, _ = self.paths(step)
        tensors = load_file(data)
        if rows:
            tensors = {name: each[rows(name, each.shape)] if each.dim() else each for name, each in tensors.items()}
        return tensors, json.loads(metadata_of(data)["state"])


def metadata_of(data: Path) -> dict[str, str]:
    """Return the metadata of a safetensors file."""
    with safe_open(data, "pt") as file:
        return file.metadata() or {}


class Snapshots:
    """The snapshots of a run. `folder`: the run's folder."""

    def __init__(self, folder: Path):
        self._folder = folder / FOLDER

    def save(self, point: float, about: dict[str, Any], tensors: Tensors, load: Load) -> None:
        """Save the snapshot after `point` million words; `about`: its place in the run; `load`: see `write_tensors`."""
        for left in self._folder.glob(".chck_*"):  # left by a process that was killed
            left.unlink(missing_ok=True)
        data = self._folder / f"{name_of(point)}.safetensors"
        write_sealed(data, tensors, {}, {"million_words": point, **about}, load)

    def kept(self) -> dict[str, dict[str, Any]]:
        """Return {name: content of its .json file} of all snapshots, the earliest first."""
        found = {path.stem: read_json(path) for path in self._folder.glob("chck_*.json")}
        return dict(sorted(found.items(), key=lambda item: item[1]["million_words"]))

    def weights(self, name: str) -> Path:
        """Return the file of a snapshot; raise a UserError if it is damaged or missing."""
        data = self._folder / f"{name}.safetensors"
        if not is_intact(data):
            raise UserError(
                f"{data}: missing or damaged (its sha256 differs from the one in the .json beside it); delete both"
                " files, then the snapshot counts as not kept"
            )
        return data
