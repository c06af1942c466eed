"""Compute the size of a model from its shape: for a plan, and to refuse a model that is too large for any machine."""

from dataclasses import dataclass
from typing import Any, Protocol

TIB = 2**40
# Weights, gradients, the average of the weights, and two moments of the optimizer, in fp32.
BYTES_PER_PARAMETER = 20
LIMIT = 2 * TIB


class Shape(Protocol):
    """The shape of a model: the section `model` of the configuration, or a model's own configuration."""

    @property
    def hidden_size(self) -> int: ...
    @property
    def intermediate_size(self) -> int: ...
    @property
    def num_hidden_layers(self) -> int: ...
    @property
    def position_bucket_size(self) -> int: ...
    @property
    def gate(self) -> bool: ...
    @property
    def layer_mixing(self) -> bool: ...


@dataclass(frozen=True)
class Counted:
    """The size of a transformers model, as counted on its modules, or of a NorBERT4."""

    parameters: int  # number of parameters, each counted once
    matrices: int  # number of elements of all matrices that every position is multiplied by
    of_layers: int  # number of elements of the matrices of the layers, which Muon updates
    sides: int  # sum of the rows and columns of these matrices: the number of parameters of adapters of rank 1
    output: int  # number of elements of the output matrix, by which only positions with a target are multiplied
    hidden_size: int
    intermediate_size: int  # the longest side of a layer's matrices
    num_attention_heads: int
    num_hidden_layers: int
    frozen: bool = False  # whether its matrices have no gradients, since adapters are trained beside them


def norbert4(
    vocab_size: int,
    hidden: int,
    inner: int,
    heads: int,
    layers: int,
    queries: int | None = None,
    values: int | None = None,
) -> Counted:
    """Return the size of a NorBERT4.

    `queries`, `values`: the width of those of all heads together; None: as the hidden states.
    """
    queries, values = queries or hidden, values or hidden
    matrices = layers * (2 * queries * hidden + 2 * values * hidden + 3 * inner * hidden)
    scales = layers * (3 * hidden + values + inner + 2 * queries)
    lambdas = 7 * layers
    output = vocab_size * hidden + hidden * hidden
    return Counted(
        parameters=matrices + scales + lambdas + output + 3 * hidden + vocab_size,
        matrices=matrices,
        of_layers=matrices,
        sides=layers * (2 * queries + 2 * values + 7 * hidden + 3 * inner),
        output=output,
        hidden_size=hidden,
        intermediate_size=inner,
        num_attention_heads=heads,
        num_hidden_layers=layers,
    )


def counted(config: Any, vocab_size: int) -> Counted | None:
    """Return the counted size of a model whose `model` settings describe a NorBERT4; that of a `Counted` is itself."""
    if isinstance(config, Counted):
        return config
    if getattr(config, "architecture", "gpt_bert") != "norbert4":
        return None
    return norbert4(
        vocab_size,
        config.hidden_size,
        config.intermediate_size,
        config.num_attention_heads,
        config.num_hidden_layers,
    )


def parameters(config: Shape | Counted, vocab_size: int) -> int:
    """Return the number of parameters of a model with these `model` settings."""
    if size := counted(config, vocab_size):
        return size.parameters
    assert not isinstance(config, Counted)
    size, inner, layers = config.hidden_size, config.intermediate_size, config.num_hidden_layers
    embedding = vocab_size * size + (2 * config.position_bucket_size - 1) * size + 2 * size
    attention = 5 * (size * size + size) if config.gate else 4 * (size * size + size)
    mixing = layers * (2 * layers + 1) + 2 * layers if config.layer_mixing else 0
    head = size * size + size + vocab_size
    return embedding + layers * (attention + 3 * size * inner) + mixing + head


def layer_matrices(config: Shape | Counted, vocab_size: int) -> int:
    """Return the number of elements of the matrices of the layers, which Muon updates; see `parameters`."""
    if size := counted(config, vocab_size):
        return size.of_layers
    assert not isinstance(config, Counted)
    size, attention = config.hidden_size, 5 if config.gate else 4
    return config.num_hidden_layers * (attention * size * size + 3 * size * config.intermediate_size)


def too_large(config: Shape, vocab_size: int) -> str | None:
    """Return why a model is refused, if its training state is larger than `LIMIT` bytes; None otherwise."""
    count = parameters(config, vocab_size)
    size = BYTES_PER_PARAMETER * count
    if size <= LIMIT:
        return None
    return (
        f"model.hidden_size = {config.hidden_size}, model.intermediate_size = {config.intermediate_size} and"
        f" model.num_hidden_layers = {config.num_hidden_layers} with a vocabulary of {vocab_size} make {count:,}"
        f" parameters; at {BYTES_PER_PARAMETER} bytes each for weights, gradients and optimizer state this is"
        f" {size / TIB:,.1f} TiB, more than {LIMIT // TIB} TiB: choose a smaller model"
    )
