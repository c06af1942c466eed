"""Read models that the published GPT-BERT code wrote (ltgoslo/gpt-bert, BabyBabelLM's copy of it), and NorBERT4 (HPLT).

The names of their weights are ours, with some more: training in parallel puts `module.` before them, transformers
`model.`; each layer of a GPT-BERT has a buffer of position indices; and the head has a second copy of the embedding.
The shape is in the configuration file with which the model was trained: the weights do not show the number of heads.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor

from babelmill.core.escape import line
from babelmill.core.files import UserError
from babelmill.model.gpt_bert import GPTBert, GPTBertShape
from babelmill.model.norbert4 import NorBERT4, NorBERT4Shape
from babelmill.tokens.tokenizer_file import begin_with_bos, load_tokenizer
from babelmill.tokens.vocabulary import BOS, EOS, MASK, PAD, SPECIAL_TOKENS

# The keys of the published configuration files. All are required: with a wrong default, the model would be wrong.
SIZES = ("vocab_size", "hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers")
SIZES += ("max_position_embeddings", "position_bucket_size")
KEYS: dict[str, Any] = dict.fromkeys(SIZES, int)
KEYS |= dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob", "layer_norm_eps"), (int, float))
KEYS_OF_NORBERT4 = [field.name for field in fields(NorBERT4Shape) if field.default is MISSING]
LARGEST = 2**31  # what a size must be below
EMBEDDING = "embedding.word_embedding.weight"
COPIES = ("classifier.nonlinearity.5.weight", "classifier.emb2vocab.weight")  # of the embedding


def our_names(names: Iterable[str], load: Callable[[str], Tensor], where: object) -> dict[str, str]:
    """Return {our name: name in the files} of the weights that our model has. `load` reads a tensor.

    A UserError, which begins with `where`, says that the head has a matrix of its own, not a copy of the embedding.
    """
    kept = (name for name in names if not name.endswith(".position_indices"))
    found = {name.removeprefix("module.").removeprefix("model."): name for name in kept}
    for head in filter(None, (found.pop(copy, None) for copy in COPIES)):
        if EMBEDDING not in found or not torch.equal(load(head), load(found[EMBEDDING])):
            raise UserError(f"{where}: {head} is not the token embedding, as it is in every GPT-BERT and NorBERT4")
    return found


def shape_of_gpt_bert(config: Mapping[str, Any], shapes: Mapping[str, Tensor], where: str) -> dict[str, Any]:
    """Return the shape of a GPT-BERT whose weights have these `shapes`, under our names. `where` begins errors.

    The names of the weights tell whether the model has gates and layer mixing. A UserError says that a key is missing
    or has an impossible value, or that the weights do not fit it.
    """
    shape = _values(config, KEYS, where) | {
        "gate": any(".in_proj_vg." in name for name in shapes),
        "layer_mixing": any(".dwa_modules." in name for name in shapes),
    }
    if shape["hidden_size"] % shape["num_attention_heads"]:
        raise UserError(f"{where}: num_attention_heads = {shape['num_attention_heads']} does not divide hidden_size")
    _check_layers("num_hidden_layers", shape, shapes, where)
    with torch.device("meta"):
        made = GPTBert(GPTBertShape(**shape))
    if found := difference(made, shapes):
        raise UserError(f"{where}: this is not the GPT-BERT that it describes: {found}")
    return shape


def shape_of_norbert4(config: Mapping[str, Any], shapes: Mapping[str, Tensor], where: str) -> dict[str, Any]:
    """Return the shape of a NorBERT4; see `shape_of_gpt_bert`."""
    keys: dict[str, Any] = dict.fromkeys(KEYS_OF_NORBERT4, int) | {"layer_norm_eps": (int, float)}
    shape = _values({"layer_norm_eps": 1e-5} | dict(config), keys, where)
    if shape["query_key_head_size"] % 2:
        raise UserError(f"{where}: query_key_head_size = {shape['query_key_head_size']} must be even")
    _check_layers("num_layers", shape, shapes, where)
    with torch.device("meta"):
        made = NorBERT4(found := NorBERT4Shape(**shape))
    if odd := difference(made, shapes):
        raise UserError(f"{where}: this is not the NorBERT4 that it describes: {odd}")
    return asdict(found)


def _values(config: Mapping[str, Any], keys: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return some keys of a configuration: sizes are 1 or more, other numbers 0 or more."""
    for key, kind in keys.items():
        value: Any = config.get(key)
        least = 1 if kind is int else 0
        if isinstance(value, bool) or not isinstance(value, kind) or not least <= value < LARGEST:
            shown = line(repr(value), 60)
            raise UserError(f"{where}: {key} = {shown} is not allowed; use the configuration file of the training")
    return {key: config[key] for key in keys}


def _check_layers(key: str, shape: Mapping[str, Any], shapes: Mapping[str, Tensor], where: str) -> None:
    if shape[key] > len(shapes):  # to make so many could take hours
        raise UserError(f"{where}: {key} = {shape[key]:,}: it has {len(shapes):,} tensors")


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
