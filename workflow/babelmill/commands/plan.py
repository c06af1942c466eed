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

from babelmill.commands.estimates import plan
from babelmill.config import loading
from babelmill.config.inputs import few_documents
from babelmill.core.files import UserError
from babelmill.core.words import aligned, plural, said_once, short, tenths
from babelmill.graph import Graph
from babelmill.runtime.cost import has_gpu, peak_of

ASSUMED_GPU = "H100"
HOW_FAR_OFF = """\
Tokens are off by a fifth or more, unless they are from `shards`. Hours are those of training, without validations.
A speed with a ? is assumed, until a training of about this size has finished here: the hours are then right within a
factor of two or three, and GiB are calculated."""
SUMS = ("tokens", "FLOPs", "hours", "GPU-hours")  # columns of the total


def speed(rate: float) -> str:
    """Return a speed in FLOP/s as text."""
    return f"{rate / 1e12:,.0f} TFLOP/s" if rate >= 1e12 else f"{rate / 1e9:,.0f} GFLOP/s"


COLUMNS: dict[str, Callable[[Any], str]] = {  # how the table shows each
    **{"model": str, "parameters": short, "tokens": short, "from": str, "epochs": tenths, "steps": "{:,}".format},
    **{"FLOPs": "{:.1e}".format, "GPUs": str, "GiB": tenths, "speed": speed, "hours": tenths, "GPU-hours": tenths},
}


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
    if (args.gpus or 0) < 0:
        raise UserError(f"--gpus {args.gpus}: expected a number of GPUs; 0 means no GPU")
    if args.gpus is not None:
        return gpu or ASSUMED_GPU, lambda asked: args.gpus
    return gpu or ASSUMED_GPU, lambda asked: min(int(of_job.get("gpu", asked)), limit)


def run(args: argparse.Namespace) -> None:
    """Print what the training of models will cost: tokens, steps, parameters, FLOPs, memory, hours."""
    graph = Graph(configuration := loading.from_arguments(args))
    gpu, of_preset = gpus_for(args)
    models = list(filter(configuration.is_trained, configuration.models_of(args.names or ["all"])))
    found = [plan(graph, model, of_preset(configuration.model(model).resources.gpus), gpu) for model in models]
    rows = [row for row, _ in found]
    if args.tsv:
        columns = [*COLUMNS, "measured"]
        lines = [columns, *([row[name] for name in columns] for row in rows)]
        csv.writer(sys.stdout, delimiter="\t", lineterminator="\n").writerows(lines)
        return
    machine = f"GPU: {gpu} (--gpu names another), {(peak_of(gpu) or 0) / 1e12:,.0f} TFLOP/s in bf16."
    if not any(row["GPUs"] for row in rows):
        machine = "No GPU: hours of this machine's processor (--gpu names a GPU, --profile uses those of a cluster)."
        if (load := os.getloadavg()[0]) > (cores := len(os.sched_getaffinity(0))):
            machine += f"\nThis machine is busy (load {load:.1f} on {plural(cores, 'core')}): it will take longer."
    said = [(row["model"], note) for row, of_row in found for note in of_row]
    languages = dict.fromkeys(code for model in models for code in configuration.languages_of(model))
    said += [(code, note) for code in languages if (note := few_documents(configuration.corpus(code)))]
    notes = said_once(said)
    print(*table(rows), machine, HOW_FAR_OFF, *notes, sep="\n")
