"""Identify a training run by its settings, its code and the content of its data."""

import hashlib
import json
from pathlib import Path
from typing import Any

from babelmill.core import manifest
from babelmill.core.files import read_json

SPLITS = ("train", "validation")
SOURCE = "model.source"  # no language can have this name


def identity(
    settings: dict[str, Any], tokenizer: Path, shards: list[Path], source: Path | None = None
) -> dict[str, Any]:
    """Return the identity of a run, for JSON.

    Args:
        settings: the content of the stage's settings file, which also names the version of the code.
        tokenizer, shards: the folders of the data, whose manifests are read.
        source: the folder of the model that the run continues.
    """
    data: dict[str, Any] = {"tokenizer": manifest.read(tokenizer)["files"]["tokenizer.json"]["sha256"]}
    for folder in shards:
        files = manifest.read(folder)["files"]
        data[folder.name] = {split: files[f"{split}.safetensors"]["sha256"] for split in SPLITS}
    if source:
        weights = manifest.read(source)["files"][settings["begin_with"]]["sha256"]
        data[SOURCE] = {"weights": weights, "shape": read_json(source / "config.json")}
    return {"settings": settings, "data": data}


def fingerprint(identity: dict[str, Any]) -> str:
    """Return the name of the run's folder: 16 hexadecimal digits."""
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]
