"""Estimate the GPU memory and the disk space of a training: rough formulas, until a training measures the memory.

Each GPU holds a whole GPT-BERT. The states of a transformers model (weights, gradients, moments of the optimizer,
moving average) are split into equal parts, one per GPU (FSDP2); each GPU holds all that a forward pass needs. With
adapters (LoRA), only the adapters have such states, and the frozen base is stored once, in bf16.
"""

from dataclasses import dataclass

from babelmill.config import schema
from babelmill.config.model_size import Counted, parameters
from babelmill.config.resolve import ResolvedModel
from babelmill.training.plan.objectives import objective_of
from babelmill.training.plan.schedule import CHUNK

GIB = 2**30
WEIGHT = 4  # bytes of an fp32 number
GPUS = (1, 2, 4, 8)


@dataclass(frozen=True)
class Memory:
    """The memory of a training.

    Attributes:
        parameters: number of the model's parameters.
        trained: number of parameters that change: all, or those of the adapters.
        copies: numbers per trained parameter: weight, gradient, two moments, and the average if there is one.
        untrained: bytes of a copy of the weights for forward passes, or of a frozen base.
        sharded: whether the states are split into parts, one per GPU.
        working: bytes of forward and backward passes.
        summed: parameters whose gradients FSDP2 sums last, when a pass has freed all else: those of the embedding and
            the output matrix, which are one group.
    """

    parameters: int
    trained: int
    copies: int
    untrained: int
    sharded: bool
    working: float
    summed: int

    @classmethod
    def of(cls, size: schema.Model | Counted, train: schema.Train, vocab_size: int, positions: int) -> "Memory":
        """Return the memory of a training with forward passes over `positions` tokens.

        `working` includes what is kept for the backward pass, in bf16 except for layer norms (34 H + 14 I + 4 heads T
        bytes per token and layer), the logits that exist at once in fp32, the gradient of the output layer, and what
        FSDP2 gathers: two layers, the embedding and the output matrix.
        """
        count, number = parameters(size, vocab_size), 2 if train.precision == "bf16" else WEIGHT
        trained, untrained, gathered, outside = count, 2 * count, 0.0, 0
        if isinstance(size, Counted):
            trained = train.lora_rank * size.sides if train.lora_rank else count
            untrained = 0 if trained == count else number * count
            outside = size.parameters - size.matrices
            gathered = 2 * (outside + 2 * size.matrices / size.num_hidden_layers)
        width, layers, objective = size.hidden_size, size.num_hidden_layers, objective_of(train)
        layer = 34 * width + 14 * size.intermediate_size + 4 * size.num_attention_heads * max(train.sequence_lengths)
        kept = 8 * width + (layer / layers if train.activation_checkpointing else layer)
        scores = vocab_size * positions * objective.target_share(objective.mask_rate(0, 1))
        logits = 12 * min(CHUNK[0], scores) + (0 if train.lora_rank else WEIGHT * vocab_size * width)
        return cls(
            parameters=count,
            trained=trained,
            copies=5 if train.ema_decay else 4,
            untrained=untrained,
            sharded=isinstance(size, Counted),
            working=(positions * layers * kept + logits + gathered) * (number / 2),
            summed=0 if train.lora_rank else outside,
        )

    def gib(self, gpus: int) -> float:
        """Return the memory of each GPU in GiB.

        To sum gradients, FSDP2 copies them in fp32, and holds two copies of its part of the sum.
        """
        gpus = max(1, gpus)
        states = (WEIGHT * self.copies * self.trained + self.untrained) / (gpus if self.sharded else 1)
        return (states + max(self.working, WEIGHT * self.summed * (1 + 2 / gpus))) / GIB

    def disk(self, asked: ResolvedModel, vocab_size: int, tokens: int, snapshots: int) -> float:
        """Return the bytes on disk of shards, checkpoints, snapshots, results, export and converted folder.

        The files of a base model from elsewhere count twice, in bf16: in the Hub's cache and in the stage `base_model`.
        """
        checkpoint = WEIGHT * self.trained * (self.copies - 1)  # no gradients
        results = WEIGHT * self.trained * (self.copies - 3)
        exports = 2 * len(asked.export.variants) * WEIGHT * self.parameters
        base = 2 * 2 * self.parameters if asked.source and asked.source.kind != "model" else 0
        shards = (2 if vocab_size <= 2**16 else 4) * tokens
        kept = snapshots * WEIGHT * (self.trained + self.parameters)  # in the run's folder, and exported
        checkpoints = (asked.run.keep + 1) * checkpoint  # one is written while the others are kept
        return base + shards + checkpoints + kept + results + exports


def strategies(size: Counted, train: schema.Train, vocab_size: int, positions: int) -> str:
    """Return the memory of training as text, for each choice of what is trained and each number of GPUs in `GPUS`.

    A model that always needs less than 1 GiB has no choice to make, and the text is empty.
    """
    rank = train.lora_rank or 16
    ways = {
        "all weights": (0, 0.999),
        "all weights, train.ema_decay: 0": (0, 0.0),
        f"adapters of rank {rank} (LoRA), train.ema_decay: 0": (rank, 0.0),
    }
    found = {}
    for way, (lora_rank, ema_decay) in ways.items():
        changed = train.model_copy(update={"lora_rank": lora_rank, "ema_decay": ema_decay})
        found[way] = Memory.of(size, changed, vocab_size, positions)
    if found["all weights"].gib(1) < 1:
        return ""
    texts = (f"{way}: {', '.join(rounded(memory.gib(gpus)) for gpus in GPUS)}" for way, memory in found.items())
    return (
        f"GiB of each of {', '.join(map(str, GPUS))} GPUs, calculated: {'; '.join(texts)}. The evaluation takes"
        f" {rounded(WEIGHT * size.parameters / GIB)} GiB of one GPU and more for its scores: it computes in fp32."
    )


def rounded(gib: float) -> str:
    """Return a number of GiB as text, with one decimal if it is below 10."""
    return f"{gib:,.0f}" if gib >= 10 else f"{gib:.1f}"
