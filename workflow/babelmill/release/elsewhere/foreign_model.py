"""Read a model that was not trained here: the kind that its config.json describes, and its tensors under our names.

No code in its files is run. Tensors are read from .safetensors, or from .bin files that contain only tensors and plain
values. GPT-BERT and NorBERT4 get our names and the configuration that our training writes, LLaDA those of EuroBERT,
and other transformers models those of their class.
"""

import dataclasses
import json
import pickle
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from babelmill.config.models import ADAPTER, ONLY_AN_ADAPTER, check_layers, with_our_names
from babelmill.core import escape
from babelmill.core.escape import line, some
from babelmill.core.files import UserError
from babelmill.core.words import plural
from babelmill.hub.files import Files
from babelmill.release.elsewhere import llada, published_models
from babelmill.runtime.checkpoint import DTYPES, TYPES

ForeignKind = Literal["gpt_bert", "norbert4", "llada", "transformers"]
OURS = ("babelmill_gpt_bert", "babelmill_norbert4")  # the model types of those that we export
ONE_FILE = ("model.safetensors", "pytorch_model.bin")
LAST = "last.bin"  # OccCANINE's last weights; the files of earlier steps are in the same folder
NO_WEIGHTS = re.compile(r"^(training_args|optimizer|scheduler|rng_state|scaler)\b|_state_dict\.bin$")
NAMED_BY = "model.safetensors or pytorch_model.bin"


@dataclasses.dataclass(frozen=True)
class ForeignWeights:
    """Holds tensors in files."""

    shapes: dict[str, Tensor]  # {name: tensor on the meta device}
    load: Callable[[str], Tensor]  # reads the tensor of a name
    key: Any = None  # OccCANINE's {code: class}; None in other models

    def renamed(self, names: Mapping[str, str]) -> "ForeignWeights":
        """Return the tensors under other names. `names` is {new name: name in the files}."""
        return ForeignWeights({new: self.shapes[old] for new, old in names.items()}, lambda new: self.load(names[new]))


@dataclasses.dataclass(frozen=True)
class ForeignModel:
    """Holds the configuration and the weights of a model."""

    architecture: Literal["gpt_bert", "norbert4", "transformers"]
    config: dict[str, Any]  # its config.json. For one of ours, the shape in the form that training writes
    shape: dict[str, Any]  # its sizes, under the names of the section `model`
    weights: ForeignWeights  # under our names, or those of its transformers class


# The kind of the model.


def kind_of(config: dict[str, Any], where: str) -> ForeignKind:
    """Return the kind of model that a config.json describes. Error messages begin with `where`.

    A UserError says that the model needs code of its author, or that its kind is not said.
    """
    model_type = config.get("model_type")
    if model_type == "llada":
        return "llada"
    if model_type == OURS[0] or config.keys() >= published_models.KEYS.keys():
        return "gpt_bert"
    if config.keys() >= {*published_models.KEYS_OF_NORBERT4}:
        return "norbert4"
    if "auto_map" in config:
        raise UserError(
            f"{where} needs code of its author (auto_map in config.json), which is never run; supported are GPT-BERT"
            " and NorBERT4 models, LLaDA, and masked and causal transformers models, such as BERT, GPT-2, Llama,"
            " EuroBERT"
        )
    if not isinstance(model_type, str):
        raise UserError(f"{where}: model_type = {line(repr(model_type), 100)} in config.json is not the name of a type")
    return "transformers"


def read_model(
    kind: ForeignKind, config: dict[str, Any], weights: ForeignWeights, auto_class: str | None, where: str
) -> ForeignModel:
    """Return a model; raise a UserError, which begins with `where`, if its files do not fit together.

    `auto_class`: the class that a model of transformers is read for.
    """
    check_layers(config, where, len(weights.shapes))
    if kind in ("llada", "transformers"):
        from babelmill.release.elsewhere.transformers_weights import read_by_class  # takes seconds

        assert auto_class
        if kind == "llada":
            config = llada.config_of(config, where)
            weights = weights.renamed(llada.names_of(weights.shapes, config["num_hidden_layers"], where))
        shape, weights = read_by_class(config, weights, auto_class, kind == "llada", where)
        return ForeignModel("transformers", config, shape, weights)
    ours = weights.renamed(published_models.our_names(weights.shapes, weights.load, where))
    if kind == "norbert4":
        shape = with_our_names(published_models.shape_of_norbert4(config, ours.shapes, f"{where}: config.json"))
        return ForeignModel("norbert4", {"architecture": "norbert4"} | shape, shape, ours)
    shape = published_models.shape_of_gpt_bert(config, ours.shapes, f"{where}: config.json")
    return ForeignModel("gpt_bert", shape, shape, ours)


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
    """Open names and tensors that PyTorch saved, or all that OccCANINE saves. Tensors are read when they are used.

    A UserError says that the file is damaged, or contains anything else, which only running code could load.
    """
    try:
        with open(path, "rb") as file:
            archive = file.read(4) == b"PK\3\4"  # older versions wrote a bare pickle, which is read as a whole
        content, key = torch.load(path, map_location="cpu", weights_only=True, mmap=archive), None
    except Exception as error:  # a damaged archive can raise any exception
        refused = re.search(r"(?:GLOBAL|Unsupported class) (\S+)", str(error))
        if not isinstance(error, pickle.UnpicklingError) or not refused:
            raise UserError(f"{where}: not a checkpoint of PyTorch, or a damaged one") from None
        raise UserError(
            f"{where} contains more than tensors and plain values ({refused[1]}). To load this would run code from the"
            " file, so it is refused; ask its author for a file with only the state_dict"
        ) from None
    if isinstance(content, dict) and "key" in content and isinstance(content.get("model"), dict):
        content, key = content["model"], content["key"]
    pairs = content.items() if isinstance(content, dict) else [(None, None)]
    if not all(isinstance(name, str) and isinstance(value, Tensor) for name, value in pairs):
        raise UserError(f"{where} does not contain the state_dict of a model (names and tensors)")
    _check_types({name: tensor.dtype for name, tensor in content.items()}, DTYPES, where)
    return ForeignWeights({name: tensor.to("meta") for name, tensor in content.items()}, content.__getitem__, key)
