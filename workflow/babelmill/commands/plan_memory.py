"""Memory of a GPU and room on disk that a training takes: rough formulas, until a training measures the memory.

A GPT-BERT is whole on each GPU. The states of a model of transformers (weights, gradients, moments of the optimizer,
moving average) are cut into equal parts, one for each GPU (FSDP2); what a forward pass needs is whole on all of them.
With adapters (LoRA), the states are theirs, and the frozen base is there once, in bf16.
"""

from dataclasses import dataclass

from babelmill.config import schema
from babelmill.config.model_size import Counted, parameters
from babelmill.config.resolve import ResolvedModel
from babelmill.training.amounts import CHUNK
from babelmill.training.objectives import objective_of

GIB = 2**30
WEIGHT = 4  # bytes, of fp32
GPUS = (1, 2, 4, 8)


@dataclass(frozen=True)
class States:
    """What training keeps of a model.

    Attributes:
        parameters: of the model.
        trained: those that change, all or the adapters'.
        copies: of each of them: weight, gradient, two moments, and the average if there is one.
        base: bytes of each parameter of a frozen base.
        sharded: they are cut into parts, one for each GPU.
    """

    parameters: int
    trained: int
    copies: int
    base: int
    sharded: bool

    def bytes(self, gpus: int) -> float:
        """Return what a GPU holds of them."""
        if not self.sharded:
            return (WEIGHT * self.copies + 2) * self.parameters  # and a copy of the weights in bf16
        frozen = 0 if self.trained == self.parameters else self.base * self.parameters
        return (WEIGHT * self.copies * self.trained + frozen) / max(1, gpus)


def states_of(size: schema.Model | Counted, train: schema.Train, vocab_size: int, rank: int, average: bool) -> States:
    """Return what a training keeps; `rank`: of adapters, 0 if all weights are trained; `average`: there is one."""
    count, sharded = parameters(size, vocab_size), isinstance(size, Counted)
    trained = rank * size.sides if isinstance(size, Counted) and rank else count
    return States(count, trained, 5 if average else 4, 2 if train.precision == "bf16" else WEIGHT, sharded)


def working(
    size: schema.Model | Counted, train: schema.Train, vocab_size: int, positions: int, frozen_output: bool
) -> float:
    """Return the bytes that a forward and a backward pass of so many positions take beside the states.

    What is kept for the backward pass, in bf16 but for layer norms (34 H + 14 I + 4 heads T bytes per token and
    layer), the logits that exist at once in fp32, the gradient of the output layer, and what FSDP2 gathers: two layers,
    the embedding and the output matrix.
    """
    gathered = 0.0
    if isinstance(size, Counted):
        gathered = 2 * (size.parameters - size.matrices + 2 * size.matrices / size.num_hidden_layers)
    width, inner, length = size.hidden_size, size.intermediate_size, max(train.sequence_lengths)
    layer = 34 * width + 14 * inner + 4 * size.num_attention_heads * length
    kept = 8 * width + layer / size.num_hidden_layers if train.activation_checkpointing else layer + 8 * width
    body = positions * size.num_hidden_layers * kept
    objective = objective_of(train)
    scores = vocab_size * positions * objective.target_share(objective.mask_rate(0, 1))
    logits = 12 * min(CHUNK[0], scores) + (0 if frozen_output else WEIGHT * vocab_size * width)
    return (body + logits + gathered) * (1 if train.precision == "bf16" else 2)


@dataclass(frozen=True)
class Memory:
    """The memory of a training: `states`, and the bytes of forward and backward passes beside them."""

    states: States
    working: float

    @classmethod
    def of(
        cls,
        size: schema.Model | Counted,
        train: schema.Train,
        vocab_size: int,
        positions: int,
        rank: int,
        average: bool,
    ) -> "Memory":
        """Return that of a training with forward passes of so many positions; see `states_of`."""
        passes = working(size, train, vocab_size, positions, frozen_output=rank > 0)
        return cls(states_of(size, train, vocab_size, rank, average), passes)

    def gib(self, gpus: int) -> float:
        """Return what a GPU holds, in GiB."""
        return (self.states.bytes(gpus) + self.working) / GIB


def disk(asked: ResolvedModel, states: States, vocab_size: int, tokens: int) -> float:
    """Return the bytes on disk of a model's shards, checkpoints, results, export and converted folder.

    Also the files of a base model from elsewhere, in bf16: in the Hub's cache and as the stage `base_model` has them.
    """
    checkpoint = WEIGHT * states.trained * (states.copies - 1)  # no gradients
    results = WEIGHT * states.trained * (states.copies - 3)
    exports = 2 * len(asked.export.variants) * WEIGHT * states.parameters
    base = 2 * 2 * states.parameters if asked.source and asked.source.kind != "model" else 0
    shards = (2 if vocab_size <= 2**16 else 4) * tokens
    return (
        base + shards + (asked.run.keep + 1) * checkpoint + results + exports
    )  # one is written while the others are kept


def strategies(size: Counted, train: schema.Train, vocab_size: int, positions: int, rank: int) -> str:
    """Return the memory that training takes by what is trained, on several numbers of GPUs."""
    rank = rank or 16
    ways = {
        "all weights": (0, True),
        "all weights, train.ema_decay: 0": (0, False),
        f"adapters of rank {rank} (LoRA), train.ema_decay: 0": (rank, False),
    }
    said = []
    for way, (adapters, average) in ways.items():
        memory = Memory.of(size, train, vocab_size, positions, adapters, average)
        said.append(f"{way}: {', '.join(f'{memory.gib(gpus):,.0f}' for gpus in GPUS)}")
    evaluation = WEIGHT * size.parameters / GIB
    return (
        f"GiB of each of {', '.join(map(str, GPUS))} GPUs, calculated: {'; '.join(said)}. The evaluation takes"
        f" {evaluation:,.0f} GiB of one GPU and more for its scores: it computes in fp32."
    )
