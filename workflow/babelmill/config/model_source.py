"""`model.source`: what a model goes on from. A model of this workflow, a folder, or a repository on the Hub.

The three are looked for in this order. Whatever says where `model.source` leads asks here, so this knows the words of
the configuration alone, and neither files of models nor the network.
"""

import dataclasses
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any, Literal

from babelmill.config.layers import ABSENT, Layer, lookup, nearest
from babelmill.config.schema import Section
from babelmill.core.files import UserError

# The keys of the section `model` that the weights fit and no other: a model that goes on from another has its values.
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
)
REPOSITORY = re.compile(r"\w[\w.-]*/[\w.-]+", re.ASCII)
RESULTS = re.compile(r"(converted|results/\w+)/(\w+)/?")


@dataclasses.dataclass(frozen=True)
class ModelSource:
    """What a model goes on from.

    Attributes:
        kind: a model of this workflow, a folder, or a repository on the Hub.
        name: the model, the path, or `owner/name`.
        tokenizer, weights: the folders of results that the stages `tokenizer` and `train` read.
        beside: keys of `SHAPE` that the configuration says beside a folder or a repository, whose own it cannot know.
    """

    kind: Literal["model", "folder", "hub"]
    name: str
    tokenizer: Path
    weights: Path
    beside: dict[str, Any]


def kind_of(text: str, models: Collection[str]) -> Literal["model", "folder", "hub"] | None:
    """Return what `model.source` names; None if it can be none of the three."""
    if text in models:
        return "model"
    if text.startswith(("./", "../", "/")) or Path(text).is_dir():
        return "folder"
    return "hub" if REPOSITORY.fullmatch(text) and not RESULTS.fullmatch(text) else None


def unknown(text: str, models: Collection[str]) -> str:
    """Return what to say of a `model.source` that is none of the three."""
    if found := RESULTS.fullmatch(text):
        return f"there is no such folder; a model of this workflow is named by itself, {found[2]}"
    return (
        f"there is no model {text!r} in the configuration{nearest(text, models)} (a folder begins with ./, a repository"
        " on the Hub is written as owner/name)"
    )


def _place(layers: list[Layer]) -> int:
    """Return the number of the last layer that says `model.source`."""
    said = [i for i, layer in enumerate(layers) if lookup(layer.values, ("model", "source")) is not ABSENT]
    return max(said, default=0)


def shape_laid_under(layers: list[Layer], shape: dict[str, Any]) -> list[Layer]:
    """Return the layers with what is known of the source's shape under the one that says `model.source`.

    So it goes before a preset and what is said of models in general, and what is said beside the source stays.
    """
    if not shape:
        return layers
    place = _place(layers)
    return [*layers[:place], Layer({"model": shape}, "model.source"), *layers[place:]]


def _said_beside(layers: list[Layer]) -> list[str]:
    """Which keys that the source decides are said where `model.source` is, or in a layer over that one."""
    over = layers[_place(layers) :]
    return [
        key
        for key in ("architecture", *SHAPE)
        if any(lookup(layer.values, ("model", key)) is not ABSENT for layer in over)
    ]


def check_shape(said: dict[str, Any], theirs: dict[str, Any], where: str) -> None:
    """UserError unless the source has the shape that the configuration says beside it.

    Args:
        said: keys of `SHAPE`.
        theirs: those that the source has; `where` it is begins the error.
    """
    for key, value in said.items():
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
    """Return what a model goes on from, None if it begins with random weights.

    Args:
        name: of the model.
        model: its section `model`.
        layers: that the section was made from, but for the source's shape.
        origins: where each value came from; changed for values that nobody reads.
        models: all names of models.
        shape: what the configuration knows of the source's.

    Raises:
        UserError: there is no such source, or a key contradicts its shape.
    """
    values = model.model_dump()
    if (text := values["source"]) is None:
        return None
    kind = kind_of(text, models)
    if kind is None:
        raise UserError(f"{origins['model.source']}: model.source = {text!r}: {unknown(text, models)}")
    beside = {key: values[key] for key in _said_beside(layers)}
    for key, value in beside.items():
        if kind == "model" and value != shape.get(key, value):
            raise UserError(
                f"{origins[f'model.{key}']}: model.{key} = {value}: model {name} goes on from {text}, where it is"
                f" {shape[key]}; leave the key out"
            )
    unread = [key for key in SHAPE if key not in beside and key not in shape]
    origins |= dict.fromkeys((f"model.{key}" for key in unread), f"not read: that of {text} is")
    beside.pop("architecture", None)
    base = Path("results/base_models", name)
    if kind == "model":
        return ModelSource(kind, text, Path("results/tokenizers", text), Path("results/models", text), beside)
    return ModelSource(kind, text, base, base, beside)
