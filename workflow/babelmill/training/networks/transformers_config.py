"""Make the configuration of a transformers model to train, and count its parameters before it has weights."""

import dataclasses
from pathlib import Path
from typing import Any

from torch import nn
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel
from transformers.models.auto.auto_mappings import CONFIG_MAPPING_NAMES
from transformers.pytorch_utils import Conv1D

from babelmill.config import schema
from babelmill.config.layers import nearest
from babelmill.config.model_size import Size
from babelmill.config.model_source import check_shape
from babelmill.config.transformers_keys import ROPE
from babelmill.core.files import UserError
from babelmill.model.code_decoder import padded_length
from babelmill.stages import TrainStage
from babelmill.tokens.vocabulary import SPECIAL_TOKENS, Vocabulary
from babelmill.training.networks.source_weights import check_lengths, published_config
from babelmill.training.networks.transformers_models import (
    CAUSAL,
    CLASSES,
    CLASSIFIER,
    MASKED,
    auto_class,
    blocks_of,
    first_position,
    longest_row,
    on_meta,
    output_layer,
    read_config,
    refused,
    shape_of,
)

LEARNS = {
    MASKED: "hidden tokens (objectives masked, diffusion)",
    CAUSAL: "next tokens (objective causal)",
    CLASSIFIER: "classes (objective labels)",
}


def known_keys(config: PreTrainedConfig) -> set[str]:
    """Return the keys that a configuration's class defines itself, with aliases."""
    common = {field.name for field in dataclasses.fields(PreTrainedConfig)}
    own = {field.name for field in dataclasses.fields(config)} - common
    return own | config.attribute_map.keys() | (set(ROPE) if "rope_parameters" in own else set())


def special_tokens(vocabulary: Vocabulary) -> dict[str, int | None]:
    """Return the special tokens' ids by their names in configurations, with the other names that some models use."""
    ids = vocabulary.ids
    return ids | {"cls_token_id": ids["bos_token_id"], "sep_token_id": ids["eos_token_id"]}


def make_config(model: schema.Model, auto: str, vocabulary: Vocabulary) -> PreTrainedConfig:
    """Return the configuration of a model of the class `auto`, from `model.config`, the vocabulary and the length.

    A UserError says that transformers has no such model, or that its configuration has no such key.
    """
    values = dict(model.config or {})
    model_type = values.pop("model_type")
    if model_type not in CONFIG_MAPPING_NAMES:
        near = nearest(str(model_type), CONFIG_MAPPING_NAMES)
        raise UserError(f"model.config.model_type = {model_type!r}: transformers has no such model{near}")
    _, mapping = CLASSES[auto]
    if model_type not in mapping:
        raise UserError(f"model.config.model_type = {model_type!r}: transformers has no class of it for {LEARNS[auto]}")
    plain = AutoConfig.for_model(model_type)
    for key in sorted(values.keys() - known_keys(plain)):
        near = nearest(key, known_keys(plain))
        raise UserError(f"model.config has {key!r}, which {type(plain).__name__} of transformers does not{near}")
    values |= {key: value for key, value in special_tokens(vocabulary).items() if hasattr(plain, key)}
    values |= {"vocab_size": vocabulary.entries}
    if hasattr(plain, "max_position_embeddings"):
        values["max_position_embeddings"] = model.max_position_embeddings
    try:
        config = AutoConfig.for_model(model_type, **values)
    except Exception as error:  # whatever transformers raises, of many types
        raise refused(model_type, error) from error
    if first := first_position(on_meta(config, auto)):
        config.max_position_embeddings = model.max_position_embeddings + first
    elif hasattr(plain, "max_position_embeddings"):
        config.max_position_embeddings = longest = padded_length(model.max_position_embeddings, config)
        if longest > getattr(config, "num_hash_buckets", longest):
            raise refused(model_type, f"num_hash_buckets = {config.num_hash_buckets} is less than {longest} positions")
    return config


def config_to_train(settings: TrainStage, source: Path | None, vocabulary: Vocabulary) -> PreTrainedConfig:
    """Return the configuration of the model to train: from `model.config`, or that of the source.

    Ids of special tokens are taken from the tokenizer, unless it is the source's own. A UserError says that
    transformers has no such class of the model, or that the source does not fit the settings or the tokenizer.
    """
    auto, name = auto_class(settings.train), f"model.source = {settings.model.source}"
    if source is None:
        return make_config(settings.model, auto, vocabulary)
    config = read_config(published_config(source), auto, name)
    made = on_meta(config, auto)
    check_shape(settings.shape, shape_of(made), name)
    if vocabulary.entries > config.vocab_size:
        raise UserError(
            f"{name}: the tokenizer has {vocabulary.entries:,} entries, but the embedding has only"
            f" {config.vocab_size:,} rows: set a smaller tokenizer.source, or remove it to use the model's own"
        )
    if auto == MASKED and vocabulary.mask < 0:
        raise UserError(f"{name}: its tokenizer has no mask token, but this train.objective needs one to hide tokens")
    check_lengths(settings, longest_row(made))
    if not vocabulary.aliases:
        own = {key: token for key, token in special_tokens(vocabulary).items() if hasattr(config, key)}
        for key, token in own.items():
            setattr(config, key, token)
    return config


def counted(model: PreTrainedModel, frozen: bool = False) -> Size:
    """Count a model's parameters, also on the meta device. If `frozen`, only adapters are trained, and not counted."""
    layer = output_layer(model)
    matrix: nn.Parameter = layer.weight  # pyright: ignore[reportAssignmentType]
    return counted_without(model, layer, matrix.numel(), matrix.size(-1), frozen)


def counted_without(model: nn.Module, layer: nn.Module | None, output: int, width: int, frozen: bool = False) -> Size:
    """Count the parameters of a model whose output `layer`, if it has one, computes only with the targets.

    `output`: the number of elements of its matrix; `width`: the width of its features; `frozen`: see `counted`.
    """
    blocks = blocks_of(model)
    matrices = [m.weight for m in model.modules() if isinstance(m, nn.Linear | Conv1D) and m is not layer]
    widths = [max(p.shape) for block in blocks[:1] for p in block.parameters() if p.ndim == 2]
    return Size(
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        matrices=sum(weight.numel() for weight in matrices),
        adapter=sum(sum(weight.shape) for weight in matrices),
        output=output,
        hidden_size=width,
        intermediate_size=max(widths, default=width),
        num_attention_heads=getattr(getattr(model, "config", None), "num_attention_heads", 1),
        num_hidden_layers=len(blocks),
        frozen=frozen,
    )


def planned(model: schema.Model, train: schema.Train, vocab_size: int, source: dict[str, Any] | None = None) -> Size:
    """Count the parameters of the model that the settings describe, or that `source`, a config.json, describes.

    A UserError says that transformers has no such model, or that its configuration has no such key.
    """
    auto = auto_class(train)
    vocabulary = Vocabulary(vocab_size, 1, 2, 3, 4, tuple(range(len(SPECIAL_TOKENS))))
    name = f"model.source = {model.source}"
    config = read_config(source, auto, name) if source else make_config(model, auto, vocabulary)
    made = on_meta(config, auto)
    if auto == CLASSIFIER:
        return counted_without(made, None, 0, made.config.hidden_size)
    return counted(made, frozen=train.lora_rank > 0)
