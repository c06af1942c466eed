"""Show what training will cost, before any job is submitted.

    babelmill plan                                 # for the configuration's targets
    babelmill plan tier1 --profile profiles/slurm  # for a batch, on the GPUs of a cluster
    babelmill plan eng --gpu A100 --gpus 4

Steps are computed as in training, from the tokens of the shards; before there are any, tokens are estimated, and the
column `from` says from what. Hours are floating-point operations divided by a speed: that of trainings of half to twice
the size in this folder, else an assumed one, which has a question mark. On a machine without GPUs they are those of its
processor. Memory is measured, too, or calculated: 20 bytes a parameter (16 without an average of the weights), and what
forward passes keep. (Training all of 8 billion parameters took up to 8 % more, adapters up to 20 % less.)
"""

import argparse
import csv
import os
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from babelmill.commands.estimates import Text, cores, size_of_model, speed_of, text_of
from babelmill.config import loading, schema
from babelmill.config.model_size import BYTES_PER_PARAMETER, Size
from babelmill.config.resolve import ResolvedModel
from babelmill.config.snapshots import missing_points, name_of
from babelmill.core.escape import some
from babelmill.core.files import UserError
from babelmill.core.words import aligned, plural, said_once, short, tenths
from babelmill.graph import Graph
from babelmill.runtime.cost import fast_in_bf16, flops, has_gpu, peak_of, precision_of
from babelmill.training.plan import schedule
from babelmill.training.plan.objectives import objective_of

ASSUMED_GPU = "H100"
LIBRARIES = 0.6  # GiB that the libraries of a process without a GPU take
FEW = 20  # documents of the validation text, below which a note says so
HOW_FAR_OFF = """\
Tokens are off by a fifth or more, unless they are from `shards`. Hours are those of training, without validations.
A speed with a ? is assumed, until a training of about this size has finished here: the hours are then right within a
factor of two or three, and GiB are calculated."""
SUMS = ("tokens", "FLOPs", "hours", "GPU-hours")  # columns of the total


def speed(rate: float) -> str:
    """Return a speed in FLOP/s as text."""
    return f"{rate / 1e12:,.0f} TFLOP/s" if rate >= 1e12 else f"{rate / 1e9:,.0f} GFLOP/s"


COLUMNS: dict[str, Callable[[Any], str]] = {  # how the table shows each
    "model": str,
    "parameters": short,
    "tokens": short,
    "from": str,
    "epochs": tenths,
    "steps": "{:,}".format,
    "FLOPs": "{:.1e}".format,
    "GPUs": str,
    "GiB": tenths,
    "speed": speed,
    "hours": tenths,
    "GPU-hours": tenths,
}


def plan(graph: Graph, model: str, gpus: int, gpu: str) -> tuple[dict[str, Any], list[str]]:
    """Return the row of a model, and what is to know before its training."""
    resolved = graph.configuration.model(model)
    train = resolved.train
    train = train.model_copy(update={"precision": precision_of(train.precision, gpus > 0 or fast_in_bf16())})
    text, size = text_of(graph, model), size_of_model(graph, model)
    objective = objective_of(train)
    lengths, rows = schedule.whole_run(train, int(text.tokens), text.words_per_token, objective.smallest_batch)
    steps = len(rows)
    tokens = float((lengths * rows).sum())
    targets = lengths * rows * objective.target_share(objective.mask_rate(np.arange(steps), steps))
    work = float(flops(size, lengths, lengths * rows, targets).sum())
    rate, gib, measured = speed_of(size, train, work / tokens / size.parameters, gpus > 0)
    rate *= (peak_of(gpu) or 0) * gpus if gpus else 1
    row = {
        "model": model,
        "parameters": size.parameters,
        "tokens": int(text.tokens),
        "from": text.source,
        "epochs": tokens / text.tokens,
        "steps": steps,
        "FLOPs": work,
        "GPUs": gpus,
        "GiB": gib or memory(resolved, size, train, gpus),
        "speed": rate,
        "measured": measured,
        "hours": work / rate / 3600,
        "GPU-hours": work / rate / 3600 * gpus,
        "training": graph.result("train", model).path,
    }
    return row, notes(resolved, text, tokens)


def memory(resolved: ResolvedModel, size: Size, train: schema.Train, gpus: int) -> float:
    """Return about how many GiB each GPU needs, or the process without one.

    Each GPU holds a whole GPT-BERT, and its part of the states of a transformers model (FSDP2). With adapters, only
    these have states, beside the frozen weights in bf16. Forward passes keep about 34 H + 14 I + 4 heads T bytes per
    token and layer in bf16, or 8 H if layers compute them again; and the scores that exist at once, in fp32.
    """
    objective = objective_of(train)
    each = BYTES_PER_PARAMETER if train.averages else BYTES_PER_PARAMETER - 4
    states = each * train.lora_rank * size.adapter + 2 * size.parameters if size.frozen else each * size.parameters
    if resolved.model.architecture == "transformers":
        states /= max(1, gpus)
    whole = resolved.model.architecture == "transformers"
    tokens = schedule.whole_tokens(train) if whole else schedule.micro_batch_tokens(resolved.run, gpus > 0)
    width, layers, heads = size.hidden_size, size.num_hidden_layers, size.num_attention_heads
    layer = 34 * width + 14 * size.intermediate_size + 4 * heads * max(train.sequence_lengths)
    kept = 8 * width * layers + layer if train.activation_checkpointing else layer * layers
    scores = tokens * objective.target_share(objective.mask_rate(0, 1)) * size.output / width
    passes = (tokens * kept + 12 * min(schedule.CHUNK[not gpus], scores)) * (1 if train.precision == "bf16" else 2)
    return (states + passes) / 2**30 + (0 if gpus else LIBRARIES)


def notes(resolved: ResolvedModel, text: Text, tokens: float) -> list[str]:
    """Return what cannot work or will be missing. `tokens`: what the training reads."""
    found, train = list[str](), resolved.train
    if text.tokens < train.global_batch_tokens:
        found.append(f"train.global_batch_tokens = {train.global_batch_tokens:,} is more than its whole text.")
    if text.validation < FEW:
        found.append(f"only {plural(int(text.validation), 'document')} for validation: raise corpus.validation_share.")
    words = tokens * text.words_per_token / 1e6
    if missing := missing_points(resolved.run.snapshots, words):
        found.append(f"no snapshot {some(map(name_of, missing), 3)}: it reads about {words:,.3g} million words.")
    return found


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Return a heading, one line per model, and the total of several, with a training that they share once."""
    on_gpus = any(row["GPUs"] for row in rows)
    heading = [name for name in COLUMNS if on_gpus or name not in ("GPUs", "GPU-hours")]
    cells = [[COLUMNS[name](row[name]) for name in heading] for row in rows]
    for row, line in zip(rows, cells, strict=True):
        line[heading.index("speed")] += "" if row["measured"] else " ?"
    if len(rows) > 1:
        distinct = {row["training"]: row for row in rows}.values()
        total = {name: COLUMNS[name](sum(row[name] for row in distinct)) for name in SUMS}
        total["model"] = plural(len(rows), "model")
        cells.append([total.get(name, "") for name in heading])
    return aligned([heading, *cells], (name not in ("model", "from") for name in heading))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("names", nargs="*", metavar="NAME", help="a model or a batch (default: the targets)")
    loading.add_arguments(parser)
    parser.add_argument("--gpu", help=f"assume this GPU (default: gpu_model of the profile, or {ASSUMED_GPU})")
    parser.add_argument("--gpus", type=int, metavar="N", help="assume N GPUs per job; 0: the processor")
    parser.add_argument("--tsv", action="store_true", help="print tab-separated values, with all digits")


def gpus_for(args: argparse.Namespace) -> tuple[str, Callable[[int], int]]:
    """Return the name of the GPU, and a function from the GPUs that a preset asks for to those of a training job."""
    profile = loading.read_profile(args.profile) if args.profile else {}
    sections = [profile.get(key) or {} for key in ("default-resources", "set-resources", "resources")]
    if not all(isinstance(each, dict) for each in sections):
        raise UserError(f"{args.profile}: resources are expected to be mappings from names to values")
    of_job = {**sections[0], **(sections[1].get("train") or {})}
    gpu = args.gpu or of_job.get("gpu_model")
    none_here = profile.get("executor", "local") == "local" and not (gpu or has_gpu())
    limit = 0 if none_here else sections[2].get("gpu", sys.maxsize)
    if gpu and peak_of(gpu) is None:
        origin = "--gpu " if args.gpu else f"gpu_model in {args.profile}: "
        raise UserError(f"{origin}{gpu}: its peak is not known; name a similar GPU with --gpu, such as A100 or L40S")

    def of_preset(asked: int) -> int:
        return args.gpus if args.gpus is not None else min(int(of_job.get("gpu", asked)), limit)

    return gpu or ASSUMED_GPU, of_preset


def run(args: argparse.Namespace) -> None:
    """Print what the training of models will cost: tokens, steps, parameters, FLOPs, memory, hours."""
    graph = Graph(configuration := loading.from_arguments(args))
    if (args.gpus or 0) < 0:
        raise UserError(f"--gpus {args.gpus}: expected a number of GPUs; 0 means no GPU")
    gpu, of_preset = gpus_for(args)
    rows, said = list[dict[str, Any]](), list[tuple[str, str]]()
    for model in configuration.models_of(args.names or ["all"]):
        row, found = plan(graph, model, of_preset(configuration.model(model).resources.gpus), gpu)
        rows.append(row)
        said += [(model, note) for note in found]
    if args.tsv:
        columns = [*COLUMNS, "measured"]
        lines = [columns, *([row[name] for name in columns] for row in rows)]
        csv.writer(sys.stdout, delimiter="\t", lineterminator="\n").writerows(lines)
        return
    machine = f"GPU: {gpu} (--gpu names another), {(peak_of(gpu) or 0) / 1e12:,.0f} TFLOP/s in bf16."
    if not any(row["GPUs"] for row in rows):
        machine = "No GPU: hours of this machine's processor (--gpu names a GPU, --profile uses those of a cluster)."
        if (load := os.getloadavg()[0]) > cores():
            machine += f"\nThis machine is busy (load {load:.1f} on {plural(cores(), 'core')}): it will take longer."
    print(*table(rows), machine, HOW_FAR_OFF, *said_once(said), sep="\n")
