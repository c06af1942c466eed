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
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import _TYPES

from babelmill.config.snapshots import FOLDER, name_of
from babelmill.core.files import UserError, atomic_write, read_json, sha256, write_json

log = logging.getLogger(__name__)

TYPES = {name: _TYPES[name] for name in ("F64", "F32", "F16", "BF16", "I64", "I32", "U8", "BOOL")}
DTYPES = {dtype: name for name, dtype in TYPES.items()}
Tensors = Mapping[str, torch.Tensor]
Load = Callable[[str], torch.Tensor]  # reads a tensor by its name
RowsToRead = Callable[[str, Sequence[int]], slice]  # of a tensor with this name and shape

NAME = re.compile(r"step-(\d{8})\.json")


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


def is_intact(data: Path) -> bool:
    """Return whether a file of weights has the sha256 that the .json file beside it, its seal, holds."""
    return sha256(data) == read_json(data.with_suffix(".json"))["sha256"]


class Checkpoints:
    """The checkpoints in a run's `folder`. Only the newest `keep` stay."""

    def __init__(self, folder: Path, keep: int = 2):
        self.folder, self._keep = folder, keep

    def steps(self) -> list[int]:
        """Return the steps of the checkpoints, oldest first."""
        return sorted(int(match[1]) for path in self.folder.glob("*.json") if (match := NAME.fullmatch(path.name)))

    def _paths(self, step: int) -> tuple[Path, Path]:
        path = self.folder / f"step-{step:08d}"
        return path.with_suffix(".safetensors"), path.with_suffix(".json")

    def save(self, step: int, tensors: Tensors, state: dict[str, Any], load: Load | None = None) -> None:
        """Save the state after `step` steps; then remove old checkpoints, and files that killed processes have left.

        `load`: see `write_tensors`.
        """
        data, seal = self._paths(step)
        digest = write_tensors(data, tensors, {"format": "pt", "step": str(step), "state": json.dumps(state)}, load)
        write_json(seal, {"sha256": digest})
        kept = {path for step in self.steps()[-self._keep :] for path in self._paths(step)}
        for path in sorted(self.folder.glob("*step-*")):  # the seal of a checkpoint first
            if path not in kept:
                path.unlink(missing_ok=True)

    def newest(self) -> int:
        """Return the step of the newest valid checkpoint, 0 if there is none; mark damaged ones as not valid."""
        for step in reversed(self.steps()):
            data, seal = self._paths(step)
            try:
                if not is_intact(data):
                    raise UserError("its sha256 differs from the one in its .json file")
                if (saved := SavedTensors(data).metadata.get("step")) != str(step):
                    raise UserError(f"it was saved after step {saved} under another name")
                return step
            except (UserError, OSError, KeyError) as error:
                log.warning("checkpoint %s is damaged (%s); using the one before it", data, error)
                seal.unlink()
        return 0

    def load(self, step: int, rows: RowsToRead | None = None) -> tuple["SavedTensors", dict[str, Any]]:
        """Return tensors and state of a checkpoint that `newest` found valid; `rows`: see `SavedTensors`."""
        saved = SavedTensors(self._paths(step)[0], rows)
        return saved, saved.state


class SavedTensors(Mapping[str, torch.Tensor]):
    """The tensors of a safetensors file by name; each is read when it is accessed.

    Args:
        path: the file.
        rows: takes the name and shape of a tensor, and returns which rows to read; None: all rows.
    """

    def __init__(self, path: Path, rows: RowsToRead | None = None):
        self._file, self._rows = safe_open(path, "pt"), rows
        self._names = self._file.keys()
        self.metadata: dict[str, str] = self._file.metadata() or {}

    def __getitem__(self, name: str) -> torch.Tensor:
        part = self._file.get_slice(name)
        if self._rows is None or not (shape := part.get_shape()):
            return self._file.get_tensor(name)
        return part[self._rows(name, shape)]

    @property
    def state(self) -> dict[str, Any]:
        """Return the state besides tensors; {} of a file that is no checkpoint."""
        return json.loads(self.metadata.get("state", "{}"))

    def shape(self, name: str) -> list[int]:
        """Return the shape of a whole tensor."""
        return self._file.get_slice(name).get_shape()

    def dtype(self, name: str) -> torch.dtype:
        """Return the type of a tensor, from the file's header."""
        return TYPES[self._file.get_slice(name).get_dtype()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class Snapshots:
    """The snapshots of a run. `folder`: the run's folder."""

    def __init__(self, folder: Path):
        self._folder = folder / FOLDER

    def save(self, point: float, about: dict[str, Any], tensors: Tensors, load: Load) -> None:
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
        if not data.is_file() or not is_intact(data):
            raise UserError(
                f"{data}: missing or damaged (its sha256 differs from the one in the .json beside it); delete both"
                " files, then the snapshot counts as not kept"
            )
        return data
