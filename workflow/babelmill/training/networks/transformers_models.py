"""Make transformers models to train: their classes, configurations and sizes, and masks that keep documents apart.

Documents are kept apart by two extensions of transformers under one name: an attention implementation (transformers'
own one with PyTorch's SDPA), and the function that makes the masks of this implementation. A model with this
implementation combines its own rule (all tokens, earlier tokens, a sliding window) with ours: query and key must belong
to the same document. (A mask that is passed in as an argument would replace the model's rule in some models, and others
would ignore it.) A model that makes its masks by itself ignores all of this. So each model is tested before it trains
(`transformers.py`).
"""

import contextlib
import copy
import json
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn
from transformers import AttentionInterface, AutoConfig, PreTrainedConfig, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, and_masks, sdpa_mask
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.pytorch_utils import Conv1D

from babelmill.config import schema
from babelmill.config.models import OBJECTIVES, SHAPE, Size, check_layers
from babelmill.config.schema import MAX_LENGTH
from babelmill.core.escape import line
from babelmill.core.files import UserError, read_json
from babelmill.model.code_decoder import longest_text, padded_length
from babelmill.stages import TrainStage
from babelmill.tokens import characters
from babelmill.tokens.vocabulary import SPECIAL_TOKENS, Vocabulary
from babelmill.training.networks.source_weights import check_source

NAME = "babelmill_documents"  # the name of the attention implementation
FACTORS = (".lora_A.default.weight", ".lora_B.default.weight")  # end the names of an adapter's weights
_SEGMENTS: ContextVar[torch.Tensor | None] = ContextVar("segments", default=None)


@contextlib.contextmanager
def documents(segments: torch.Tensor | None) -> Iterator[None]:
    """Keep documents apart in forward passes. `segments` is [B, T], or None if each row is one document."""
    token = _SEGMENTS.set(segments)
    try:
        yield
    finally:
        _SEGMENTS.reset(token)


def positions(segments: torch.Tensor) -> torch.Tensor:
    """Return the position of each token in its document's part of the row, from 0, [B, T] int64."""
    index = torch.arange(segments.size(1), device=segments.device).expand_as(segments)
    begins = torch.ones_like(segments, dtype=torch.bool)
    begins[:, 1:] = segments[:, 1:] != segments[:, :-1]
    return index - torch.where(begins, index, 0).cummax(1).values


def _mask(*args: Any, mask_function: Any, **options: Any) -> torch.Tensor | None:
    """Make a mask for SDPA that combines the model's own rule with the documents."""
    segments = _SEGMENTS.get()
    if segments is not None:
        mask_function = and_masks(mask_function, lambda b, _, query, key: segments[b, query] == segments[b, key])
        options |= {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}
    return sdpa_mask(*args, mask_function=mask_function, **options)


AttentionInterface.register(NAME, sdpa_attention_forward)
AttentionMaskInterface.register(NAME, _mask)


MASKED, CAUSAL, CLASSIFIER = "AutoModelForMaskedLM", "AutoModelForCausalLM", "AutoModelForSequenceClassification"
# Keys of a published config.json that describe its files, not the model.
NOT_OF_THE_MODEL = ("architectures", "auto_map", "custom_pipelines", "dtype", "torch_dtype", "transformers_version")
NOT_OF_THE_MODEL += ("_name_or_path",)


def auto_class(train: schema.Train) -> str:
    """Return the name of the class of transformers that learns the objective of these settings."""
    auto = OBJECTIVES[train.objective].auto_class
    assert auto, "transformers models have no objective `hybrid`"
    return auto


def has_class(model_type: str, auto: str) -> bool:
    """Return whether transformers has a class of this kind for a type of models."""
    return model_type in CONFIG_MAPPING and CONFIG_MAPPING[model_type] in getattr(transformers, auto)._model_mapping


def refused(model_type: str, why: object) -> UserError:
    """Return the error for a model that cannot be trained. It quotes the beginning of `why`."""
    words = " ".join(str(why).split()) or type(why).__name__
    return UserError(f"model.config.model_type = {model_type!r} cannot be trained here: {line(words, 400)}")


def read_config(values: dict[str, Any], auto: str, where: str) -> PreTrainedConfig:
    """Return a published model's configuration; raise a UserError (with `where`) if it cannot be trained."""
    model_type = str(values.get("model_type"))
    if not has_class(model_type, auto):
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


def make_model(config: PreTrainedConfig, auto: str, attention: str | None = NAME) -> PreTrainedModel:
    """Return a new model of a class. A language model keeps documents apart. `config` itself does not change.

    A UserError says that the class cannot make it.
    """
    attention = None if auto == CLASSIFIER else attention
    try:
        made = getattr(transformers, auto).from_config(copy.deepcopy(config), attn_implementation=attention)
    except Exception as error:  # whatever transformers raises, of many types
        raise refused(config.model_type, error) from error
    made.config.use_cache = False
    # The embedding of the padding token gets gradients, since it may also be a token of the text: many published
    # models pad with the token that ends a text. Padding itself gives no gradient: it has no targets, and no token
    # attends to it. Embeddings of positions stay: there, `padding_idx` says with which number positions begin.
    for name, module in made.named_modules():
        if isinstance(module, nn.Embedding) and "position" not in name:
            module.padding_idx = None
    return base_first(made)


def on_meta(config: PreTrainedConfig, auto: str) -> PreTrainedModel:
    """Return a model of a class without weights, on the meta device: its modules and their shapes."""
    with torch.device("meta"):
        return make_model(config, auto, None)


def base_first(model: PreTrainedModel) -> PreTrainedModel:
    """Put a model's base before its head, so that a weight that both share has its name in the base. Return the model.

    Files hold a shared weight under its first name only. XLM-RoBERTa's class has its head first; transformers 4 does
    not find the shared weight under the head's name.
    """
    modules = dict(model._modules)
    model._modules.clear()
    model._modules.update(dict(sorted(modules.items(), key=lambda item: item[0] != model.base_model_prefix)))
    return model


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


def add_adapters(model: nn.Module, rank: int, alpha: int, dtype: torch.dtype | None = None) -> None:
    """Freeze a model and put low-rank adapters (LoRA, Hu et al. 2021, arXiv:2106.09685) beside its linear layers.

    Every linear layer except the output matrix gets an adapter. Only the adapters are trained, so checkpoints, averages
    and results hold only the adapters. The frozen weights are read from the source model (`model.source`) at each
    start; they are converted to `dtype`, if one is given.

    The second factor of an adapter is 0, so it changes nothing yet. Adapters get values even if the model has none yet
    (on the meta device). peft itself would leave them without.
    """
    from peft import LoraConfig, inject_adapter_in_model  # takes seconds
    from peft.tuners.lora import LoraLayer

    inject_adapter_in_model(LoraConfig(r=rank, lora_alpha=alpha, target_modules="all-linear"), model)
    for module in model.modules():
        if isinstance(module, LoraLayer):
            if next(module.lora_A.parameters()).is_meta:
                module.lora_A.to_empty(device="cpu")
                module.lora_B.to_empty(device="cpu")
            module.reset_lora_parameters("default", True)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name.endswith(FACTORS))
        if dtype is not None and not parameter.requires_grad:
            parameter.data = parameter.data.to(dtype)


def blocks_of(model: nn.Module) -> list[nn.Module]:
    """Return a model's layers, which are alike: its list of modules with the most parameters."""
    lists = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
    return list(max(lists, key=lambda found: sum(p.numel() for p in found.parameters()), default=[]))


def special_tokens(vocabulary: Vocabulary) -> dict[str, int | None]:
    """Return the special tokens' ids by their names in configurations, with the other names that some models use."""
    ids = vocabulary.ids
    return ids | {"cls_token_id": ids["bos_token_id"], "sep_token_id": ids["eos_token_id"]}


def make_config(model: schema.Model, auto: str, vocabulary: Vocabulary) -> PreTrainedConfig:
    """Return the configuration of a model of the class `auto`, from `model.config`, the vocabulary and the length.

    A UserError says that this model cannot be trained.
    """
    values = dict(model.config or {})
    model_type = values.pop("model_type")
    if not has_class(model_type, auto):
        raise refused(model_type, f"transformers has no {auto} for it; see train.objective")
    plain = AutoConfig.for_model(model_type)
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
    values = read_json(source / "config.json")
    if values.get("architecture") == "transformers":  # of one of our trainings; otherwise, it is as it was published
        values = values["config"]
    config = read_config(values, auto, name)
    made = on_meta(config, auto)
    check_source(settings, shape_of(made), vocabulary.entries, config.vocab_size, longest_row(made))
    if auto == MASKED and vocabulary.mask < 0:
        raise UserError(f"{name}: its tokenizer has no mask token, but this train.objective needs one to hide tokens")
    if not vocabulary.aliases:
        for key, token in special_tokens(vocabulary).items():
            if hasattr(config, key):
                setattr(config, key, token)
    return config


def counted(model: nn.Module, layer: nn.Module | None, width: int = 0, frozen: bool = False) -> Size:
    """Count the parameters of a model, also on the meta device.

    The output `layer`, if there is one, computes only with the targets. Otherwise, `width` is that of the features. If
    `frozen`, only adapters are trained, and not counted.
    """
    matrix = None if layer is None else layer.get_parameter("weight")
    width = width if matrix is None else matrix.size(-1)
    blocks = blocks_of(model)
    matrices = [m.weight for m in model.modules() if isinstance(m, nn.Linear | Conv1D) and m is not layer]
    widths = [max(p.shape) for block in blocks[:1] for p in block.parameters() if p.ndim == 2]
    return Size(
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        matrices=sum(weight.numel() for weight in matrices),
        adapter=sum(sum(weight.shape) for weight in matrices),
        output=0 if matrix is None else matrix.numel(),
        hidden_size=width,
        intermediate_size=max(widths, default=width),
        num_attention_heads=getattr(getattr(model, "config", None), "num_attention_heads", 1),
        num_hidden_layers=len(blocks),
        frozen=frozen,
    )


def planned(model: schema.Model, train: schema.Train, vocab_size: int, source: dict[str, Any] | None = None) -> Size:
    """Count the parameters of the model that the settings describe, or that `source`, a config.json, describes.

    A UserError says that this model cannot be trained.
    """
    auto = auto_class(train)
    vocabulary = Vocabulary(vocab_size, 1, 2, 3, 4, tuple(range(len(SPECIAL_TOKENS))))
    name = f"model.source = {model.source}"
    config = read_config(source, auto, name) if source else make_config(model, auto, vocabulary)
    made = on_meta(config, auto)
    if auto == CLASSIFIER:
        return counted(made, None, made.config.hidden_size)
    return counted(made, output_layer(made), frozen=train.lora_rank > 0)
