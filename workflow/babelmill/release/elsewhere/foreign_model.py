"""Read the files of a model that was not trained here: its configuration, and its tensors one at a time.

No code in its files is run. Tensors are read from .safetensors, or from .bin files that contain only tensors and plain
values. Their names are changed to ours (GPT-BERT), or to those of the transformers class that computes the same
(`llada.py`).
"""

import dataclasses
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from babelmill.config.model_source import ADAPTER, ONLY_AN_ADAPTER, with_our_names
from babelmill.config.transformers_keys import check_layers
from babelmill.core import escape
from babelmill.core.escape import line, some
from babelmill.core.files import UserError
from babelmill.core.words import plural
from babelmill.hub.files import Files
from babelmill.release.elsewhere import llada, published_checkpoint, published_norbert4
from babelmill.runtime.checkpoint import DTYPES, TYPES

ForeignKind = Literal["ours", "published", "norbert4", "published_norbert4", "llada", "transformers"]
ONE_FILE = ("model.safetensors", "pytorch_model.bin")
LAST = "last.bin"  # OccCANINE's last weights; the files of earlier steps are in the same folder
PART = re.compile(r"-\d+-of-\d+\.(safetensors|bin)$")
NO_WEIGHTS = re.compile(r"^(training_args|optimizer|scheduler|rng_state|scaler)\b|_state_dict\.bin$")
NAMED_BY = "model.safetensors or pytorch_model.bin"


@dataclasses.dataclass(frozen=True)
class ForeignWeights:
    """Holds tensors in files."""

    shapes: dict[str, Tensor]  # {name: tensor on the meta device}
    load: Callable[[str], Tensor]  # reads the tensor of a name
    key: Any = None  # OccCANINE's {code: class}; None in other models


@dataclasses.dataclass(frozen=True)
class ForeignModel:
    """Holds the configuration of a model, and the names of its tensors."""

    # "gpt_bert" or "norbert4" for ours, "transformers" for a class of transformers.
    architecture: Literal["gpt_bert", "norbert4", "transformers"]
    config: dict[str, Any]  # its config.json. For one of ours, the shape in the form that training writes
    names: dict[str, str]  # {our name, or that of the class: name in the files} of its tensors


# The kind of the model.


def kind_of(config: dict[str, Any], where: str) -> ForeignKind:
    """Return the kind of model that a config.json describes. Error messages begin with `where`.

    A UserError says that the model needs code of its author, or is not a language model that can be trained.
    """
    model_type = config.get("model_type")
    if not isinstance(model_type, str | None):
        raise UserError(f"{where}: model_type = {line(repr(model_type), 100)} in config.json is not the name of a type")
    if model_type == "babelmill_gpt_bert":
        return "ours"
    if model_type == "llada":
        return "llada"
    if published_norbert4.is_norbert4(config):
        return "norbert4" if model_type == published_norbert4.OURS else "published_norbert4"
    if config.keys() >= published_checkpoint.KEYS.keys():
        return "published"
    if "auto_map" in config:
        raise UserError(
            f"{where} needs code of its author (auto_map in config.json), which is never run; supported are GPT-BERT"
            " and NorBERT4 models, LLaDA, and masked and causal transformers models, such as BERT, GPT-2, Llama,"
            " EuroBERT"
        )
    from transformers.models.auto.modeling_auto import (  # takes seconds
        MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        MODEL_FOR_MASKED_LM_MAPPING_NAMES,
        MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
        MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES,
    )

    known = {*MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, *MODEL_FOR_MASKED_LM_MAPPING_NAMES}
    known |= (
        MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES.keys() - MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES.keys()
    )
    if model_type not in known:
        raise UserError(
            f"{where}: model_type = {line(repr(model_type), 100)} in config.json is neither a masked nor a causal"
            " transformers model, nor a text encoder, nor GPT-BERT"
        )
    return "transformers"


def read_model(kind: ForeignKind, config: dict[str, Any], weights: ForeignWeights, where: str) -> ForeignModel:
    """Return configuration and names; raise a UserError, which begins with `where`, if they do not fit together."""
    of_config = f"{where}: config.json"
    check_layers(config, where, len(weights.shapes))
    if kind == "transformers":
        return ForeignModel("transformers", config, {name: name for name in weights.shapes})
    if kind == "llada":
        renamed = llada.config_of(config, where)
        return ForeignModel(
            "transformers", renamed, llada.names_of(weights.shapes, renamed["num_hidden_layers"], where)
        )
    if kind in ("norbert4", "published_norbert4"):
        names = published_norbert4.our_names(weights.shapes, weights.load, where)
        shapes = {ours: weights.shapes[theirs] for ours, theirs in names.items()}
        shape = with_our_names(published_norbert4.shape_in(config, shapes, where))
        return ForeignModel("norbert4", {"architecture": "norbert4"} | shape, names)
    names = published_checkpoint.our_names(weights.shapes, weights.load, where)
    if kind == "ours":
        switches = {key: config.get(key) for key in ("gate", "layer_mixing")}
        if odd := [key for key, value in switches.items() if not isinstance(value, bool)]:
            raise UserError(f"{of_config}: {odd[0]} = {line(repr(config.get(odd[0])), 60)}: true or false is expected")
        shape = published_checkpoint.sizes_in(config, of_config) | switches
    else:
        shape = published_checkpoint.shape_in(config, names, of_config)
    shapes = {ours: weights.shapes[theirs] for ours, theirs in names.items()}
    if difference := published_checkpoint.misfit(shape, shapes):
        raise UserError(f"{where} is not the GPT-BERT model that its config.json describes: {difference}")
    return ForeignModel("gpt_bert", shape, names)


# The files of the model.


def require_config(files: Files) -> Path:
    """Return the path of a model's config.json; raise a UserError that says what the files are if there is none."""
    if "config.json" in files.names:
        return files.get(["config.json"])["config.json"]
    if ADAPTER in files.names:
        raise UserError(f"{files.where}: {ONLY_AN_ADAPTER}")
    raise UserError(f"{files.where} has no config.json; it has {some(files.names, 8) or 'no files'}")


def weight_files(names: list[str], read: Callable[[str], Any], where: str) -> list[str]:
    """Return which files of a model hold its weights. Error messages begin with `where`.

    `read` returns the content of a JSON file by its name. A UserError says that there are no weights, that some parts
    are missing, or that several files could be the weights.
    """
    for name in ONE_FILE:
        if name in names:
            return [name]
        if (index := f"{name}.index.json") in names:
            return _parts(index, read(index), names, where)
    found = [name for name in names if name.endswith((".safetensors", ".bin")) and not NO_WEIGHTS.search(name)]
    if any(name.startswith("adapter_model.") for name in found):
        raise UserError(f"{where}: {ONLY_AN_ADAPTER}")
    if parts := [name for name in found if PART.search(name)]:
        raise UserError(f"{where}: the download is not complete: it has {parts[0]}, but no index (*.index.json)")
    averages = [name for name in found if name.endswith("_ema.bin")]  # names that the published GPT-BERT code gives
    found = averages if len(averages) == 1 else found
    found = [LAST] if LAST in found else found
    if len(found) == 1:
        return found
    if found:
        raise UserError(
            f"{where}: several files could be the weights: {escape.some(found, 5)}; rename the right ones to {NAMED_BY}"
        )
    some = escape.some(names) or "no files"
    raise UserError(f"{where} has no file of weights ({NAMED_BY}, or several with an index); it has {some}")


def _parts(index: str, content: Any, names: list[str], where: str) -> list[str]:
    """Return the files that an index names. Raise a UserError if one is missing."""
    table = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(table, dict) or not all(isinstance(name, str) for name in table.values()) or not table:
        raise UserError(f"{where}: {index} does not say which file holds which weight")
    files = sorted(set(table.values()))
    if missing := [name for name in files if name not in names]:
        raise UserError(
            f"{where}: the download is not complete: {plural(len(missing), 'file')} of {index}"
            f" {'is' if len(missing) == 1 else 'are'} missing, such as {missing[0]}"
        )
    return files


def open_weights(paths: Mapping[str, Path], where: str) -> ForeignWeights:
    """Open files of weights. `paths` is {file name: path}.

    A UserError, which begins with `where`, says that a file is damaged, or that two files hold the same weight.
    """
    shapes: dict[str, Tensor] = {}
    loads: dict[str, Callable[[str], Tensor]] = {}
    key = None
    for file, path in paths.items():
        label = f"{where}: {file}"
        part = _open_safetensors(path, label) if file.endswith(".safetensors") else _open_pickle(path, label)
        if twice := shapes.keys() & part.shapes.keys():
            raise UserError(f"{where}: {file} and another file both contain {min(twice)}")
        shapes |= part.shapes
        loads |= dict.fromkeys(part.shapes, part.load)
        key = part.key or key
    return ForeignWeights(shapes, lambda name: loads[name](name), key)


def _open_safetensors(path: Path, where: str) -> ForeignWeights:
    try:
        file = safe_open(path, "pt")
        views = {name: file.get_slice(name) for name in file.keys()}
    except (SafetensorError, json.JSONDecodeError) as error:
        raise UserError(f"{where}: truncated or damaged ({error}); replace it by a complete copy") from None
    types = {name: view.get_dtype() for name, view in views.items()}
    _check_types(types, TYPES, where)
    shapes = {name: torch.empty(v.get_shape(), dtype=TYPES[types[name]], device="meta") for name, v in views.items()}
    return ForeignWeights(shapes, file.get_tensor)


def _check_types(types: Mapping[str, Any], known: Mapping[Any, Any], where: str) -> None:
    if odd := [name for name, kind in types.items() if kind not in known]:
        raise UserError(f"{where}: {odd[0]} is of type {types[odd[0]]}; allowed are {', '.join(sorted(TYPES))}")


def _open_pickle(path: Path, where: str) -> ForeignWeights:
    content, key = published_checkpoint.read_pickle(path), None
    if published_checkpoint.is_whole_state(content):
        key = content.get("key")
        content = content.get("ema_model") or content["model"]
    tensors = published_checkpoint.check_state_dict(content, path)
    _check_types({name: tensor.dtype for name, tensor in tensors.items()}, DTYPES, where)
    return ForeignWeights({name: tensor.to("meta") for name, tensor in tensors.items()}, tensors.__getitem__, key)
