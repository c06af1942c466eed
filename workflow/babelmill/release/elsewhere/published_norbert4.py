"""Read the shape and the names of published NorBERT4 models (HPLT 3.0, NorBERT 4), and of those that we export.

Their names of weights are ours. Only the published files hold a second copy of the token embedding, as the matrix of
the output layer.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, asdict, fields
from typing import Any

import torch
from torch import Tensor

from babelmill.core.escape import line
from babelmill.core.files import UserError
from babelmill.model.norbert4 import NorBERT4, NorBERT4Shape
from babelmill.release.elsewhere.published_checkpoint import EMBEDDING, LARGEST, difference

OURS = "babelmill_norbert4"  # the model_type of those that we export
SIZES = [field.name for field in fields(NorBERT4Shape) if field.default is MISSING]  # keys of config.json
HEAD = "classifier.emb2vocab.weight"


def is_norbert4(config: Mapping[str, Any]) -> bool:
    """Return whether a config.json describes a NorBERT4: nothing else has all of these keys."""
    return config.keys() >= {*SIZES}


def our_names(names: Iterable[str], load: Callable[[str], Tensor], where: object) -> dict[str, str]:
    """Return {our name: name in the files}, see `published_checkpoint.our_names`."""
    found = {name.removeprefix("module."): name for name in names}
    head = found.pop(HEAD, None)
    if head and (EMBEDDING not in found or not torch.equal(load(head), load(found[EMBEDDING]))):
        raise UserError(f"{where}: {head} is not the token embedding, as it is in every NorBERT4")
    return found


def shape_in(config: Mapping[str, Any], shapes: Mapping[str, Tensor], where: str) -> dict[str, Any]:
    """Return the shape that a config.json describes, for weights of these `shapes` under our names.

    A UserError, which begins with `where`, says that a value is impossible, or that the weights do not fit it.
    """
    for key in SIZES:
        value: Any = config.get(key)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < LARGEST:
            raise UserError(f"{where}: config.json: {key} = {line(repr(value), 60)} is not allowed")
    eps = config.get("layer_norm_eps", 1e-5)
    if isinstance(eps, bool) or not isinstance(eps, (int, float)) or not 0 < eps < 1:
        raise UserError(f"{where}: config.json: layer_norm_eps = {line(repr(eps), 60)} is not allowed")
    if config["query_key_head_size"] % 2:
        raise UserError(f"{where}: config.json: query_key_head_size = {config['query_key_head_size']} must be even")
    if config["num_layers"] > len(shapes):  # to make so many could take hours
        raise UserError(
            f"{where}: it has {len(shapes):,} tensors, fewer than num_layers = {config['num_layers']:,} in config.json"
        )
    shape = NorBERT4Shape(**{key: config[key] for key in SIZES}, layer_norm_eps=eps)
    with torch.device("meta"):
        made = NorBERT4(shape)
    if found := difference(made, shapes):
        raise UserError(f"{where} is not the NorBERT4 that its config.json describes: {found}")
    return asdict(shape)
