"""Say which keys the weights of a model that is continued fix (`model.source`), and what a folder of one must hold."""

from pathlib import Path
from typing import Any

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


def check_shape(values: dict[str, Any], theirs: dict[str, Any], where: str) -> None:
    """Raise a UserError if the source (`where`) has another shape than the configuration sets beside it (`values`)."""
    for key, value in values.items():
        if theirs.get(key) != value:
            has = f"has {theirs[key]}" if key in theirs else "has no such key"
            raise UserError(f"model.{key} = {value}: {where} {has}")
