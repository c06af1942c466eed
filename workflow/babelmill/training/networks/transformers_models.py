"""Create and inspect transformers models: their classes and their published configuration."""

import contextlib
import copy
import json
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES,
)

from babelmill.config import schema
from babelmill.config.model_source import SHAPE
from babelmill.config.objectives import OBJECTIVES
from babelmill.config.schema import MAX_LENGTH
from babelmill.config.transformers_keys import check_layers
from babelmill.core.escape import line
from babelmill.core.files import UserError
from babelmill.model.code_decoder import longest_text
from babelmill.tokens import characters
from babelmill.training.networks.document_masks import NAME

MASKED, CAUSAL, CLASSIFIER = "AutoModelForMaskedLM", "AutoModelForCausalLM", "AutoModelForSequenceClassification"
CLASSES = {
    MASKED: (AutoModelForMaskedLM, MODEL_FOR_MASKED_LM_MAPPING_NAMES),
    CAUSAL: (AutoModelForCausalLM, MODEL_FOR_CAUSAL_LM_MAPPING_NAMES),
    CLASSIFIER: (AutoModelForSequenceClassification, MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES),
}
# Keys of a published config.json that describe its files, not the model.
NOT_OF_THE_MODEL = ("architectures", "auto_map", "custom_pipelines", "dtype", "torch_dtype", "transformers_version")
NOT_OF_THE_MODEL += ("_name_or_path",)


def auto_class(train: schema.Train) -> str:
    """Return the name of the class of transformers that learns the objective of these settings."""
    auto = OBJECTIVES[train.objective].auto_class
    assert auto, "transformers models have no objective `hybrid`"
    return auto


def refused(model_type: str, why: object) -> UserError:
    """Return the error for a model that cannot be trained. It quotes the first sentence of `why`.

    A line that ends with a colon, as in the errors of wrong types, only announces the next one.
    """
    first, *more = str(why).strip().splitlines() or [type(why).__name__]
    if first.endswith(":") and more:
        first = f"{first} {more[0].strip()}"
    return UserError(
        f"model.config.model_type = {model_type!r} cannot be trained here: {line(first.partition('. ')[0], 400)}"
    )


def read_config(values: dict[str, Any], auto: str, where: str) -> PreTrainedConfig:
    """Return a published model's configuration; raise a UserError (with `where`) if it cannot be trained."""
    model_type = str(values.get("model_type"))
    if model_type not in CLASSES[auto][1]:
        raise UserError(f"{where}: model_type = {model_type!r}: transformers has no {auto} for it; see train.objective")
    if "quantization_config" in values:
        raise UserError(
            f"{where}: its weights are quantized and cannot be trained; name the model from which it was made"
        )
    check_layers(values, where)
    own = {key: value for key, value in values.items() if key not in NOT_OF_THE_MODEL}
    if model_type == characters.KIND:
        own |= {"vocab_size": characters.ENTRIES}  # which its config.json does not say
    try:
        config = type(AutoConfig.for_model(model_type)).from_dict(PreTrainedConfig._decode_special_floats(own))
    except Exception as error:  # whatever transformers raises, of many types
        raise refused(model_type, error) from error
    if not hasattr(config, "vocab_size"):
        raise refused(model_type, "it reads more than text")
    return config


def longest_row(model: PreTrainedModel) -> int:
    """Return how many tokens a row may have at most: the number of a model's positions."""
    positions = longest_text(model.config)
    return positions - first_position(model) if isinstance(positions, int) else MAX_LENGTH


def first_position(model: nn.Module) -> int:
    """Return the first position id of a model. Models such as RoBERTa begin with the id of `<pad>` plus 1."""
    for name, module in model.named_modules():
        if "position" in name and isinstance(module, nn.Embedding) and module.padding_idx is not None:
            return module.padding_idx + 1
    return 0


def shape_of(model: PreTrainedModel) -> dict[str, Any]:
    """Return the shape of a model by the keys of the section `model`.

    Many classes use other names for them, such as GPT-2's n_embd, with an `attribute_map` from our names to theirs.
    """
    shape = {key: getattr(model.config, key) for key in SHAPE if hasattr(model.config, key)}
    return shape | ({"max_position_embeddings": longest_row(model)} if "max_position_embeddings" in shape else {})


def make_model(config: PreTrainedConfig, auto: str) -> PreTrainedModel:
    """Return a new model of a class. A language model keeps documents apart. `config` itself does not change."""
    cls, _ = CLASSES[auto]
    try:
        attention = None if auto == CLASSIFIER else NAME
        model = cls.from_config(copy.deepcopy(config), attn_implementation=attention)
    except Exception as error:  # as above
        raise refused(config.model_type, error) from error
    model.config.use_cache = False
    let_padding_learn(model)
    return base_first(model)


def let_padding_learn(model: nn.Module) -> None:
    """Let the embedding of the padding token get gradients, since the padding token may also be a token of the text.

    Most classes would drop them (`padding_idx`). Many published models pad with the token that ends a text, which then
    would never be learned. Padding itself gives no gradient: it has no targets, and no token attends to it.
    Embeddings of positions stay as they are: there, `padding_idx` says with which number positions begin.
    """
    for name, module in model.named_modules():
        if isinstance(module, nn.Embedding) and "position" not in name:
            module.padding_idx = None


def on_meta(config: PreTrainedConfig, auto: str) -> PreTrainedModel:
    """Return a model of a class without weights, on the meta device: its modules and their shapes.

    A UserError says that the class cannot make it.
    """
    cls, _ = CLASSES[auto]
    try:
        with torch.device("meta"):
            return base_first(cls.from_config(copy.deepcopy(config)))
    except Exception as error:  # as above
        raise refused(config.model_type, error) from error


def base_first(model: PreTrainedModel) -> PreTrainedModel:
    """Put a model's base before its head, so that a weight that both share has its name in the base. Return the model.

    Files hold a shared weight under its first name only. XLM-RoBERTa's class has its head first; transformers 4 does
    not find the shared weight under the head's name.
    """
    modules = dict(model._modules)
    model._modules.clear()
    model._modules.update(dict(sorted(modules.items(), key=lambda item: item[0] != model.base_model_prefix)))
    return model


@contextlib.contextmanager
def without_values() -> Iterator[None]:
    """Give modules that are made in this context parameters on the meta device, without memory. Constants keep values.

    (With `torch.device("meta")`, constants would lose their values, too, and no file holds them.)
    """

    def to_meta(_: nn.Module, name: str, parameter: nn.Parameter | None) -> Any:
        if parameter is None or parameter.is_meta:
            return None  # it stays as it is
        return nn.Parameter(parameter.to("meta"), parameter.requires_grad)

    handle = register_module_parameter_registration_hook(to_meta)
    try:
        yield
    finally:
        handle.remove()


def checkpoint_activations(model: PreTrainedModel) -> None:
    """Let layers compute activations again in the backward pass; raise a UserError if the class cannot do this."""
    try:
        model.activation_checkpointing_enable()
    except ValueError as error:
        why = f"{error} Set train.activation_checkpointing: false"
        raise UserError(f"model.config.model_type = {model.config.model_type!r}: {why}") from error


def as_json(config: PreTrainedConfig) -> dict[str, Any]:
    """Return all values of a configuration, including defaults, which differ between versions of transformers."""
    values = json.loads(config.to_json_string(use_diff=False))
    return {key: value for key, value in values.items() if key not in ("id2label", "label2id", "architectures")}


def from_json(values: dict[str, Any]) -> PreTrainedConfig:
    """Return the configuration that `as_json` gave. In JSON, an infinite number is an object of its own."""
    return AutoConfig.for_model(**PreTrainedConfig._decode_special_floats(values))


def output_layer(model: PreTrainedModel) -> nn.Module:
    """Return the layer that computes scores from features; raise a UserError if the model has no such layer."""
    layer = model.get_output_embeddings()
    if layer is None or not isinstance(getattr(layer, "weight", None), torch.Tensor):
        raise refused(model.config.model_type, "its output layer is not one matrix")
    return layer


def blocks_of(model: nn.Module) -> list[nn.Module]:
    """Return a model's layers, which are alike: its list of modules with the most parameters."""
    lists = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
    return list(max(lists, key=lambda found: sum(p.numel() for p in found.parameters()), default=[]))
