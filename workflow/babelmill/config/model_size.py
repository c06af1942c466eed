"""Compute the size of a model from its shape: what a step costs, what a plan says, and what no machine could hold."""

from dataclasses import dataclass
from typing import Any, Protocol

TIB = 2**40
# Weights, gradients, the average of the weights, and two moments of the optimizer, in fp32.
BYTES_PER_PARAMETER = 20
LIMIT = 2 * TIB


class Shape(Protocol):
    """The shape of a GPT-BERT: the section `model` of the configuration, or a model's own configuration."""

    @property
    def hidden_size(self) -> int: ...
    @property
    def intermediate_size(self) -> int: ...
    @property
    def num_attention_heads(self) -> int: ...
    @property
    def num_hidden_layers(self) -> int: ...
    @property
    def position_bucket_size(self) -> int: ...
    @property
    def gate(self) -> bool: ...
    @property
    def layer_mixing(self) -> bool: ...


@dataclass(frozen=True)
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


def gpt_bert(shape: Shape, vocab_size: int) -> Size:
    """Return the size of a GPT-BERT. Its position tables are multiplied with each query and each key."""
    width, inner, layers = shape.hidden_size, shape.intermediate_size, shape.num_hidden_layers
    projections, buckets = (5 if shape.gate else 4), 2 * shape.position_bucket_size - 1
    of_layer = projections * width * width + 3 * width * inner
    mixing = layers * (2 * layers + 1) + 2 * layers if shape.layer_mixing else 0
    output = width * width + vocab_size * width
    return Size(
        parameters=output + (buckets + 3) * width + vocab_size + layers * (of_layer + projections * width) + mixing,
        matrices=layers * (of_layer + 2 * buckets * width),
        output=output,
        hidden_size=width,
        intermediate_size=inner,
        num_attention_heads=shape.num_attention_heads,
        num_hidden_layers=layers,
    )


def norbert4(
    vocab_size: int,
    hidden: int,
    inner: int,
    heads: int,
    layers: int,
    queries: int | None = None,
    values: int | None = None,
) -> Size:
    """Return the size of a NorBERT4.

    `queries`, `values`: the width of those of all heads together; None: as the hidden states.
    """
    queries, values = queries or hidden, values or hidden
    matrices = layers * (2 * queries * hidden + 2 * values * hidden + 3 * inner * hidden)
    scales = layers * (3 * hidden + values + inner + 2 * queries)
    lambdas = 7 * layers
    output = vocab_size * hidden + hidden * hidden
    return Size(
        parameters=matrices + scales + lambdas + output + 3 * hidden + vocab_size,
        matrices=matrices,
        output=output,
        hidden_size=hidden,
        intermediate_size=inner,
        num_attention_heads=heads,
        num_hidden_layers=layers,
    )


def size_of(model: Any, vocab_size: int) -> Size:
    """Return the size of the GPT-BERT or NorBERT4 that a section `model` describes."""
    if model.architecture == "norbert4":
        heads = model.num_attention_heads
        return norbert4(vocab_size, model.hidden_size, model.intermediate_size, heads, model.num_hidden_layers)
    return gpt_bert(model, vocab_size)


def too_large(model: Any, vocab_size: int) -> str | None:
    """Return why a model is refused, if its training state is larger than `LIMIT` bytes; None otherwise."""
    count = size_of(model, vocab_size).parameters
    size = BYTES_PER_PARAMETER * count
    if size <= LIMIT:
        return None
    return (
        f"model.hidden_size = {model.hidden_size}, model.intermediate_size = {model.intermediate_size} and"
        f" model.num_hidden_layers = {model.num_hidden_layers} with a vocabulary of {vocab_size} make {count:,}"
        f" parameters; at {BYTES_PER_PARAMETER} bytes each for weights, gradients and optimizer state this is"
        f" {size / TIB:,.1f} TiB, more than {LIMIT // TIB} TiB: choose a smaller model"
    )
