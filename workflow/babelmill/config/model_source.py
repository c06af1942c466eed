"""Read `model.source`, the model that a model continues: one of this workflow, a folder, or a repository on the Hub.

The three are tried in this order. All code that needs to know what `model.source` means uses this module. It reads only
the configuration: neither the files of models nor the network.
"""

import dataclasses
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any, Literal

from babelmill.core.files import UserError, not_found

# The keys of the section `model` that the weights fix: a model that continues another has the same values.
SHAPE = (
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_hidden_layers",
    "max_position_embeddings",
    "position_bucket_size",
    "layer_norm_eps",
    "gate",
    "layer_mixing",
    "local_global_ratio",
    "local_window_length",
)
NORBERT4_NAMES = {"num_hidden_layers": "num_layers", "max_position_embeddings": "max_sequence_length"}
REPOSITORY = re.compile(r"\w[\w.-]*/[\w.-]+", re.ASCII)
RESULTS = re.compile(r"(converted|results/\w+)/(\w+)/?")


ADAPTER = "adapter_config.json"  # the file that PEFT writes beside the weights of an adapter
ONLY_AN_ADAPTER = "its only weights are an adapter (PEFT); a folder where it is merged into its model is expected"


def with_our_names(config: dict[str, Any]) -> dict[str, Any]:
    """Return the config.json of a NorBERT4, in which some keys of `SHAPE` have other names, with our names, too."""
    return config | {ours: config[theirs] for ours, theirs in NORBERT4_NAMES.items() if theirs in config}


def lacks_config(folder: Path) -> str:
    """Return what is wrong with a folder of a model that has no config.json."""
    if (folder / ADAPTER).is_file():
        return ONLY_AN_ADAPTER
    problem = "has no config.json" if folder.is_dir() else not_found(folder, "folder")
    return f"{problem}; a folder that `save_pretrained` of transformers wrote is expected"


@dataclasses.dataclass(frozen=True)
class ModelSource:
    """The model that a model continues."""

    kind: Literal["model", "folder", "hub"]  # a model of this workflow, a folder, or a repository on the Hub
    name: str  # the model, the path, or `owner/name`
    # Keys of `SHAPE` that the configuration sets beside the source. For a folder or a repository, only the stage
    # `base_model` can check them.
    beside: dict[str, Any]


def kind_of(text: str, models: Collection[str]) -> Literal["model", "folder", "hub"] | None:
    """Return what kind of source `model.source` names; None if it is none of the three."""
    if text in models:
        return "model"
    if text.startswith(("./", "../", "/")) or Path(text).is_dir():
        return "folder"
    return "hub" if REPOSITORY.fullmatch(text) and not RESULTS.fullmatch(text) else None


def check_shape(values: dict[str, Any], theirs: dict[str, Any], where: str) -> None:
    """Raise a UserError if the source (`where`) has another shape than the configuration sets beside it (`values`)."""
    for key, value in values.items():
        if theirs.get(key) != value:
            has = f"has {theirs[key]}" if key in theirs else "has no such key"
            raise UserError(f"model.{key} = {value}: {where} {has}")
