"""Read a model that was not trained here: the kind that its config.json describes, and its tensors under our names.

No code in its files is run. Tensors are read from .safetensors, or from .bin files that contain only tensors and plain
values. GPT-BERT (ltgoslo/gpt-bert, BabyBabelLM's copy of it) and NorBERT4 (HPLT) get our names and the configuration
that our training writes, LLaDA those of EuroBERT, and other transformers models those of their class.

The published names of GPT-BERT's weights are ours, with some more: training in parallel puts `module.` before them,
transformers `model.`; each layer has a buffer of position indices; and the head has a second copy of the embedding. The
shape is in the configuration file with which the model was trained: the weights do not show the number of heads.
"""

import copy
import json
import pickle
import re
from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from tokenizers import AddedToken, Tokenizer
from torch import Tensor

from babelmill.config.models import ADAPTER, ONLY_AN_ADAPTER, check_layers, with_our_names
from babelmill.core.escape import line, some
from babelmill.core.files import UserError
from babelmill.hub.files import Files
from babelmill.model.gpt_bert import GPTBert, GPTBertShape
from babelmill.model.norbert4 import NorBERT4, NorBERT4Shape
from babelmill.release.elsewhere import llada
from babelmill.runtime.checkpoint import DTYPES
from babelmill.tokens.tokenizer_file import FILES, begin_with_bos, load_tokenizer, vocab_size
from babelmill.tokens.vocabulary import MASK, NEEDED, SPECIAL_TOKENS

ForeignKind = Literal["gpt_bert", "norbert4", "llada", "transformers"]
OURS = ("babelmill_gpt_bert", "babelmill_norbert4")  # the model types of those that we export
ONE_FILE = ("model.safetensors", "pytorch_model.bin")
LAST = "last.bin"  # OccCANINE's last weights; the files of earlier steps are in the same folder
NO_WEIGHTS = re.compile(r"^(training_args|optimizer|scheduler|rng_state|scaler)\b|_state_dict\.bin$")
NAMED_BY = "model.safetensors or pytorch_model.bin"
# Tensors of a file that are not needed: heads and poolers that the class of a language model lacks, and constants.
BESIDES = re.compile(r"pooler\.|seq_relationship\.|discriminator_predictions\.|rotary_emb\.inv_freq$")
# The keys of the published configuration files. All are required: with a wrong default, the model would be wrong.
KEYS: dict[str, Any] = {field.name: field.type for field in fields(GPTBertShape) if field.type is not bool}
KEYS_OF_NORBERT4: dict[str, Any] = {f.name: f.type for f in fields(NorBERT4Shape) if f.default is MISSING}
LARGEST = 2**31  # what a size must be below
EMBEDDING = "embedding.word_embedding.weight"
COPIES = ("classifier.nonlinearity.5.weight", "classifier.emb2vocab.weight")  # of the embedding


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
    if model_type == OURS[0] or config.keys() >= KEYS.keys():
        return "gpt_bert"
    if config.keys() >= {*KEYS_OF_NORBERT4}:
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
    return read_published(kind, config, tensors, where)


# GPT-BERT and NorBERT4.


def read_published(
    kind: Literal["gpt_bert", "norbert4"], config: Mapping[str, Any], tensors: Mapping[str, Tensor], where: str
) -> ForeignModel:
    """Return a model under our names.

    The names of the weights tell whether a GPT-BERT has gates and layer mixing. A UserError, which begins with `where`,
    says that a key is missing or has an impossible value, that the weights do not fit it, or that the head has a matrix
    of its own, not a copy of the embedding.
    """
    kept = {name: tensor for name, tensor in tensors.items() if not name.endswith(".position_indices")}
    weights = {name.removeprefix("module.").removeprefix("model."): tensor for name, tensor in kept.items()}
    for name in weights.keys() & COPIES:
        if EMBEDDING not in weights or not torch.equal(weights.pop(name), weights[EMBEDDING]):
            raise UserError(f"{where}: {name} is not the token embedding, as it is in every GPT-BERT and NorBERT4")
    where = f"{where}: config.json"
    if kind == "gpt_bert":
        shape = checked(config, KEYS, where)
        if shape["hidden_size"] % (heads := shape["num_attention_heads"]):
            raise UserError(f"{where}: num_attention_heads = {heads} does not divide hidden_size")
        shape["gate"] = any(".in_proj_vg." in name for name in weights)
        shape["layer_mixing"] = any(".dwa_modules." in name for name in weights)
        with torch.device("meta"):
            made = GPTBert(GPTBertShape(**shape))
    else:
        keys = KEYS_OF_NORBERT4 | {"layer_norm_eps": float}
        made_as = NorBERT4Shape(**checked({"layer_norm_eps": 1e-5, **config}, keys, where))
        if (size := made_as.query_key_head_size) % 2:
            raise UserError(f"{where}: query_key_head_size = {size} must be even")
        shape = {"architecture": kind} | with_our_names(asdict(made_as))
        with torch.device("meta"):
            made = NorBERT4(made_as)
    if odd := difference(made, weights):
        raise UserError(f"{where}: this is not the model that it describes: {odd}")
    return ForeignModel(kind, shape, shape, weights)


def checked(config: Mapping[str, Any], keys: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return some keys of a configuration, {key: type}. Sizes (int) are 1 or more, other numbers 0 or more."""
    for key, kind in keys.items():
        value: Any = config.get(key)
        allowed, least = (int, 1) if kind is int else (int | float, 0)
        if isinstance(value, bool) or not isinstance(value, allowed) or not least <= value < LARGEST:
            shown = line(repr(value), 60)
            raise UserError(f"{where}: {key} = {shown} is not allowed; use the configuration file of the training")
    return {key: config[key] for key in keys}


def difference(model: torch.nn.Module, weights: Mapping[str, Tensor]) -> str | None:
    """Say which weight does not fit a model. Return None if all fit."""
    expected = {name: list(value.shape) for name, value in model.state_dict().items()}
    for name in sorted(expected.keys() | weights.keys()):
        has = list(weights[name].shape) if name in weights else "absent"
        if has != expected.get(name, "absent"):
            return f"{name} is {has}, but must be {expected.get(name, 'absent')}"
    return None


# Models of transformers.


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
        if odd := difference(made, tensors):
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


def files_to_load(files: Files) -> list[str]:
    """Return which files of a model transformers reads: its configuration, weights and tokenizer, but no code."""
    beside = [name for name in files.names if name in FILES or name.endswith(".index.json")]
    return list(dict.fromkeys(["config.json", *weight_files(files), *beside]))


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
                part = dict(sorted(load_file(path).items()))
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


# The tokenizer.


def check_entries(tokenizer: Tokenizer, rows: int, where: str) -> None:
    """Raise a UserError, which begins with `where`, if a tokenizer has more entries than its embedding has `rows`."""
    if (entries := vocab_size(tokenizer)) > rows:
        raise UserError(
            f"{where}: the tokenizer has {entries:,} entries, but the embedding only {rows:,} rows: they do not belong"
            " together"
        )


def adapted_tokenizer(path: Path) -> Tokenizer:
    """Return the checkpoint's tokenizer, adapted so that it encodes a user's text as training did by other code.

    It puts `<s>` before a text. It declares the special tokens as such, so that `<mask>` in a text is the mask; the
    published script does not declare them. `<mask>` absorbs the space before it, which is part of the hidden word. If
    the tokenizer itself puts a space before each text, `<mask>` also absorbs the space after it, since there would
    otherwise be two spaces.
    """
    tokenizer = load_tokenizer(path)
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    if missing := [token for token in NEEDED if token not in vocabulary]:
        raise UserError(f"{path} has no token {missing[0]}; use the tokenizer with which the model was trained")
    puts_a_space = tokenizer.encode("a", add_special_tokens=False).tokens[:1] != ["a"]
    for token in SPECIAL_TOKENS:
        if token in vocabulary:
            left, right = token == MASK, token == MASK and puts_a_space
            declared = AddedToken(token, lstrip=left, rstrip=right, normalized=False, special=True)
            tokenizer.add_special_tokens([declared])
    tokenizer.encode_special_tokens = False
    begin_with_bos(tokenizer)
    return tokenizer
