"""Calculate what the training of a model costs: tokens, steps, operations, memory, disk space and hours."""

from dataclasses import dataclass

import numpy as np

from babelmill.commands.estimates.machine import assumed_mfu, assumed_speed, measured, shape
from babelmill.commands.estimates.memory import Memory, strategies
from babelmill.commands.estimates.shape import network_of, sized
from babelmill.commands.estimates.text_size import (
    BYTES_PER_TOKEN,
    WORD,
    TrainingText,
    training_text,
    validation_tokens,
)
from babelmill.config.model_size import Counted, parameters
from babelmill.config.resolve import Configuration
from babelmill.config.snapshots import kept_at_the_end, points
from babelmill.core.files import UserError
from babelmill.runtime.cost import flops, peak_of
from babelmill.training.plan.objectives import objective_of
from babelmill.training.plan.schedule import (
    CPU_TOKENS,
    rows_by_step,
    steps_for,
    validation_bound,
    validation_steps,
    whole_tokens,
)

ASSUMED_GPU = "H100"


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


def cost_of(
    configuration: Configuration, model: str, gpus: int, gpu: str, mfu: float | None, text_bytes: float | None = None
) -> Cost:
    """Return what the training of a model costs on a number of GPUs.

    `gpu`: the name of the GPUs; `mfu`: the user's own assumption; `text_bytes`: bytes of English to train on, in place
    of the model's own text.
    """
    resolved = configuration.model(model)
    train, run, objective = resolved.train, resolved.run, objective_of(resolved.train)
    network, vocab_size = network_of(configuration, model)
    size = sized(network, train, vocab_size)
    if text_bytes is None:
        text = training_text(configuration, model)
        validation = validation_tokens(configuration, model, text.tokens)
    else:
        text = TrainingText(int(text_bytes / BYTES_PER_TOKEN), "budget", 1.0, BYTES_PER_TOKEN / WORD, False)
        validation = 0.0

    # The steps, as arrays of shape [steps]: tokens per row, rows, tokens, and FLOPs of the global batch.
    steps = steps_for(train, text.tokens)
    lengths, rows = rows_by_step(train, steps)
    positions = lengths * rows
    targets = text.learnt * positions * objective.target_share(objective.mask_rate(np.arange(steps), steps))
    distinct, which = np.unique(lengths, return_inverse=True)
    of_position = np.array([flops(size, vocab_size, int(length), 1.0, 0.0) for length in distinct])
    of_step = positions * of_position[which] + flops(size, vocab_size, 0, 0.0, targets)
    of_training, tokens_read = float(of_step.sum()), float(positions.sum())
    words = tokens_read * text.words_per_token

    # A validation is a forward pass, a third of a step, with the weights and with their average.
    bound = validation_bound(run, train, steps)
    passes = len(validation_steps(run, steps)) * len(objective.validated) * (2 if train.ema_decay else 1)
    validated = validation if bound is None else min(validation, bound)
    longer = 1 + passes * validated / tokens_read / 3

    # GPUs get whole micro-batches where dropout is not keyed by row, else single rows. The last round takes as long as
    # a full micro-batch, unless one GPU has all of them.
    deals_whole = network.architecture != "gpt_bert" or train.objective == "labels"
    micro_batches = rows / np.maximum(1, (whole_tokens(train) if deals_whole else 1) // lengths)
    longest = np.minimum(np.ceil(np.ceil(micro_batches) / max(1, gpus)), micro_batches)

    at_once = whole_tokens(train) if gpus else CPU_TOKENS
    if isinstance(run.micro_batch_tokens, int) and not deals_whole:
        at_once = run.micro_batch_tokens
    memory = Memory.of(size, train, vocab_size, at_once)
    snapshots = kept_at_the_end(points(run.snapshots), words / 1e6)

    known = measured(on_gpus=gpus > 0).get(shape(network, train))
    if gpus:
        rate = mfu or (known.rate if known else assumed_mfu(size.hidden_size))
        hours = longer * float((of_step * longest / micro_batches).sum()) / (known_peak(gpu) * rate) / 3600
    else:
        rate = known.rate if known else assumed_speed(size.hidden_size, size.intermediate_size)
        hours = longer * of_training / rate / 3600
    return Cost(
        model=model,
        parameters=parameters(size, vocab_size),
        tokens=text.tokens,
        source=text.source,
        epochs=tokens_read / text.tokens,
        words=words,
        words_counted=text.words_counted,
        steps=steps,
        flops=of_training,
        gpus=gpus,
        busy=float((micro_batches / max(1, gpus)).sum() / longest.sum()),
        # Memory that is split over GPUs may have been measured on another number of GPUs.
        memory_gib=known.memory / 1024 if known and not memory.sharded else memory.gib(gpus),
        disk_gb=memory.disk(resolved, vocab_size, text.tokens, len(snapshots)) / 1e9,
        mfu=rate if gpus else None,
        flops_per_second=None if gpus else rate,
        measured=known is not None and mfu is None,
        hours=hours,
        gpu_hours=hours * gpus if gpus else None,
        strategies=strategies(size, train, vocab_size, at_once) if isinstance(size, Counted) else "",
        validation=1 - 1 / longer,
    )


def known_peak(gpu: str, origin: str = "") -> float:
    """Return the peak of a GPU in FLOP/s. Raise a UserError, which begins with `origin`, if it is not known."""
    peak = peak_of(gpu)
    if peak is None:
        raise UserError(f"{origin}{gpu}: its peak is not known; name a similar GPU with --gpu, such as A100 or L40S")
    return peak


def hours_text(hours: float | None) -> str:
    """Return hours as text, such as "12.3", "0.4" or "< 0.01"; "" for None."""
    if hours is None:
        return ""
    return f"{hours:,.1f}" if hours >= 1 else f"{hours:.1g}" if hours >= 0.01 else "< 0.01"


def tenths(number: float) -> str:
    """Return a number as text, with one decimal if it is below 10."""
    return f"{number:,.0f}" if number >= 10 else f"{number:.1f}" if number >= 0.1 else "< 0.1"
