"""Read the weights of a published model as its transformers class does, and refuse a model that is not whole.

transformers itself fills missing weights with random numbers, and only mentions it in a report. The report is read
here: every weight of the class must be in the files, with its shape.
"""

import copy
import re
from typing import Any

import torch
from transformers.utils import logging as of_transformers

from babelmill.core.files import UserError
from babelmill.release.elsewhere.foreign_model import ForeignWeights
from babelmill.release.elsewhere.published_models import difference
from babelmill.training.networks.transformers_models import CLASSIFIER, base_first, on_meta, read_config, shape_of

# Tensors of a file that are not needed: heads and poolers that the class of a language model lacks, and constants.
BESIDES = re.compile(r"pooler\.|seq_relationship\.|discriminator_predictions\.|rotary_emb\.inv_freq$")


def read_by_class(
    config: dict[str, Any], weights: ForeignWeights, auto_class: str, as_named: bool, where: str
) -> tuple[dict[str, Any], ForeignWeights]:
    """Return a model's shape, and its weights under the names of its class, each once: a tied weight by its first name.

    Of a model for any task, only the encoder is read for a classifier. `as_named`: the weights have these names already
    and stay in their files until they are used; else they are in memory, in float32. A UserError, which begins with
    `where`, says that a weight is missing, has another shape or is unknown to the class, or that tied weights differ.
    """
    made = on_meta(published := read_config(config, auto_class, where), auto_class)
    if published.is_encoder_decoder:
        raise UserError(
            f"{where}: model_type = {published.model_type!r}: it has an encoder and a decoder, and needs both"
        )
    shape = shape_of(made)
    cls: Any = type(made)
    options: dict[str, Any] = {"ignore_mismatched_sizes": True, "output_loading_info": True, "dtype": torch.float32}
    if as_named:
        if odd := difference(made, weights.shapes):
            raise UserError(f"{where} is not the model that its config.json describes: {odd}")
        return shape, weights
    of_transformers.set_verbosity_error()  # the report is read below
    of_transformers.disable_progress_bar()
    found = {name: weights.load(name) for name in weights.shapes}
    model, report = cls.from_pretrained(None, config=copy.deepcopy(published), state_dict=found, **options)
    tensors = {name: parameter.detach() for name, parameter in base_first(model).named_parameters()}
    missing, unknown = report["missing_keys"], [name for name in report["unexpected_keys"] if not BESIDES.search(name)]
    if auto_class == CLASSIFIER:
        prefix, unknown = f"{model.base_model_prefix}.", []
        tensors = {n: t for n, t in tensors.items() if n.startswith(prefix) and n not in missing}
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
    return shape, ForeignWeights({name: tensor.to("meta") for name, tensor in tensors.items()}, tensors.__getitem__)
