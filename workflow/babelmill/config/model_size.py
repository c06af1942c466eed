"""Compute the size of a model from its shape: what a step costs, what a plan says, and what no machine could hold."""

from dataclasses import dataclass
from typing import Any

# Weights, gradients, the average of the weights, and two moments of the optimizer, in fp32.
BYTES_PER_PARAMETER = 20
LIMIT = 2**41 // BYTES_PER_PARAMETER  # parameters: the states of more take 2 TiB


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
