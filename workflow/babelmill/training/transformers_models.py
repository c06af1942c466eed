"""Models of transformers from `model.config`: their configuration, with what is the workflow's, and their class."""

import copy
import dataclasses
import json
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM, PreTrainedConfig, PreTrainedModel
from transformers.models.auto.auto_mappings import CONFIG_MAPPING_NAMES
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_MASKED_LM_MAPPING_NAMES,
)

from babelmill.config import schema
from babelmill.config.layers import nearest
from babelmill.config.schema import MAX_LENGTH
from babelmill.config.transformers_models import ROPE
from babelmill.core.files import UserError
from babelmill.stages import TrainSettings
from babelmill.tokens.vocabulary import Vocabulary
from babelmill.training.beginning import check_lengths, published_config
from babelmill.training.document_masks import NAME
from babelmill.training.objectives import hides_alone, objective_of

CLASSES = {
    "AutoModelForMaskedLM": (AutoModelForMaskedLM, MODEL_FOR_MASKED_LM_MAPPING_NAMES),
    "AutoModelForCausalLM": (AutoModelForCausalLM, MODEL_FOR_CAUSAL_LM_MAPPING_NAMES),
}
# Keys of a published config.json that say how its files were written, or what else was done with them.
NOT_OF_THE_MODEL = ("architectures", "auto_map", "dtype", "torch_dtype", "transformers_version", "_name_or_path")


def auto_class(hides: bool) -> str:
    """Return the class of a model that predicts hidden tokens, or next ones."""
    return "AutoModelForMaskedLM" if hides else "AutoModelForCausalLM"


def refused(model_type: str, why: object) -> UserError:
    """Return the error of a model that cannot be trained; of an exception `why`, its first sentence counts."""
    line = next(iter(str(why).strip().splitlines()), "").partition(". ")[0] or type(why).__name__
    return UserError(f"model.config.model_type = {model_type!r} cannot be trained here: {line}")


def known_keys(config: PreTrainedConfig) -> set[str]:
    """Return the keys that a class of configurations has of its own, aliases included."""
    common = {field.name for field in dataclasses.fields(PreTrainedConfig)}
    own = {field.name for field in dataclasses.fields(config)} - common
    return own | config.attribute_map.keys() | (set(ROPE) if "rope_parameters" in own else set())


def special_tokens(vocabulary: Vocabulary) -> dict[str, int | None]:
    """Return what configurations call the special tokens, also those of models that have other names for them."""
    ids = vocabulary.ids
    return ids | {"cls_token_id": ids["bos_token_id"], "sep_token_id": ids["eos_token_id"]}


def make_config(model: schema.Model, hides: bool, vocabulary: Vocabulary) -> PreTrainedConfig:
    """Return the configuration of a model: what `model.config` says, and the workflow's vocabulary and length.

    Raises:
        UserError: transformers has no such model, or its configuration no such key.
    """
    values = dict(model.config or {})
    model_type = values.pop("model_type")
    if model_type not in CONFIG_MAPPING_NAMES:
        near = nearest(str(model_type), CONFIG_MAPPING_NAMES)
        raise UserError(f"model.config.model_type = {model_type!r}: transformers has no such model{near}")
    _, mapping = CLASSES[auto_class(hides)]
    if model_type not in mapping:
        what = "hidden tokens (objectives masked, diffusion)" if hides else "next tokens (objective causal)"
        raise UserError(f"model.config.model_type = {model_type!r}: transformers has no class of it for {what}")
    plain = AutoConfig.for_model(model_type)
    for key in sorted(values.keys() - known_keys(plain)):
        near = nearest(key, known_keys(plain))
        raise UserError(f"model.config has {key!r}, which {type(plain).__name__} of transformers does not{near}")
    values |= {key: value for key, value in special_tokens(vocabulary).items() if hasattr(plain, key)}
    values |= {"vocab_size": vocabulary.size}
    if hasattr(plain, "max_position_embeddings"):
        values["max_position_embeddings"] = model.max_position_embeddings
    try:
        config = AutoConfig.for_model(model_type, **values)
    except Exception as error:  # whatever transformers raises, of many types
        raise refused(model_type, error) from error
    if first := first_position(on_meta(config, hides)):
        config.max_position_embeddings = model.max_position_embeddings + first
    return config


def config_to_train(settings: TrainSettings, source: Path | None, vocabulary: Vocabulary) -> PreTrainedConfig:
    """Return the configuration of the model to train: what `model.config` says, or that of the source.

    Ids of special tokens are those of the tokenizer where this is not the source's own.

    Args:
        settings: of the stage.
        source: the folder of the model that it goes on from, if it does.
        vocabulary: of the tokenizer.

    Raises:
        UserError: transformers has no such class of the model, or it is another one than the settings say.
    """
    hides, name = hides_alone(objective_of(settings.train)), f"model.source = {settings.model.source}"
    if source is None:
        return make_config(settings.model, hides, vocabulary)
    config = read_config(published_config(source), auto_class(hides), name)
    for key, value in settings.shape.items():
        if getattr(config, key, None) != value:
            raise UserError(
                f"model.{key} = {value}: {name} has {getattr(config, key, 'no such key')}; leave the key out"
            )
    if vocabulary.entries > config.vocab_size:
        raise UserError(
            f"{name}: the tokenizer has {vocabulary.entries:,} entries, the embedding {config.vocab_size:,} rows: name"
            " a smaller tokenizer.source, or none to use the model's own"
        )
    if hides and vocabulary.mask < 0:
        raise UserError(f"{name}: its tokenizer has no mask token, which train.objective hides tokens behind")
    check_lengths(settings, longest_row(on_meta(config, hides)))
    if not vocabulary.aliases:
        own = {key: token for key, token in special_tokens(vocabulary).items() if hasattr(config, key)}
        for key, token in own.items():
            setattr(config, key, token)
    return config


def read_config(values: dict[str, Any], auto: str, where: str) -> PreTrainedConfig:
    """Return the configuration of a published model, from its config.json; `where` begins an error.

    Raises:
        UserError: transformers has no class `auto` of it, or its weights cannot be trained.
    """
    model_type = str(values.get("model_type"))
    if model_type not in CLASSES[auto][1]:
        raise UserError(f"{where}: model_type = {model_type!r}: transformers has no {auto} of it, see train.objective")
    if "quantization_config" in values:
        raise UserError(
            f"{where}: its weights are quantized, which cannot be trained; name the model that it was made of"
        )
    own = {key: value for key, value in values.items() if key not in NOT_OF_THE_MODEL}
    try:
        return type(AutoConfig.for_model(model_type)).from_dict(own)
    except Exception as error:  # whatever transformers raises, of many types
        raise refused(model_type, error) from error


def longest_row(model: PreTrainedModel) -> int:
    """Return how many positions a model has."""
    positions = getattr(model.config, "max_position_embeddings", None)
    return positions - first_position(model) if isinstance(positions, int) else MAX_LENGTH


def first_position(model: nn.Module) -> int:
    """Return what a model counts positions from: RoBERTa and its kind do so from the id of `<pad>` plus 1."""
    for name, module in model.named_modules():
        if "position" in name and isinstance(module, nn.Embedding) and module.padding_idx is not None:
            return module.padding_idx + 1
    return 0


def make_model(config: PreTrainedConfig, hides: bool) -> PreTrainedModel:
    """Return a new model that keeps documents apart; `config` stays as it is."""
    cls, _ = CLASSES[auto_class(hides)]
    try:
        model = cls.from_config(copy.deepcopy(config), attn_implementation=NAME)
    except Exception as error:  # as above
        raise refused(config.model_type, error) from error
    model.config.use_cache = False
    return model


def on_meta(config: PreTrainedConfig, hides: bool) -> PreTrainedModel:
    """Return a model without weights: its modules and their shapes."""
    cls, _ = CLASSES[auto_class(hides)]
    try:
        with torch.device("meta"):
            return cls.from_config(copy.deepcopy(config))
    except Exception as error:  # as below
        raise refused(config.model_type, error) from error


def checkpoint_activations(model: PreTrainedModel) -> None:
    """Let a model compute the activations of its layers again when it needs them. UserError: its class cannot."""
    try:
        model.activation_checkpointing_enable()
    except ValueError as error:
        why = f"{error} Set train.activation_checkpointing: false"
        raise UserError(f"model.config.model_type = {model.config.model_type!r}: {why}") from error


def as_json(config: PreTrainedConfig) -> dict[str, Any]:
    """Return all of a configuration, since defaults differ between versions of transformers."""
    values = json.loads(config.to_json_string(use_diff=False))
    return {key: value for key, value in values.items() if key not in ("id2label", "label2id", "architectures")}


def output_layer(model: PreTrainedModel) -> nn.Module:
    """Return the layer that makes scores from features. UserError: there is none."""
    layer = model.get_output_embeddings()
    if layer is None or not isinstance(getattr(layer, "weight", None), torch.Tensor):
        raise refused(model.config.model_type, "it has no output layer of one matrix")
    return layer


def blocks_of(model: nn.Module) -> list[nn.Module]:
    """Return the layers that are alike: the list of modules with most parameters."""
    lists = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
    return list(max(lists, key=lambda found: sum(p.numel() for p in found.parameters()), default=[]))
