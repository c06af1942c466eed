"""Match the tensors of a published model with the weights of a transformers class, each weight exactly once.

transformers itself would fill missing weights with random numbers. This module uses its rules for names (prefixes,
older names), but not its rules that make one tensor out of several.
"""

import re
from collections.abc import Iterable

import torch
from transformers import PreTrainedModel
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import WeightConverter, WeightRenaming, rename_source_key

from babelmill.core.files import UserError
from babelmill.release.elsewhere.foreign_model import ForeignWeights

TIED = "tie_word_embeddings"  # the key of config.json that says whether the output matrix is the embedding
# Tensors of a file that are not needed: heads and poolers that the class of a language model lacks, and constants.
BESIDES = re.compile(
    r"pooler\.|seq_relationship\.|discriminator_predictions\.|(^|\.)position_ids$|rotary_emb\.inv_freq$"
    r"|attn\.(masked_)?bias$|attention\.(masked_)?bias$"
)


def names_of(model: PreTrainedModel, weights: ForeignWeights, where: str) -> dict[str, str]:
    """Return {name in the class: name in the files} of all weights. A tied weight is listed once, by its first name.

    `model` is one of the class, on the device `meta`. A UserError, which begins with `where`, says that a weight is
    missing, has another shape or is unknown to the class, or that tied weights differ.
    """
    renamed, strange = _renamed(model, weights.shapes)
    groups, cls = _groups(model), type(model).__name__
    there = {first: [renamed[name] for name in names if name in renamed] for first, names in groups.items()}
    if missing := [first for first, names in there.items() if not names]:
        raise UserError(
            f"{where}: {len(missing)} of {len(there)} weights of {cls} are missing, such as {missing[0]};"
            f" {_why(model, missing)}"
        )
    if strange := [name for name in strange if not BESIDES.search(name)]:
        raise UserError(f"{where}: {strange[0]} is not a weight of {cls}")
    found = {first: names[0] for first, names in there.items()}
    found |= {name: renamed[name] for name in sorted(renamed.keys() - set().union(*groups.values()))}  # buffers
    _check_shapes(found, model, weights, where)
    for first, names in there.items():
        if any(not torch.equal(weights.load(name), weights.load(names[0])) for name in names[1:]):
            raise UserError(
                f"{where}: {first} and {groups[first][-1]} differ, but config.json says that they are one weight:"
                f" {TIED} = true, which is often the default; if the model has both, set {TIED}: false there"
            )
    return found


def _why(model: PreTrainedModel, missing: list[str]) -> str:
    """Return why weights may be missing."""
    layer, names = model.get_output_embeddings(), dict(model.named_parameters(remove_duplicate=False))
    if layer is not None and not getattr(model.config, TIED, True) and all(names[m] is layer.weight for m in missing):
        return f"if the output is the embedding, as in most such models, set {TIED}: true in config.json, not false"
    return "perhaps it is a model for another task, which lacks the head"


def encoder_names_of(model: PreTrainedModel, weights: ForeignWeights, where: str) -> dict[str, str]:
    """Return {name in the class: name in the files} of an encoder's weights, without the heads of both.

    `model` has a classifier, and is on the device `meta`; `weights` are those of a published model for any task. A
    UserError, which begins with `where`, says that a weight of the encoder is missing, or has another shape.
    """
    renamed, _ = _renamed(model, weights.shapes)
    own = [name for name in model.state_dict() if name.startswith(f"{model.base_model_prefix}.")]
    found = {name: renamed[name] for name in own if name in renamed}
    if missing := [name for name in own if name not in found and ".pooler." not in name]:
        raise UserError(f"{where}: {min(missing)} is missing: these are not the weights of this encoder")
    _check_shapes(found, model, weights, where)
    return found


def _check_shapes(names: dict[str, str], model: PreTrainedModel, weights: ForeignWeights, where: str) -> None:
    """Raise a UserError if a weight of the files has another shape than that of the class."""
    expected = model.state_dict()
    for ours, theirs in names.items():
        if (shape := list(weights.shapes[theirs].shape)) != list(expected[ours].shape):
            raise UserError(f"{where}: {theirs} is {shape}, its config.json says {list(expected[ours].shape)}")


def _groups(model: PreTrainedModel) -> dict[str, list[str]]:
    """Return {first name: all names} of each parameter. A tied parameter has several names."""
    groups: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        groups.setdefault(id(parameter), []).append(name)
    return {names[0]: names for names in groups.values()}


def _renamed(model: PreTrainedModel, names: Iterable[str]) -> tuple[dict[str, str], list[str]]:
    """Return {name in the class: name in the files}, by transformers' own rules, and the names that do not fit."""
    rules = get_model_conversion_mapping(model)
    renamings = [rule for rule in rules if isinstance(rule, WeightRenaming)]
    converters = [rule for rule in rules if isinstance(rule, WeightConverter)]
    expected, prefix = model.state_dict(), model.base_model_prefix
    found: dict[str, str] = {}
    strange = []
    for name in names:
        ours, made_of_several = rename_source_key(name, renamings, converters, prefix, expected)
        if ours not in expected and name in expected:
            ours = name
        if ours in expected and ours not in found and not made_of_several:
            found[ours] = name
        else:
            strange.append(name)
    return found, strange
