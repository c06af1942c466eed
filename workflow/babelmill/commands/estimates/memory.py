"""Estimate the GPU memory and the disk space of a training: rough formulas, until a training measures the memory.

Each GPU holds a whole GPT-BERT. The states of a model of transformers (weights, gradients, moments of the optimizer,
moving average) are split into equal parts, one per GPU (FSDP2); each GPU holds all that a forward pass needs. With
adapters (LoRA), only the adapters have such states, and the frozen base is stored once, in bf16.
"""

from dataclasses import dataclass

from babelmill.config import schema
from babelmill.config.model_size import Counted, parameters
from babelmill.config.resolve import ResolvedModel
from babelmill.training.plan.amounts import CHUNK
from babelmill.training.plan.objectives import objective_of

GIB = 2**30
WEIGHT = 4  # bytes of an fp32 number
GPUS = (1, 2, 4, 8)


@dataclass(frozen=True)
class States:
    """The states that training keeps for a model.

    Attributes:
        parameters: number of the model's parameters.
        trained: number of parameters that change: all, or those of the adapters.
        copies: numbers per trained parameter: weight, gradient, two moments, and the average if there is one.
        base: bytes per parameter of a frozen base.
        sharded: whether the states are split into parts, one per GPU.
    """

    parameters: int
    trained: int
    copies: int
    base: int
    sharded: bool

    def bytes(self, gpus: int) -> float:
        """Return the bytes of the states on each GPU."""
        if not self.sharded:
            return (WEIGHT * self.copies + 2) * self.parameters  # 2: a copy of the weights in bf16
        frozen = 0 if self.trained == self.parameters else self.base * self.parameters
        return (WEIGHT * self.copies * self.trained + frozen) / max(1, gpus)


def states_of(size: schema.Model | Counted, train: schema.Train, vocab_size: int, rank: int, average: bool) -> States:
    """Return the states of a training.

    `rank`: the rank of the adapters, 0 if all weights are trained; `average`: whether averaged weights are kept.
    """
    count, sharded = parameters(size, vocab_size), isinstance(size, Counted)
    trained = rank * size.sides if isinstance(size, Counted) and rank else count
    return States(count, trained, 5 if average else 4, 2 if train.precision == "bf16" else WEIGHT, sharded)


def working(
    size: schema.Model | Counted, train: schema.Train, vocab_size: int, positions: int, frozen_output: bool
) -> float:
    """Return the bytes that a forward and a backward pass over `positions` tokens take in addition to the states.

    This includes what is kept for the backward pass, in bf16 except for layer norms (34 H + 14 I + 4 heads T bytes per
    token and layer), the logits that exist at once in fp32, the gradient of the output layer, and what FSDP2 gathers:
    two layers, the embedding and the output matrix.
    """
    gathered = 0.0
    if isinstance(size, Counted):
        gathered = 2 * (outside(size) + 2 * size.matrices / size.num_hidden_layers)
    width, inner, length = size.hidden_size, size.intermediate_size, max(train.sequence_lengths)
    layer = 34 * width + 14 * inner + 4 * size.num_attention_heads * length
    kept = 8 * width + layer / size.num_hidden_layers if train.activation_checkpointing else layer + 8 * width
    body = positions * size.num_hidden_layers * kept
    objective = objective_of(train)
    scores = vocab_size * positions * objective.target_share(objective.mask_rate(0, 1))
    logits = 12 * min(CHUNK[0], scores) + (0 if frozen_output else WEIGHT * vocab_size * width)
    return (body + logits + gathered) * (1 if train.precision == "bf16" else 2)


def outside(size: Counted) -> int:
    """Return the number of parameters of the embedding and the output matrix, which FSDP2 keeps in one group."""
    return size.parameters - size.matrices


@dataclass(frozen=True)
class Memory:
    """The memory of a training.

    Attributes:
        states: what lasts.
        working: bytes of forward and backward passes.
        summed: parameters whose gradients FSDP2 sums last, when a pass has freed all else.
    """

    states: States
    working: float
    summed: int

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
        """Return the memory of a training with forward passes over `positions` tokens; see also `states_of`."""
        passes = working(size, train, vocab_size, positions, frozen_output=rank > 0)
        summed = outside(size) if isinstance(size, Counted) and not rank else 0
        return cls(states_of(size, train, vocab_size, rank, average), passes, summed)

    def gib(self, gpus: int) -> float:
        """Return the memory of each GPU in GiB.

        To sum gradients, FSDP2 copies them in fp32, and holds two copies of its part of the sum.
        """
        summing = WEIGHT * self.summed * (1 + 2 / max(1, gpus))
        return (self.states.bytes(gpus) + max(self.working, summing)) / GIB


def disk(asked: ResolvedModel, states: States, vocab_size: int, tokens: int, snapshots: int) -> float:
    """Return the bytes on disk of a model's shards, checkpoints, snapshots, results, export and converted folder.

    The files of a base model from elsewhere count twice, in bf16: in the Hub's cache and in the stage `base_model`.
    """
    checkpoint = WEIGHT * states.trained * (states.copies - 1)  # no gradients
    results = WEIGHT * states.trained * (states.copies - 3)
    exports = 2 * len(asked.export.variants) * WEIGHT * states.parameters
    base = 2 * 2 * states.parameters if asked.source and asked.source.kind != "model" else 0
    shards = (2 if vocab_size <= 2**16 else 4) * tokens
    kept = snapshots * WEIGHT * (states.trained + states.parameters)  # in the run's folder, and exported
    checkpoints = (asked.run.keep + 1) * checkpoint  # one is written while the others are kept
    return base + shards + checkpoints + kept + results + exports


def strategies(size: Counted, train: schema.Train, vocab_size: int, positions: int, rank: int) -> str:
    """Return the memory of training as text, for each choice of what is trained and each number of GPUs in `GPUS`.

    A model that always needs less than 1 GiB has no choice to make, and the text is empty.
    """
    if Memory.of(size, train, vocab_size, positions, 0, True).gib(1) < 1:
        return ""
    rank = rank or 16
    ways = {
        "all weights": (0, True),
        "all weights, train.ema_decay: 0": (0, False),
        f"adapters of rank {rank} (LoRA), train.ema_decay: 0": (rank, False),
    }
    said = []
    for way, (adapters, average) in ways.items():
        memory = Memory.of(size, train, vocab_size, positions, adapters, average)
        said.append(f"{way}: {', '.join(rounded(memory.gib(gpus)) for gpus in GPUS)}")
    evaluation = WEIGHT * size.parameters / GIB
    return (
        f"GiB of each of {', '.join(map(str, GPUS))} GPUs, calculated: {'; '.join(said)}. The evaluation takes"
        f" {rounded(evaluation)} GiB of one GPU and more for its scores: it computes in fp32."
    )


def rounded(gib: float) -> str:
    """Return a number of GiB as text, with one decimal if it is below 10."""
    return f"{gib:,.0f}" if gib >= 10 else f"{gib:.1f}"
