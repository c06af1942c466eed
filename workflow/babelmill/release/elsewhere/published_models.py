"""Read models that the published GPT-BERT code wrote (ltgoslo/gpt-bert, BabyBabelLM's copy of it), and NorBERT4 (HPLT).

The names of their weights are ours, with some more: training in parallel puts `module.` before them, transformers
`model.`; each layer of a GPT-BERT has a buffer of position indices; and the head has a second copy of the embedding.
The shape is in the configuration file with which the model was trained: the weights do not show the number of heads.
"""

from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from typing import Any, Literal

import torch
from tokenizers import AddedToken, Tokenizer
from torch import Tensor

from babelmill.core.escape import line
from babelmill.core.files import UserError
from babelmill.model.gpt_bert import GPTBert, GPTBertShape
from babelmill.model.norbert4 import NorBERT4, NorBERT4Shape
from babelmill.tokens.tokenizer_file import begin_with_bos, load_tokenizer
from babelmill.tokens.vocabulary import MASK, NEEDED, SPECIAL_TOKENS

# The keys of the published configuration files. All are required: with a wrong default, the model would be wrong.
SIZES = ("vocab_size", "hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers")
SIZES += ("max_position_embeddings", "position_bucket_size")
KEYS: dict[str, Any] = dict.fromkeys(SIZES, int)
KEYS |= dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob", "layer_norm_eps"), (int, float))
KEYS_OF_NORBERT4: dict[str, Any] = {field.name: int for field in fields(NorBERT4Shape) if field.default is MISSING}
LARGEST = 2**31  # what a size must be below
EMBEDDING = "embedding.word_embedding.weight"
COPIES = ("classifier.nonlinearity.5.weight", "classifier.emb2vocab.weight")  # of the embedding


def read_published(
    kind: Literal["gpt_bert", "norbert4"], config: Mapping[str, Any], tensors: Mapping[str, Tensor], where: str
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the shape of a model and its weights under our names.

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
        keys = KEYS_OF_NORBERT4 | {"layer_norm_eps": (int, float)}
        made_as = NorBERT4Shape(**checked({"layer_norm_eps": 1e-5, **config}, keys, where))
        if (size := made_as.query_key_head_size) % 2:
            raise UserError(f"{where}: query_key_head_size = {size} must be even")
        shape = asdict(made_as)
        with torch.device("meta"):
            made = NorBERT4(made_as)
    if odd := difference(made, weights):
        raise UserError(f"{where}: this is not the model that it describes: {odd}")
    return shape, weights


def checked(config: Mapping[str, Any], keys: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return some keys of a configuration: sizes are 1 or more, other numbers 0 or more."""
    for key, kind in keys.items():
        value: Any = config.get(key)
        least = 1 if kind is int else 0
        if isinstance(value, bool) or not isinstance(value, kind) or not least <= value < LARGEST:
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
