"""Estimate how many parameters a model has before any job runs: the memory and time of its jobs depend on it."""

import contextlib
import re
from pathlib import Path

from babelmill.config import transformers_models
from babelmill.config.model_size import parameters
from babelmill.config.model_source import ModelSource
from babelmill.config.resolve import Configuration
from babelmill.core import manifest
from babelmill.core.files import UserError, read_json

WEIGHTS = re.compile(r"(pytorch_)?model(-\d+-of-\d+)?\.(safetensors|bin)")


def parameters_of(configuration: Configuration, model: str) -> int | None:
    """Return about how many parameters a model has; None if this is known only when its source has been fetched."""
    of_root = configuration.model([model, *configuration.ancestors(model)][-1])
    if of_root.source:
        return _fetched(of_root.source) or (
            _in_folder(Path(of_root.source.name)) if of_root.source.kind == "folder" else None
        )
    entries = of_root.tokenizer.vocab_size
    if of_root.model.architecture == "gpt_bert":
        return parameters(of_root.model, entries)
    return transformers_models.roughly(of_root.model.config or {}, entries)


def _fetched(source: ModelSource) -> int | None:
    """Return the count of the stage `base_model`; None if it has not run."""
    with contextlib.suppress(UserError, OSError, KeyError, TypeError):
        return int(manifest.read(source.weights)["figures"]["parameters"])
    return None


def _in_folder(folder: Path) -> int | None:
    """Return the most parameters that a folder's weights can hold: two bytes each, or four if config.json says so."""
    with contextlib.suppress(UserError, OSError, AttributeError):
        config = read_json(folder / "config.json")
        each = 4 if "float32" in (config.get("dtype"), config.get("torch_dtype")) else 2
        sizes = {path.suffix: 0 for path in folder.iterdir() if WEIGHTS.fullmatch(path.name)}
        for path in folder.iterdir():
            if WEIGHTS.fullmatch(path.name):
                sizes[path.suffix] += path.stat().st_size
        return max(sizes.values(), default=0) // each or None
    return None
