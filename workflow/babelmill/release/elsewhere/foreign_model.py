"""Read a model that was not trained here: the kind that its config.json describes, and its tensors under our names.

No code in its files is run. Tensors are read from .safetensors, or from .bin files that contain only tensors and plain
values. GPT-BERT and NorBERT4 get our names and the configuration that our training writes, LLaDA those of EuroBERT,
and other transformers models those of their class.
"""

import copy
import json
import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from safetensors import SafetensorError
from torch import Tensor

from babelmill.config.models import ADAPTER, ONLY_AN_ADAPTER, check_layers, with_our_names
from babelmill.core.escape import line, some
from babelmill.core.files import UserError
from babelmill.hub.files import Files
from babelmill.release.elsewhere import llada, published_models
from babelmill.runtime.checkpoint import DTYPES, SavedTensors

ForeignKind = Literal["gpt_bert", "norbert4", "llada", "transformers"]
OURS = ("babelmill_gpt_bert", "babelmill_norbert4")  # the model types of those that we export
ONE_FILE = ("model.safetensors", "pytorch_model.bin")
LAST = "last.bin"  # OccCANINE's last weights; the files of earlier steps are in the same folder
NO_WEIGHTS = re.compile(r"^(training_args|optimizer|scheduler|rng_state|scaler)\b|_state_dict\.bin$")
NAMED_BY = "model.safetensors or pytorch_model.bin"
# Tensors of a file that are not needed: heads and poolers that the class of a language model lacks, and constants.
BESIDES = re.compile(r"pooler\.|seq_relationship\.|discriminator_predictions\.|rotary_emb\.inv_freq$")


class ForeignModel(NamedTuple):
    """Holds the configuration and the weights of a model."""

    architecture: Literal["gpt_bert", "norbert4", "transformers"]
    config: dict[str, Any]  # its config.json. For one of ours, the shape in the form that training writes
    shape: dict[str, Any]  # its sizes, under the names of the section `model`
    weights: dict[str, Tensor]  # under our names, or those of its transformers class


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
    kind: ForeignKind, config: dict[str, Any], tensors: dict[str, Tensor], auto_class: str | None, where: str
) -> ForeignModel:
    """Return a model; raise a UserError, which begins with `where`, if its files do not fit together.

    `auto_class`: the class that a model of transformers is read for.
    """
    check_layers(config, where, len(tensors))
    if kind in ("llada", "transformers"):
        assert auto_class
        return read_by_class(kind, config, tensors, auto_class, where)
    shape, weights = published_models.read_published(kind, config, tensors, where)
    if kind == "norbert4":
        shape = with_our_names(shape)
        return ForeignModel("norbert4", {"architecture": "norbert4"} | shape, shape, weights)
    return ForeignModel("gpt_bert", shape, shape, weights)


def read_by_class(
    kind: ForeignKind, config: dict[str, Any], tensors: dict[str, Tensor], auto_class: str, where: str
) -> ForeignModel:
    """Read a model as its transformers class does, each weight once: a tied weight by its first name.

    transformers itself fills missing weights with random numbers, and only mentions it in a report, which is read here.
    Of a model for any task, only the encoder is read for a classifier. LLaDA's weights stay in their files until they
    are used; others are in memory, in float32.
    """
    from transformers.utils import logging as of_transformers  # takes seconds

    from babelmill.training.networks import transformers_models as ours

    if kind == "llada":
        config = llada.config_of(config, where)
        names = llada.names_of(tensors, config["num_hidden_layers"], where)
        tensors = {name: tensors[theirs] for name, theirs in names.items()}
    made = ours.on_meta(published := ours.read_config(config, auto_class, where), auto_class)
    if published.is_encoder_decoder:
        raise UserError(
            f"{where}: model_type = {published.model_type!r}: it has an encoder and a decoder, and needs both"
        )
    shape = ours.shape_of(made)
    if kind == "llada":
        if odd := published_models.difference(made, tensors):
            raise UserError(f"{where} is not the model that its config.json describes: {odd}")
        return ForeignModel("transformers", config, shape, tensors)
    of_transformers.set_verbosity_error()
    of_transformers.disable_progress_bar()
    cls: Any = type(made)
    options: dict[str, Any] = {"ignore_mismatched_sizes": True, "output_loading_info": True, "dtype": torch.float32}
    model, report = cls.from_pretrained(None, config=copy.deepcopy(published), state_dict=tensors, **options)
    weights = {name: parameter.detach() for name, parameter in ours.base_first(model).named_parameters()}
    missing, unknown = report["missing_keys"], [name for name in report["unexpected_keys"] if not BESIDES.search(name)]
    if auto_class == ours.CLASSIFIER:
        prefix, unknown = f"{model.base_model_prefix}.", []
        weights = {n: t for n, t in weights.items() if n.startswith(prefix) and n not in missing}
        missing = {name for name in missing if name.startswith(prefix) and ".pooler." not in name}
    if missing:
        raise UserError(
            f"{where}: {len(missing)} weights of {cls.__name__} are missing, such as {min(missing)}; perhaps it is a"
            " model for another task, or tie_word_embeddings in config.json is wrong"
        )
    for name, theirs, expected in sorted(report["mismatched_keys"]):
        raise UserError(f"{where}: {name} is {list(theirs)}, its config.json says {list(expected)}")
    if unknown or report["error_msgs"]:
        raise UserError(f"{where}: {min([*unknown, *report['error_msgs']])} is not a weight of {cls.__name__}")
    if apart := sorted({name for name, _ in model.named_parameters()} - {name for name, _ in made.named_parameters()}):
        raise UserError(
            f"{where}: {apart[0]} differs from the weight that it is by config.json: tie_word_embeddings = true, which"
            " is often the default; if the model has both, set tie_word_embeddings: false there"
        )
    return ForeignModel("transformers", config, shape, weights)


# The files of the model.


def require_config(files: Files) -> Path:
    """Return the path of a model's config.json; raise a UserError that says what the files are if there is none."""
    if "config.json" in files.names:
        return files.get(["config.json"])["config.json"]
    if ADAPTER in files.names:
        raise UserError(f"{files.where}: {ONLY_AN_ADAPTER}")
    raise UserError(f"{files.where} has no config.json; it has {some(files.names, 8) or 'no files'}")


def weight_files(files: Files) -> list[str]:
    """Return which files of a model hold its weights.

    A UserError says that there are no weights, that some parts are missing, or that several files could be the weights.
    """
    names, where = files.names, files.where
    for name in ONE_FILE:
        if name in names:
            return [name]
        if (index := f"{name}.index.json") in names:
            content = files.json(index)
            table = content.get("weight_map") if isinstance(content, dict) else None
            if not isinstance(table, dict) or not table or not all(isinstance(part, str) for part in table.values()):
                raise UserError(f"{where}: {index} does not say which file holds which weight")
            if missing := sorted({*table.values()} - {*names}):
                raise UserError(f"{where}: the download is not complete: {index} also names {some(missing, 3)}")
            return sorted({*table.values()})
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
            f"{where}: several files could be the weights: {some(found, 5)}; rename the right ones to {NAMED_BY}"
        )
    there = some(names) or "no files"
    raise UserError(f"{where} has no file of weights ({NAMED_BY}, or several with an index); it has {there}")


def open_weights(paths: Mapping[str, Path], where: str) -> tuple[dict[str, Tensor], Any]:
    """Open files of weights, {file name: path}: return the tensors, and OccCANINE's {code: class} (else None).

    The numbers of a tensor are read from its file when they are used. A UserError, which begins with `where`, says that
    a file is damaged, or that two files hold the same weight.
    """
    tensors, key = dict[str, Tensor](), None
    for file, path in paths.items():
        label = f"{where}: {file}"
        part: dict[str, Tensor]
        if file.endswith(".safetensors"):
            try:
                part = dict(SavedTensors(path))
            except (SafetensorError, json.JSONDecodeError) as error:
                raise UserError(f"{label}: truncated or damaged ({error}); replace it by a complete copy") from None
        else:
            part, key = unpickled(path, label)
        if odd := [name for name, tensor in part.items() if tensor.dtype not in DTYPES]:
            allowed = ", ".join(sorted(DTYPES.values()))
            raise UserError(f"{label}: {odd[0]} is of type {part[odd[0]].dtype}; allowed are {allowed}")
        if twice := tensors.keys() & part.keys():
            raise UserError(f"{where}: {file} and another file both contain {min(twice)}")
        tensors |= part
    return tensors, key


def unpickled(path: Path, where: str) -> tuple[dict[str, Tensor], Any]:
    """Return the tensors that PyTorch saved, and the `key` that OccCANINE saves beside them, or None.

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
    return content, key
