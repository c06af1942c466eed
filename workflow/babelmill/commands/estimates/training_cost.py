"""Calculate what the training of a model costs: tokens, steps, operations, memory, disk space and hours.

The memory comes from rough formulas, until a training measures it. Each GPU holds a whole GPT-BERT. The states of a
transformers model (weights, gradients, moments of the optimizer, moving average) are split into equal parts, one per
GPU (FSDP2); each GPU holds all that a forward pass needs. With adapters (LoRA), only the adapters have such states, and
the frozen base is stored once, in bf16.
"""

from dataclasses import dataclass

import numpy as np

from babelmill.commands.estimates.machine import (
    as_trained,
    assumed_mfu,
    assumed_speed,
    known_peak,
    measured,
    speed_key,
)
from babelmill.commands.estimates.shape import network_of, sized
from babelmill.commands.estimates.text_size import TrainingText, training_text
from babelmill.config import schema
from babelmill.config.model_size import Counted, layer_matrices, parameters
from babelmill.config.resolve import Configuration, ResolvedModel
from babelmill.config.snapshots import kept_at_the_end, points
from babelmill.core.files import UserError
from babelmill.runtime.cost import flops, slowdown
from babelmill.training.plan.objectives import objective_of
from babelmill.training.plan.schedule import (
    CHUNK,
    CPU_TOKENS,
    end_with,
    mean_from,
    rows_by_step,
    steps_for,
    tokens_wanted,
    validation_bound,
    validation_steps,
    whole_tokens,
)

GIB = 2**30
WEIGHT = 4  # bytes of an fp32 number
GPUS = (1, 2, 4, 8)


@dataclass
class Cost:
    """What the training of a model costs.

    Attributes:
        tokens: tokens of the training text; source: what they were counted on (`shards`) or estimated from (such as the
            shards of earlier settings).
        epochs: passes over the tokens; words: words that all passes read; words_counted: whether they are counted, not
            estimated.
        flops: FLOPs of all steps.
        gpus: GPUs that the job asks for; busy: mean share of them that has work.
        memory_gib: memory per GPU; measured: whether this and the utilisation come from a training of this shape.
        disk_gb: space for shards, checkpoints, results, export and converted folder.
        strategies: for a transformers model, the memory for each choice of what is trained and each number of GPUs;
            "" for other models.
        mfu: share of the GPUs' peak; None without GPUs.
        flops_per_second: FLOP/s of this machine's processor; None with GPUs.
        hours: hours of the training job; gpu_hours: hours times GPUs; None without GPUs.
        validation: the share of the hours in which the run validates.
        tuning_jobs: how many times the model is fine-tuned for tasks; tuning_hours: the hours of this, on one GPU or on
            the processor; None if the rows of a task are not known yet.
    """

    model: str
    parameters: int
    tokens: int
    source: str
    epochs: float
    words: float
    words_counted: bool
    steps: int
    flops: float
    gpus: int
    busy: float
    memory_gib: float
    disk_gb: float
    mfu: float | None
    flops_per_second: float | None
    measured: bool
    hours: float
    gpu_hours: float | None
    strategies: str
    validation: float
    tuning_jobs: int = 0
    tuning_hours: float | None = 0.0


def cost_of(
    configuration: Configuration, model: str, gpus: int, gpu: str, mfu: float | None, text: TrainingText | None = None
) -> Cost:
    """Return what the training of a model costs on a number of GPUs.

    `gpu`: the name of the GPUs; `mfu`: the user's own assumption; `text`: what to train on, in place of the model's own
    text.
    """
    resolved = configuration.model(model)
    train, run = as_trained(resolved.train, on_gpus=gpus > 0), resolved.run
    network, vocab_size = network_of(configuration, model)
    size = sized(network, train, vocab_size)
    text = text or training_text(configuration, model)

    tokens = int(text.tokens)
    if not tokens:
        raise UserError(f"{model}: its text is empty, so there is nothing to train on; set corpus.files")
    steps = steps_for(train, tokens, text.words_per_token)
    lengths, rows = rows_by_step(train, steps)
    if train.words:
        wanted = tokens_wanted(train, tokens, text.words_per_token)
        rows = end_with(rows, lengths, wanted, objective_of(train).smallest_batch)
    tokens_read = float((lengths * rows).sum())
    words = tokens_read * text.words_per_token
    of_step = flops_by_step(size, train, vocab_size, 1 - text.prompts / max(1, tokens), lengths, rows)
    longer = 1 + validated_tokens(run, train, text.validation, steps) / tokens_read / 3  # only forward: a third

    # GPUs get whole micro-batches where dropout is not keyed by row, else single rows. The last round takes as long as
    # a full micro-batch, unless one GPU has all of them.
    deals_whole = network.architecture == "transformers" or train.objective == "labels"
    micro_batches = rows / np.maximum(1, (whole_tokens(train) if deals_whole else 1) // lengths)
    longest = np.minimum(np.ceil(np.ceil(micro_batches) / max(1, gpus)), micro_batches)

    known = measured(on_gpus=gpus > 0).get(speed_key(network, train))
    if gpus:
        rate = mfu or (known.rate if known else assumed_mfu(size.hidden_size))
        hours = longer * float((of_step * longest / micro_batches).sum()) / (known_peak(gpu) * rate) / 3600
    else:
        guess = assumed_speed() / slowdown(train.precision)
        rate = known.rate if known else guess
        hours = longer * float(of_step.sum()) / rate / 3600

    at_once = whole_tokens(train) if gpus else CPU_TOKENS
    if isinstance(run.micro_batch_tokens, int) and not deals_whole:
        at_once = run.micro_batch_tokens
    snapshots = len(kept_at_the_end(points(run.snapshots), words / 1e6))
    return Cost(
        model=model,
        parameters=parameters(size, vocab_size),
        tokens=tokens,
        source=text.source,
        epochs=tokens_read / tokens,
        words=words,
        words_counted=text.words_counted,
        steps=steps,
        flops=float(of_step.sum()),
        gpus=gpus,
        busy=float((micro_batches / max(1, gpus)).sum() / longest.sum()),
        # Memory that is split over GPUs may have been measured on another number of GPUs.
        memory_gib=known.memory / 1024
        if known and not isinstance(size, Counted)
        else gib(size, train, vocab_size, at_once, gpus),
        disk_gb=disk(resolved, size, vocab_size, tokens, snapshots) / 1e9,
        mfu=rate if gpus else None,
        flops_per_second=None if gpus else rate,
        measured=known is not None and mfu is None,
        hours=hours,
        gpu_hours=hours * gpus if gpus else None,
        strategies=strategies(size, train, vocab_size, at_once) if isinstance(size, Counted) else "",
        validation=1 - 1 / longer,
    )


def flops_by_step(
    size: schema.Model | Counted,
    train: schema.Train,
    vocab_size: int,
    learnt: float,
    lengths: np.ndarray,
    rows: np.ndarray,
) -> np.ndarray:
    """Return the FLOPs of the global batch of each step, [steps], from its tokens per row and its rows, both [steps].

    `learnt`: the share of the tokens that belongs to no prompt.
    """
    steps, objective = len(lengths), objective_of(train)
    targets = learnt * lengths * rows * objective.target_share(objective.mask_rate(np.arange(steps), steps))
    distinct, which = np.unique(lengths, return_inverse=True)
    of_position = np.array([flops(size, vocab_size, int(length), 1.0, 0.0) for length in distinct])
    return lengths * rows * of_position[which] + flops(size, vocab_size, 0, 0.0, targets)


def validated_tokens(run: schema.Run, train: schema.Train, validation: float, steps: int) -> float:
    """Return the number of tokens that all validations read, of a text of `validation` tokens.

    Each reads the text with the weights and, as soon as it differs, with their average.
    """
    bound, after = validation_bound(run, train, steps), validation_steps(run, steps)
    first = 0 if train.ema_decay else mean_from(train, steps)
    averaged = 0 if first is None else sum(step > first for step in after)
    passes = (len(after) + averaged) * len(objective_of(train).validated)
    return passes * (validation if bound is None else min(validation, bound))


def trained(size: schema.Model | Counted, train: schema.Train, vocab_size: int) -> int:
    """Return the number of parameters that change: all, or those of the adapters."""
    if isinstance(size, Counted) and train.lora_rank:
        return train.lora_rank * size.sides
    return parameters(size, vocab_size)


def moments(size: schema.Model | Counted, train: schema.Train, vocab_size: int) -> int:
    """Return how many numbers the optimizer keeps: two per parameter that changes; Muon one per element of a matrix."""
    fewer = layer_matrices(size, vocab_size) if train.optimizer == "muon" and not train.lora_rank else 0
    return 2 * trained(size, train, vocab_size) - fewer


def gib(size: schema.Model | Counted, train: schema.Train, vocab_size: int, positions: int, gpus: int) -> float:
    """Return the memory of each GPU in GiB, with forward passes over `positions` tokens.

    The states of each parameter that changes are its weight, gradient, moments, and the average if there is one;
    beside them is a copy of the weights for forward passes, or a frozen base. Forward and backward passes need: what is
    kept for the backward pass, in bf16 except for layer norms (34 H + 14 I + 4 heads T bytes per token and layer), the
    logits that exist at once in fp32, the gradient of the output layer, and what FSDP2 gathers: two layers, the
    embedding and the output matrix. When they have freed all this, FSDP2 sums the gradients of the embedding and the
    output matrix, which are one group: it copies them in fp32, and holds two copies of its part of the sum.
    """
    gpus, width, layers, objective = max(1, gpus), size.hidden_size, size.num_hidden_layers, objective_of(train)
    changing, number = trained(size, train, vocab_size), 2 if train.precision == "bf16" else WEIGHT
    copies, gathered, summing = 2 * parameters(size, vocab_size), 0.0, 0.0
    if isinstance(size, Counted):
        outside = size.parameters - size.matrices
        copies = number * size.parameters if train.lora_rank else 0
        gathered = 2 * (outside + 2 * size.matrices / layers)
        summing = 0.0 if train.lora_rank else WEIGHT * outside * (1 + 2 / gpus)
    numbers = (3 if train.averages else 2) * changing + moments(size, train, vocab_size)
    states = (WEIGHT * numbers + copies) / (gpus if isinstance(size, Counted) else 1)
    layer = 34 * width + 14 * size.intermediate_size + 4 * size.num_attention_heads * max(train.sequence_lengths)
    kept = 8 * width + (layer / layers if train.activation_checkpointing else layer)
    scores = vocab_size * positions * objective.target_share(objective.mask_rate(0, 1))
    logits = 12 * min(CHUNK[0], scores) + (0 if train.lora_rank else WEIGHT * vocab_size * width)
    passes = (positions * layers * kept + logits + gathered) * (number / 2)
    return (states + max(passes, summing)) / GIB


def disk(asked: ResolvedModel, size: schema.Model | Counted, vocab_size: int, tokens: int, snapshots: int) -> float:
    """Return the bytes on disk of shards, checkpoints, snapshots, results, export and converted folder.

    The files of a base model from elsewhere count twice, in bf16: in the Hub's cache and in the stage `base_model`.
    """
    count, changing = parameters(size, vocab_size), trained(size, asked.train, vocab_size)
    results = WEIGHT * changing * (2 if asked.train.averages else 1)  # the weights, and their average
    checkpoint = results + WEIGHT * moments(size, asked.train, vocab_size)
    exports = 2 * len(asked.export.variants) * WEIGHT * count
    base = 2 * 2 * count if asked.source and asked.source.kind != "model" else 0
    shards = (2 if vocab_size <= 2**16 else 4) * tokens
    kept = snapshots * WEIGHT * (changing + count)  # in the run's folder, and exported
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
    texts = []
    for way, (lora_rank, ema_decay) in ways.items():
        values = {"lora_rank": lora_rank, "ema_decay": ema_decay, "average_last": 0.0}
        changed = train.model_copy(update=values)
        needed = [gib(size, changed, vocab_size, positions, gpus) for gpus in GPUS]
        if not texts and needed[0] < 1:
            return ""
        texts.append(f"{way}: {', '.join(map(tenths, needed))}")
    return (
        f"GiB of each of {', '.join(map(str, GPUS))} GPUs, calculated: {'; '.join(texts)}. The evaluation takes"
        f" {tenths(WEIGHT * size.parameters / GIB)} GiB of one GPU and more for its scores: it computes in fp32."
    )


def hours_text(hours: float | None) -> str:
    """Return hours as text, such as "12.3", "0.4" or "< 0.01"; "" for None."""
    if hours is None:
        return ""
    return f"{hours:,.1f}" if hours >= 1 else f"{hours:.1g}" if hours >= 0.01 else "< 0.01"


def tenths(number: float) -> str:
    """Return a number as text, with one decimal if it is below 10."""
    return f"{number:,.0f}" if number >= 10 else f"{number:.1f}" if number >= 0.1 else "< 0.1"
