"""Read checkpoints of the published GPT-BERT implementation (ltgoslo/gpt-bert, and BabyBabelLM's copy of it).

The checkpoints are pickles: `{name}.bin` and `{name}_ema.bin` hold one model's weights; `{name}_state_dict.bin` holds
both models' weights and the optimizer. Only tensors and plain values are read. A file that contains anything else is
refused, since loading it would run code. The names of weights are like ours, with three differences: they begin with
`module.`, each layer has a buffer of position indices, and the head has a second copy of the embedding. The shape is
in the implementation's configuration file. It must be the file with which the model was trained: the weights do not
show the number of heads.
"""

import json
import pickle
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor

from babelmill.core.escape import line
from babelmill.core.files import UserError
from babelmill.model.gpt_bert import GPTBert, GPTBertShape
from babelmill.tokens.tokenizer_file import begin_with_bos, load_tokenizer
from babelmill.tokens.vocabulary import BOS, EOS, MASK, PAD, SPECIAL_TOKENS

# The keys of the published configuration files. All are required: with a wrong default, the model would be wrong.
KEYS = {
    "vocab_size": int,
    "hidden_size": int,
    "intermediate_size": int,
    "num_attention_heads": int,
    "num_hidden_layers": int,
    "max_position_embeddings": int,
    "position_bucket_size": int,
    "hidden_dropout_prob": (int, float),
    "attention_probs_dropout_prob": (int, float),
    "layer_norm_eps": (int, float),
}
LARGEST = 2**31  # what a size must be below
EMBEDDING, HEAD = "embedding.word_embedding.weight", "classifier.nonlinearity.5.weight"


def read_weights(path: Path) -> dict[str, dict[str, Tensor]]:
    """Return the models in a checkpoint under our names, in fp32: `main`, and `ema` if the file has both."""
    content = read_pickle(path)
    both = {"main": content["model"], "ema": content.get("ema_model")} if is_whole_state(content) else {"main": content}
    found = {}
    for variant, weights in both.items():
        if weights is not None:
            names = our_names(check_state_dict(weights, path), weights.__getitem__, path)
            found[variant] = {ours: weights[theirs].float() for ours, theirs in names.items()}
    return found


def read_pickle(path: Path) -> Any:
    """Return what PyTorch saved in a file: plain values, and tensors, which stay in the file until they are used.

    A UserError says that the file is damaged, or contains anything else, which only running code could load.
    """
    try:
        with open(path, "rb") as file:
            archive = file.read(4) == b"PK\3\4"  # older versions wrote a bare pickle, which is read as a whole
        return torch.load(path, map_location="cpu", weights_only=True, mmap=archive)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except pickle.UnpicklingError as error:
        wanted = re.search(r"(?:GLOBAL|Unsupported class) (\S+)", str(error))
        if not wanted:
            raise UserError(f"{path}: not a checkpoint of PyTorch, or a damaged one") from None
        raise UserError(
            f"{path} contains more than tensors and plain values ({wanted[1]}). To load this would run code from the"
            " file, so it is refused; ask its author for a file with only the state_dict"
        ) from None
    except Exception:  # a damaged archive can raise any exception
        raise UserError(f"{path}: not a checkpoint of PyTorch, or a damaged one") from None


def is_whole_state(content: Any) -> bool:
    """Return whether this is the content of a `_state_dict.bin`, which holds more than weights."""
    return isinstance(content, dict) and isinstance(content.get("model"), dict)


def check_state_dict(weights: Any, path: Path) -> dict[str, Tensor]:
    """Return the weights. Raise a UserError if they are not names and tensors."""
    pairs = weights.items() if isinstance(weights, dict) else [(None, None)]
    if not all(isinstance(name, str) and isinstance(value, Tensor) for name, value in pairs):
        raise UserError(f"{path} does not contain the state_dict of a model (names and tensors)")
    return weights


def our_names(names: Iterable[str], load: Callable[[str], Tensor], where: object) -> dict[str, str]:
    """Return {our name: name in the files} of the weights that our GPT-BERT has.

    Parallel training and transformers put prefixes before ours. `load` reads a tensor. A UserError, which begins with
    `where`, says that the head has a matrix of its own, not a second copy of the embedding.
    """
    kept = (name for name in names if not name.endswith(".position_indices"))
    found = {name.removeprefix("module.").removeprefix("model."): name for name in kept}
    head = found.pop(HEAD, None)
    if head and (EMBEDDING not in found or not torch.equal(load(head), load(found[EMBEDDING]))):
        raise UserError(f"{where}: {head} is not the token embedding, as it is in every GPT-BERT model")
    return found


def shape_in(config: dict[str, Any], weights: Iterable[str], where: object) -> dict[str, Any]:
    """Return the shape: the keys of a published configuration, and `gate` and `layer_mixing`. `where` begins errors.

    The names of the weights tell whether the model has gates and layer mixing. A UserError says that a key is missing
    or has an impossible value.
    """
    shape, names = sizes_in(config, where), list(weights)
    return shape | {
        "gate": any(".in_proj_vg." in name for name in names),
        "layer_mixing": any(".dwa_modules." in name for name in names),
    }


def sizes_in(config: dict[str, Any], where: object) -> dict[str, Any]:
    """Return the keys `KEYS` of a configuration; raise a UserError if one is missing or has an impossible value."""
    for key, kind in KEYS.items():
        value: Any = config.get(key)
        if isinstance(value, bool) or not isinstance(value, kind) or not 0 <= value < LARGEST:
            shown = line(repr(value), 60)
            raise UserError(f"{where}: {key} = {shown} is not allowed; use the configuration file of the training")
    shape = {key: config[key] for key in KEYS}
    if not shape["num_attention_heads"] or shape["hidden_size"] % shape["num_attention_heads"]:
        raise UserError(f"{where}: num_attention_heads = {shape['num_attention_heads']} does not divide hidden_size")
    return shape


def misfit(shape: dict[str, Any], weights: Mapping[str, Tensor]) -> str | None:
    """Say which weight, under our name, does not fit a GPT-BERT model of a shape. Return None if all fit."""
    if shape["num_hidden_layers"] > len(weights):  # to make so many could take hours
        return f"it has {len(weights):,} tensors, fewer than num_hidden_layers = {shape['num_hidden_layers']:,}"
    with torch.device("meta"):
        model = GPTBert(GPTBertShape(**{field.name: shape[field.name] for field in fields(GPTBertShape)}))
    return difference(model, weights)


def difference(model: torch.nn.Module, weights: Mapping[str, Tensor]) -> str | None:
    """Say which weight does not fit a model. Return None if all fit."""
    expected = {name: list(value.shape) for name, value in model.state_dict().items()}
    for name in sorted(expected.keys() | weights.keys()):
        has = list(weights[name].shape) if name in weights else "absent"
        if has != expected.get(name, "absent"):
            return f"{name} is {has}, but must be {expected.get(name, 'absent')}"
    return None


def adapted_tokenizer(path: Path) -> Tokenizer:
    """Return the checkpoint's tokenizer, adapted so that it encodes a user's text as training did by other code.

    It puts `<s>` before a text. It declares the special tokens as such, so that `<mask>` in a text is the mask; the
    published script does not declare them. `<mask>` absorbs the space before it, which is part of the hidden word. If
    the tokenizer itself puts a space before each text, `<mask>` also absorbs the space after it, since there would
    otherwise be two spaces.
    """
    tokenizer = load_tokenizer(path)
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    if missing := [token for token in (BOS, EOS, PAD, MASK) if token not in vocabulary]:
        raise UserError(f"{path} has no token {missing[0]}; use the tokenizer with which the model was trained")
    puts_a_space = tokenizer.encode("a", add_special_tokens=False).tokens[:1] != ["a"]
    content = json.loads(tokenizer.to_str())
    declared = {entry["content"]: entry for entry in content["added_tokens"]}
    for token in SPECIAL_TOKENS:
        if token in vocabulary:
            mask = token == MASK
            declared[token] = {
                "id": vocabulary[token],
                "content": token,
                "single_word": False,
                "lstrip": mask,
                "rstrip": mask and puts_a_space,
                "normalized": False,
                "special": True,
            }
    content["added_tokens"] = sorted(declared.values(), key=lambda entry: entry["id"])
    tokenizer = Tokenizer.from_str(json.dumps(content))
    begin_with_bos(tokenizer)
    return tokenizer
