"""The configuration of a model of transformers that is trained: from `model.config`, or from what it goes on from."""

import dataclasses
from pathlib import Path

from transformers import AutoConfig, PreTrainedConfig
from transformers.models.auto.auto_mappings import CONFIG_MAPPING_NAMES

from babelmill.config import schema
from babelmill.config.layers import nearest
from babelmill.config.model_source import check_shape
from babelmill.config.transformers_models import ROPE
from babelmill.core.files import UserError
from babelmill.model.code_decoder import padded_length
from babelmill.stages import TrainSettings
from babelmill.tokens.vocabulary import Vocabulary
from babelmill.training.beginning import check_lengths, published_config
from babelmill.training.transformers_models import (
    CAUSAL,
    CLASSES,
    CLASSIFIER,
    MASKED,
    auto_class,
    first_position,
    longest_row,
    on_meta,
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
    """Return the keys that a class of configurations has of its own, aliases included."""
    common = {field.name for field in dataclasses.fields(PreTrainedConfig)}
    own = {field.name for field in dataclasses.fields(config)} - common
    return own | config.attribute_map.keys() | (set(ROPE) if "rope_parameters" in own else set())


def special_tokens(vocabulary: Vocabulary) -> dict[str, int | None]:
    """Return what configurations call the special tokens, also those of models that have other names for them."""
    ids = vocabulary.ids
    return ids | {"cls_token_id": ids["bos_token_id"], "sep_token_id": ids["eos_token_id"]}


def make_config(model: schema.Model, auto: str, vocabulary: Vocabulary) -> PreTrainedConfig:
    """Return the configuration of a model of the class `auto`: what `model.config` says, and the workflow's vocabulary
    and length.

    Raises:
        UserError: transformers has no such model, or its configuration no such key.
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
    auto, name = auto_class(settings.train), f"model.source = {settings.model.source}"
    if source is None:
        return make_config(settings.model, auto, vocabulary)
    config = read_config(published_config(source), auto, name)
    made = on_meta(config, auto)
    check_shape(settings.shape, shape_of(made), name)
    if vocabulary.entries > config.vocab_size:
        raise UserError(
            f"{name}: the tokenizer has {vocabulary.entries:,} entries, the embedding {config.vocab_size:,} rows: name"
            " a smaller tokenizer.source, or none to use the model's own"
        )
    if auto == MASKED and vocabulary.mask < 0:
        raise UserError(f"{name}: its tokenizer has no mask token, which train.objective hides tokens behind")
    check_lengths(settings, longest_row(made))
    if not vocabulary.aliases:
        own = {key: token for key, token in special_tokens(vocabulary).items() if hasattr(config, key)}
        for key, token in own.items():
            setattr(config, key, token)
    return config
