"""Show what training will cost, before any job is submitted.

    babelmill plan tier1

Steps are computed as in training, from the number of tokens in the shards ("old shards" were made with earlier
settings). If there are no shards yet, the number of tokens is estimated, and the table says from what. Hours are
floating-point operations divided by the speed of the GPUs: their peak times the utilisation (MFU). Finished or running
trainings of the same shape give the utilisation; otherwise it is assumed. A step takes as long as the GPU with the most
micro-batches needs, so idle GPUs add hours. On a machine without GPUs, hours are hours of its processor (`machine.py`).
This command does not import torch.
"""

import argparse
import csv
import sys
from dataclasses import astuple, dataclass, fields

import numpy as np

from babelmill.commands.estimates.download import download_notes
from babelmill.commands.estimates.machine import (
    assumed_mfu,
    gpus_of,
    has_gpu,
    measured,
    profile_resources,
    shape,
    sized,
    speed_of,
)
from babelmill.commands.estimates.memory import Memory, disk, strategies
from babelmill.commands.estimates.network_shape import network_of
from babelmill.commands.estimates.snapshots import note, reached
from babelmill.commands.estimates.text_size import (
    BYTES_PER_TOKEN,
    WORD,
    estimated_words_per_token,
    training_tokens,
    validation_tokens,
)
from babelmill.commands.terminal.columns import aligned
from babelmill.config import loading, schema
from babelmill.config.model_size import Counted, parameters
from babelmill.config.resolve import Configuration, ResolvedModel
from babelmill.core.files import UserError
from babelmill.core.words import plural
from babelmill.runtime.cost import flops, peak_of
from babelmill.training.plan.amounts import CPU_TOKENS, whole_tokens
from babelmill.training.plan.objectives import objective_of
from babelmill.training.plan.schedule import rows_by_step, steps_for, validation_bound, validation_steps

ASSUMED_GPU = "H100"
MUCH_VALIDATION = 0.15  # the share of the hours from which a note says how long validations take


@dataclass(frozen=True)
class Schedule:
    """The steps of a training, as arrays of shape [steps].

    Attributes:
        lengths: tokens per row.
        rows: rows of the global batch.
        flops: FLOPs of the global batch.
        micro_batches: micro-batches in the global batch; if the last one is not full, it counts as a fraction.
        longest: micro-batches of the GPU that has the most.
    """

    lengths: np.ndarray
    rows: np.ndarray
    flops: np.ndarray
    micro_batches: np.ndarray
    longest: np.ndarray


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
        strategies: for a model of transformers, the memory for each choice of what is trained and each number of GPUs;
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


# Costs.


def deals_whole(model: schema.Model, train: schema.Train) -> bool:
    """Return whether GPUs get whole micro-batches and not single rows: where dropout is not keyed by row."""
    return model.architecture != "gpt_bert" or train.objective == "labels"


def schedule_of(
    model: schema.Model | Counted,
    train: schema.Train,
    vocab_size: int,
    tokens: int,
    dealt: tuple[int, int],
    learnt: float = 1.0,
) -> Schedule:
    """Return the steps of a training on `tokens` tokens, of which the share `learnt` is learnt.

    `dealt`: the number of GPUs, and the number of tokens that one of them gets at once.
    """
    gpus, size = dealt
    steps = steps_for(train, tokens)
    lengths, rows = rows_by_step(train, steps)
    positions = lengths * rows
    objective = objective_of(train)
    targets = learnt * positions * objective.target_share(objective.mask_rate(np.arange(steps), steps))
    distinct, which = np.unique(lengths, return_inverse=True)
    of_position = np.array([flops(model, vocab_size, int(length), 1.0, 0.0) for length in distinct])
    of_targets = flops(model, vocab_size, 0, 0.0, targets)
    micro_batches = rows / np.maximum(1, size // lengths)
    return Schedule(
        lengths=lengths,
        rows=rows,
        flops=positions * of_position[which] + of_targets,
        micro_batches=micro_batches,
        # The last round takes as long as a full micro-batch, unless one GPU has all of them.
        longest=np.minimum(np.ceil(np.ceil(micro_batches) / max(1, gpus)), micro_batches),
    )


def validation_flops(resolved: ResolvedModel, plan: Schedule, flops_per_token: float, tokens: float) -> float:
    """Return the FLOPs of all validations of a run whose languages have so many validation tokens."""
    steps, objective = len(plan.rows), objective_of(resolved.train)
    bound = validation_bound(resolved.run, resolved.train, steps)
    measured = tokens if bound is None else min(tokens, bound)
    passes = len(objective.validated) * (2 if resolved.train.ema_decay else 1)
    return len(validation_steps(resolved.run, steps)) * passes * measured * flops_per_token / 3


def cost_of(
    configuration: Configuration, model: str, gpus: int, gpu: str, mfu: float | None, text: float | None = None
) -> Cost:
    """Return what the training of a model costs on a number of GPUs.

    `gpu`: the name of the GPUs; `mfu`: the user's own assumption; `text`: bytes of English to train on, in place of the
    model's own text.
    """
    resolved = configuration.model(model)
    network, vocab_size = network_of(configuration, model)
    if text is None:
        tokens, source, learnt = training_tokens(configuration, model)
        per_token, counted = estimated_words_per_token(configuration, model)
    else:
        tokens, source, learnt = int(text / BYTES_PER_TOKEN), "budget", 1.0
        per_token, counted = BYTES_PER_TOKEN / WORD, False
    size = sized(network, resolved.train, vocab_size)
    whole = whole_tokens(resolved.train) if deals_whole(network, resolved.train) else 1
    plan = schedule_of(size, resolved.train, vocab_size, tokens, (gpus, whole), learnt)
    count, read = parameters(size, vocab_size), float((plan.lengths * plan.rows).sum())
    words = read * per_token
    of_training = float(plan.flops.sum())
    validated = validation_tokens(configuration, model, tokens) if text is None else 0.0
    of_validation = validation_flops(resolved, plan, of_training / read, validated)
    longer = (of_training + of_validation) / of_training
    known = measured(on_gpus=gpus > 0).get(shape(network, resolved.train))
    positions = whole_tokens(resolved.train) if gpus else CPU_TOKENS
    if isinstance(resolved.run.micro_batch_tokens, int) and not deals_whole(network, resolved.train):
        positions = resolved.run.micro_batch_tokens
    rank = resolved.train.lora_rank
    memory = Memory.of(size, resolved.train, vocab_size, positions, rank, resolved.train.ema_decay > 0)
    if gpus:
        rate = mfu or (known.rate if known else assumed_mfu(size.hidden_size))
        hours = longer * float((plan.flops * plan.longest / plan.micro_batches).sum()) / (known_peak(gpu) * rate) / 3600
    else:
        rate, _ = speed_of(network, resolved.train, vocab_size)
        hours = longer * of_training / rate / 3600
    return Cost(
        model=model,
        parameters=count,
        tokens=tokens,
        source=source,
        epochs=read / tokens,
        words=words,
        words_counted=counted,
        steps=len(plan.rows),
        flops=of_training,
        gpus=gpus,
        busy=float((plan.micro_batches / max(1, gpus)).sum() / plan.longest.sum()),
        # Memory that is split over GPUs may have been measured on another number of GPUs.
        memory_gib=known.memory / 1024 if known and not isinstance(size, Counted) else memory.gib(gpus),
        disk_gb=disk(resolved, memory.states, vocab_size, tokens, len(reached(configuration, model, words))) / 1e9,
        mfu=rate if gpus else None,
        flops_per_second=None if gpus else rate,
        measured=known is not None and mfu is None,
        hours=hours,
        gpu_hours=hours * gpus if gpus else None,
        strategies=strategies(size, resolved.train, vocab_size, positions, rank) if isinstance(size, Counted) else "",
        validation=1 - 1 / longer,
    )


def known_peak(gpu: str) -> float:
    """Return the peak of a GPU in FLOP/s. Raise a UserError if it is not known."""
    peak = peak_of(gpu)
    if peak is None:
        raise UserError(f"{gpu}: its peak is not known; name a similar GPU with --gpu, such as A100 or L40S")
    return peak


# What is printed.


def short(number: float) -> str:
    """Return 12345678 as 12.3 M."""
    for size, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if number >= size:
            return f"{number / size:.1f}{unit}"
    return f"{number:.0f}"


def hours_text(hours: float | None) -> str:
    """Return hours as text, such as "12.3", "0.4" or "< 0.01"; "" for None."""
    if hours is None:
        return ""
    return f"{hours:,.1f}" if hours >= 1 else f"{hours:.1g}" if hours >= 0.01 else "< 0.01"


def tenths(number: float) -> str:
    """Return a number as text, with one decimal if it is below 10."""
    return f"{number:,.0f}" if number >= 10 else f"{number:.1f}" if number >= 0.1 else "< 0.1"


HEADING = (
    *("model", "parameters", "tokens", "from", "epochs", "steps", "FLOPs", "GPUs", "busy", "GiB", "disk"),
    *("speed", "hours", "GPU-hours"),
)
OF_GPUS = ("GPUs", "busy", "GPU-hours")  # columns that a table without GPUs leaves out
TO_THE_LEFT = ("model", "from")


def row_of(cost: Cost) -> list[str]:
    """Return a model's row under `HEADING`."""
    return [
        cost.model,
        short(cost.parameters),
        short(cost.tokens),
        cost.source,
        tenths(cost.epochs),
        f"{cost.steps:,}",
        f"{cost.flops:.1e}",
        f"{cost.gpus}",
        f"{cost.busy:.0%}" if cost.gpus else "",
        tenths(cost.memory_gib),
        f"{cost.disk_gb:,.0f} GB" if cost.disk_gb >= 1 else f"{1000 * cost.disk_gb:,.0f} MB",
        speed_text(cost),
        hours_text(cost.hours),
        hours_text(cost.gpu_hours),
    ]


def speed_text(cost: Cost) -> str:
    """Return the utilisation of GPUs, or the speed of this machine, with a question mark if it is assumed."""
    speed = f"{cost.mfu:.0%}" if cost.mfu is not None else f"{(cost.flops_per_second or 0) / 1e9:,.0f} GFLOP/s"
    return speed if cost.measured else f"{speed} ?"


def total_of(costs: list[Cost]) -> list[str]:
    """Return the last row, which adds up the models."""
    total = dict.fromkeys(HEADING, "") | {
        "model": plural(len(costs), "model"),
        "tokens": short(sum(cost.tokens for cost in costs)),
        "FLOPs": f"{sum(cost.flops for cost in costs):.1e}",
    }
    if any(cost.gpus for cost in costs):
        total["GPU-hours"] = hours_text(sum(cost.gpu_hours or 0 for cost in costs))
    else:
        total["hours"] = hours_text(sum(cost.hours for cost in costs))
    return list(total.values())


def notes(costs: list[Cost], gpu: str) -> list[str]:
    """Return what a reader of the table has to know: the GPU, and what is estimated."""
    on_gpus = any(cost.gpus for cost in costs)
    found = [
        f"GPU: {gpu} (--gpu names another), {known_peak(gpu) / 1e12:,.0f} TFLOP/s in bf16."
        " Hours are those of training with its validations."
        if on_gpus
        else "No GPU: hours of this machine's processor (--gpu names a GPU, --profile uses those of a cluster)."
        " Hours are those of training with its validations."
    ]
    for cost in costs:
        if cost.validation > MUCH_VALIDATION:
            found.append(
                f"{cost.model}: validations take {cost.validation:.0%} of the hours (run.validate_every,"
                " run.validation_tokens)."
            )
    if any(cost.source != "shards" for cost in costs):
        found.append("Tokens are estimated until the shards exist (`from`): expect them to be off by a fifth or more.")
    if any("old shards" in cost.source for cost in costs):
        found.append("old shards: tokens of shards that earlier settings made (`babelmill why` says what has changed).")
    if any(not cost.measured for cost in costs):
        source = (
            "is an assumed share of the GPU's peak (--mfu sets it),"
            if on_gpus
            else "is estimated from a matrix product, within a factor of two or three,"
        )
        memory = "a GPU's memory" if on_gpus else "memory"
        found.append(
            f"A speed with a ? {source} and GiB (of {memory}) come from a rough formula, until a training here measures"
            " both."
        )
    for line in dict.fromkeys(f"{cost.model}: {cost.strategies}" for cost in costs if cost.strategies):
        found.append(line)
    if any(cost.gpus > 1 and cost.busy < 0.9 for cost in costs):
        found.append(
            "busy: GPUs wait for each other when there are few micro-batches or rows: fewer GPUs are as fast, or set a"
            " lower train.micro_batch_tokens."
        )
    return found


def table(costs: list[Cost], gpu: str, more: list[str]) -> str:
    """Return a heading, one line per model and number of GPUs, the total, the notes, and the lines of `more`."""
    rows = [list(HEADING), *(row_of(cost) for cost in costs)]
    if len({cost.model for cost in costs}) == len(costs):  # not several numbers of GPUs for the same model
        rows.append(total_of(costs))
    if not any(cost.gpus for cost in costs):
        rows = [[cell for name, cell in zip(HEADING, row, strict=True) if name not in OF_GPUS] for row in rows]
    lines = aligned(rows, (name not in TO_THE_LEFT for name in rows[0]))
    return "\n".join([*lines, *notes(costs, gpu), *more])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("names", nargs="*", help="models and batches (default: the configuration's targets)")
    loading.add_arguments(parser)
    parser.add_argument("--gpu", help=f"the GPU, such as A100 (default: gpu_model of the profile, or {ASSUMED_GPU})")
    parser.add_argument("--gpus", type=int, nargs="+", help="GPUs of a training job; several numbers give a line each")
    parser.add_argument("--mfu", type=float, help="assumed utilisation, as a share of the GPU's peak, such as 0.3")
    parser.add_argument("--tsv", action="store_true", help="tab-separated values, numbers unrounded")


def run(args: argparse.Namespace) -> None:
    """Print what the training of models will cost: tokens, steps, parameters, FLOPs, memory, hours."""
    configuration = loading.from_arguments(args)
    resources = profile_resources(args.profile)
    named = args.gpu or resources.get("gpu_model")
    gpu = named or ASSUMED_GPU
    if peak_of(gpu) is None:
        origin = "--gpu" if args.gpu else f"gpu_model in {args.profile}:"
        raise UserError(f"{origin} {gpu}: its peak is not known; name a similar GPU with --gpu, such as A100 or L40S")
    if any(gpus < 0 for gpus in args.gpus or ()):
        raise UserError(f"--gpus {min(args.gpus)}: expected a number of GPUs; 0 means no GPU")
    if args.mfu is not None and not 0 < args.mfu <= 1:
        raise UserError(f"--mfu {args.mfu}: expected a share of the peak, above 0 and at most 1")
    if resources["here"] and not (named or args.mfu or args.gpus or has_gpu()):
        resources = resources | {"limit": 0}
    costs = [
        cost_of(configuration, model, gpus, gpu, args.mfu)
        for model in configuration.models_of(args.names or ["all"])
        for gpus in args.gpus or [gpus_of(configuration, model, resources)]
    ]
    if args.tsv:
        writer = csv.writer(sys.stdout, delimiter="\t", lineterminator="\n")
        writer.writerow(field.name for field in fields(Cost))
        writer.writerows(astuple(cost) for cost in costs)
    else:
        codes = dict.fromkeys(code for cost in costs for code in configuration.languages_of(cost.model))
        more = download_notes(configuration, list(codes), BYTES_PER_TOKEN)
        snapshots = (note(configuration, cost.model, cost.words, cost.epochs, cost.words_counted) for cost in costs)
        print(table(costs, gpu, [*dict.fromkeys(filter(None, snapshots)), *more]))
