"""Read `model.source`, the model that a model continues: one of this workflow, a folder, or a repository on the Hub.

The three are tried in this order. All code that needs to know what `model.source` means uses this module. It reads only
the configuration: neither the files of models nor the network.
"""

import contextlib
import dataclasses
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any, Literal

from babelmill.config.layers import ABSENT, Layer, lookup, nearest
from babelmill.config.schema import Section
from babelmill.core.escape import line
from babelmill.core.files import UserError, not_found, read_object

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


def with_our_names(config: dict[str, Any]) -> dict[str, Any]:
    """Return the config.json of a NorBERT4, in which some keys of `SHAPE` have other names, with our names, too."""
    return config | {ours: config[theirs] for ours, theirs in NORBERT4_NAMES.items() if theirs in config}


def only_an_adapter(config: Path | None) -> str:
    """Return what to do with a folder whose only weights are an adapter, which the file `config` describes."""
    base = None
    with contextlib.suppress(UserError):
        base = read_object(config).get("base_model_name_or_path") if config else None
    of = f" of {line(base, 100)}" if isinstance(base, str) and base else ""
    return (
        f"its only weights are an adapter{of} (PEFT), not a model: merge it into its model (`merge_and_unload` of"
        " PEFT), save the result with its tokenizer, and name that folder"
    )


def lacks_config(folder: Path) -> str:
    """Return what is wrong with a folder of a model that has no config.json."""
    if (folder / ADAPTER).is_file():
        return only_an_adapter(folder / ADAPTER)
    problem = "has no config.json" if folder.is_dir() else not_found(folder, "folder")
    return f"{problem}; name a folder that `save_pretrained` of transformers wrote"


@dataclasses.dataclass(frozen=True)
class ModelSource:
    """The model that a model continues."""

    kind: Literal["model", "folder", "hub"]  # a model of this workflow, a folder, or a repository on the Hub
    name: str  # the model, the path, or `owner/name`
    # tokenizer, weights: the folders of results that the stages `tokenizer` and `train` read.
    tokenizer: Path
    weights: Path
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


def unknown(text: str, models: Collection[str]) -> str:
    """Return the error message for a `model.source` that is none of the three."""
    if found := RESULTS.fullmatch(text):
        return f"there is no such folder; for a model of this workflow, write only its name, {found[2]}"
    return (
        f"there is no model {text!r} in the configuration{nearest(text, models)} (a folder begins with ./, a repository"
        " on the Hub is written as owner/name)"
    )


def _place(layers: list[Layer]) -> int:
    """Return the index of the last layer that sets `model.source`."""
    setting = [i for i, layer in enumerate(layers) if lookup(layer.values, ("model", "source")) is not ABSENT]
    return max(setting, default=0)


def shape_laid_under(layers: list[Layer], shape: dict[str, Any]) -> list[Layer]:
    """Return the layers, with the known shape of the source inserted under the layer that sets `model.source`.

    So the shape overrides presets and settings for all models, and keys that are set beside the source override the
    shape.
    """
    if not shape:
        return layers
    place = _place(layers)
    return [*layers[:place], Layer({"model": shape}, "model.source"), *layers[place:]]


def _set_beside(layers: list[Layer]) -> list[str]:
    """Return the keys fixed by the source that are set in the same layer as `model.source`, or in a later one."""
    over = layers[_place(layers) :]
    return [
        key
        for key in ("architecture", *SHAPE)
        if any(lookup(layer.values, ("model", key)) is not ABSENT for layer in over)
    ]


def check_shape(values: dict[str, Any], theirs: dict[str, Any], where: str) -> None:
    """Raise a UserError if the source (`where`) has another shape than the configuration sets beside it (`values`)."""
    for key, value in values.items():
        if key not in theirs:
            raise UserError(f"model.{key} = {value}: {where} has no such key; leave the key out")
        if theirs[key] != value:
            raise UserError(f"model.{key} = {value}: {where} has {theirs[key]}; leave the key out")


def source_of(
    name: str,
    model: Section,
    layers: list[Layer],
    origins: dict[str, str],
    models: Collection[str],
    shape: dict[str, Any],
) -> ModelSource | None:
    """Return the model that a model continues; None if it begins with random weights.

    `layers` are those that the section was made from, without `shape`, what the configuration knows about the source's
    shape. In `origins`, where each value came from, this function changes those of values that are not used. A
    UserError says that there is no such source, or that a key contradicts its shape.
    """
    values = model.model_dump()
    if (text := values["source"]) is None:
        return None
    kind = kind_of(text, models)
    if kind is None:
        raise UserError(f"{origins['model.source']}: model.source = {text!r}: {unknown(text, models)}")
    beside = {key: values[key] for key in _set_beside(layers)}
    for key, value in beside.items():
        if kind == "model" and value != shape.get(key, value):
            raise UserError(
                f"{origins[f'model.{key}']}: model.{key} = {value}: model {name} continues {text}, where it is"
                f" {shape[key]}; leave the key out"
            )
    unread = [key for key in SHAPE if key not in beside and key not in shape]
    origins |= dict.fromkeys((f"model.{key}" for key in unread), f"not used: the value of {text} applies")
    beside.pop("architecture", None)
    base = Path("results/base_models", name)
    if kind == "model":
        return ModelSource(kind, text, Path("results/tokenizers", text), Path("results/models", text), beside)
    return ModelSource(kind, text, base, base, beside)
