"""Say what there is to know about models: objectives, the keys of a shape, sizes, and the keys of transformers.

Importing transformers takes a second or two, so only what needs it imports it.
"""

import dataclasses
import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from babelmill.config.layers import nearest
from babelmill.core.files import UserError, not_found


class About(NamedTuple):
    """The properties of a model that was trained with an objective."""

    scores: tuple[str, ...]  # the metrics that its evaluation measures (`evaluation/metrics.py`)
    # The methods that score sentences (`evaluation/rows.py`); the last is the headline of a suite, unless another
    # scored more pairs (`evaluation/suite_scores.py`).
    sentences: tuple[str, ...] = ()
    suffix: str = ""  # the value of `{causal_suffix}` in the name of its repository
    unmasks: bool = False  # whether it generates by filling masks in any order, with code of its own
    # The Auto class of a transformers model; None if no transformers model has this objective.
    auto_class: str | None = "AutoModelForMaskedLM"


OBJECTIVES = {
    "hybrid": About(scores=("causal", "masked"), sentences=("causal", "masked", "fused"), auto_class=None),
    "masked": About(scores=("masked",), sentences=("masked",)),
    "causal": About(scores=("causal",), sentences=("causal",), suffix="-causal", auto_class="AutoModelForCausalLM"),
    "diffusion": About(scores=("diffusion",), sentences=("bound", "masked"), unmasks=True),
    "labels": About(scores=("exact", "f1"), auto_class="AutoModelForSequenceClassification"),
}


# The keys of the section `model` that the weights fix: a model that continues another has the same values.
SHAPE = (
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_hidden_layers",
    "max_position_embeddings",
    "position_bucket_size",
    "layer_norm_eps",
    "gate",
    "layer_mixing",
    "local_global_ratio",
    "local_window_length",
)
NORBERT4_NAMES = {"num_hidden_layers": "num_layers", "max_position_embeddings": "max_sequence_length"}
ADAPTER = "adapter_config.json"  # the file that PEFT writes beside the weights of an adapter
ONLY_AN_ADAPTER = "its only weights are an adapter (PEFT); a folder where it is merged into its model is expected"


def with_our_names(config: dict[str, Any]) -> dict[str, Any]:
    """Return the config.json of a NorBERT4, in which some keys of `SHAPE` have other names, with our names, too."""
    return config | {ours: config[theirs] for ours, theirs in NORBERT4_NAMES.items() if theirs in config}


def lacks_config(folder: Path) -> str:
    """Return what is wrong with a folder of a model that has no config.json."""
    if (folder / ADAPTER).is_file():
        return ONLY_AN_ADAPTER
    problem = "has no config.json" if folder.is_dir() else not_found(folder, "folder")
    return f"{problem}; a folder that `save_pretrained` of transformers wrote is expected"


def check_shape(values: dict[str, Any], theirs: dict[str, Any], where: str) -> None:
    """Raise a UserError if the source (`where`) has another shape than the configuration sets beside it (`values`)."""
    for key, value in values.items():
        if theirs.get(key) != value:
            has = f"has {theirs[key]}" if key in theirs else "has no such key"
            raise UserError(f"model.{key} = {value}: {where} {has}")


# Weights, gradients, the average of the weights, and two moments of the optimizer, in fp32.
BYTES_PER_PARAMETER = 20


@dataclasses.dataclass(frozen=True)
class Size:
    """The size of a model of any architecture."""

    parameters: int  # number of parameters, each counted once
    matrices: int  # number of elements of all matrices that every position is multiplied by
    output: int  # number of elements of the matrices by which only positions with a target are multiplied
    hidden_size: int
    intermediate_size: int  # the longest side of a layer's matrices
    num_attention_heads: int
    num_hidden_layers: int
    adapter: int = 0  # number of parameters of adapters of rank 1; 0 if the model cannot have any
    frozen: bool = False  # whether its matrices have no gradients, since adapters are trained beside them


def gpt_bert(shape: Any, vocab_size: int) -> Size:
    """Return the size of a GPT-BERT. Its position tables are multiplied with each query and each key.

    `shape`: the section `model` of the configuration, or a model's own configuration.
    """
    width, inner, layers = shape.hidden_size, shape.intermediate_size, shape.num_hidden_layers
    projections, buckets = (5 if shape.gate else 4), 2 * shape.position_bucket_size - 1
    of_layer = projections * width * width + 3 * width * inner
    mixing = layers * (2 * layers + 1) + 2 * layers if shape.layer_mixing else 0
    output = width * width + vocab_size * width
    parameters = output + (buckets + 3) * width + vocab_size + layers * (of_layer + projections * width) + mixing
    matrices = layers * (of_layer + 2 * buckets * width)
    return Size(parameters, matrices, output, width, inner, shape.num_attention_heads, layers)


def norbert4(
    vocab_size: int,
    width: int,
    inner: int,
    heads: int,
    layers: int,
    queries: int | None = None,
    values: int | None = None,
) -> Size:
    """Return the size of a NorBERT4.

    `queries`, `values`: the width of those of all heads together; None: as the hidden states.
    """
    queries, values = queries or width, values or width
    matrices = layers * (2 * queries * width + 2 * values * width + 3 * inner * width)
    others = layers * (3 * width + values + inner + 2 * queries + 7) + 3 * width + vocab_size
    output = vocab_size * width + width * width
    return Size(matrices + others + output, matrices, output, width, inner, heads, layers)


def size_of(model: Any, vocab_size: int) -> Size:
    """Return the size of the GPT-BERT or NorBERT4 that a section `model` describes."""
    if model.architecture == "norbert4":
        heads = model.num_attention_heads
        return norbert4(vocab_size, model.hidden_size, model.intermediate_size, heads, model.num_hidden_layers)
    return gpt_bert(model, vocab_size)


# Names from earlier versions for the content of `rope_parameters`, which transformers still accepts.
ROPE = ("rope_theta", "rope_scaling", "global_rope_theta", "local_rope_theta")
# Keys that say how many layers a model has. (Others with `layer` in their names are about some of these layers.)
LAYERS = re.compile(r"(n|num)_(hidden_|encoder_|decoder_)?layers?|(en|de)coder_layers")
MOST_LAYERS = 1000


def check_layers(config: Mapping[str, Any], where: str, tensors: int | None = None) -> None:
    """Raise a UserError if a config.json describes more layers than any model has: to make them would take hours.

    If it is known how many tensors the model's files hold, there cannot be more layers, either.
    """
    for key, value in config.items():
        most = max(MOST_LAYERS, tensors or 0)
        if LAYERS.fullmatch(key) and isinstance(value, int | float) and value > most:
            raise UserError(f"{where}: config.json: {key} = {value:,}: {most:,} layers at most are expected")


@functools.cache
def keys(model_type: str) -> frozenset[str]:
    """Return the keys that the configuration class of a model type has, with aliases; none if there is no such type."""
    from transformers import PreTrainedConfig
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    if model_type not in CONFIG_MAPPING:
        return frozenset()
    kind = CONFIG_MAPPING[model_type]
    own = {field.name for field in dataclasses.fields(kind)} - {f.name for f in dataclasses.fields(PreTrainedConfig)}
    return frozenset(own | kind.attribute_map.keys() | (set(ROPE) if "rope_parameters" in own else set()))


def wrong(config: dict[str, Any]) -> str | None:
    """Return what transformers does not accept in a `model.config`, and what it knows; None if it accepts all."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    model_type, known = config["model_type"], keys(config["model_type"])
    if model_type not in CONFIG_MAPPING:
        near = nearest(model_type, CONFIG_MAPPING)
        return f"model.config.model_type = {model_type!r}: transformers has no such model{near}"
    for key in sorted(config.keys() - known - {"model_type"}):
        return (
            f"model.config.{key} = {config[key]!r}: {model_type} of transformers has no such key{nearest(key, known)}"
        )
    try:
        CONFIG_MAPPING[model_type](**{key: value for key, value in config.items() if key != "model_type"})
    except Exception as error:  # each class checks its values by itself
        return f"model.config: {' '.join(str(error).split())}"
    return None
