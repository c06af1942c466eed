"""Show what training will cost, before any job is submitted.

    babelmill plan                                 # for the configuration's targets
    babelmill plan tier1 --profile profiles/slurm  # for a group, on the GPUs of a cluster
    babelmill plan eng --gpu A100 --gpus 4

Steps are computed as in training, from the tokens of the shards; before there are any, tokens are estimated, and the
column `from` says from what. Hours are floating-point operations divided by a speed: that of trainings of half to twice
the size in this folder, else an assumed one, which has a question mark. On a machine without GPUs they are those of its
processor. Memory is calculated: 20 bytes a parameter (16 without an average of the weights), and what
forward passes keep. (Training all of 8 billion parameters took up to 8 % more, adapters up to 20 % less.)

Tokens are counted in shards, else estimated from bytes of text. Nothing here imports torch, except for models of
transformers, which are counted by making them without weights.
"""

import argparse
import os
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from babelmill.commands.progress import metrics
from babelmill.config import loading, schema
from babelmill.config.inputs import bytes_per_word, few_documents
from babelmill.config.languages import TIER_BYTES, WORD, budget_bytes
from babelmill.config.models import BYTES_PER_PARAMETER, SHAPE, Size, lacks_config, size_of, with_our_names
from babelmill.config.resolve import ResolvedModel, is_folder
from babelmill.config.snapshots import missing_points, say_missing
from babelmill.core import manifest
from babelmill.core.files import UserError, read_object
from babelmill.core.formats import split_name
from babelmill.core.local_sources import files_of
from babelmill.core.words import aligned, plural, said_once, short, tenths
from babelmill.graph import Graph
from babelmill.release.elsewhere import llada
from babelmill.runtime.cost import fast_in_bf16, flops, has_gpu, peak_of, precision_of
from babelmill.stages import TrainStage
from babelmill.training.plan import schedule
from babelmill.training.plan.objectives import objective_of

BYTES_PER_TOKEN = 4.2  # in English, for 8,192 to 32,768 entries; in other languages, multiplied by the byte premium
BYTES_PER_DESCRIPTION = 60  # bytes of a row of labelled text, with its codes
PACKED = 3  # bytes of text per byte of a compressed file or of Parquet
BUILTIN_BYTES = 2.26e6  # size of `python-docs` in Python 3.11
CORE = 25e9  # FLOP/s of a core of a processor in fp32: assumed until a training has finished here
LIBRARIES = 0.6  # GiB that the libraries of a process without a GPU take
FEW = 20  # documents of the validation text, below which a note says so
ASSUMED_GPU = "H100"
HOW_FAR_OFF = """\
Tokens are off by a fifth or more, unless they are from `shards`. Hours are those of training, without validations.
Export and evaluation come on top: for a tiny model, they take longer than its training. A speed with a ? is assumed,
until a training of about this size has finished here: the hours are then right within a factor of two or three."""
SUMS = ("tokens", "FLOPs", "hours", "GPU-hours")  # columns of the total


class Text(NamedTuple):
    """The text that a model learns."""

    tokens: float  # for a label model, each description counts as a whole row, as it does in training
    words_per_token: float  # languages count by their share of the training
    source: str  # what the tokens are counted on (`shards`) or estimated from
    validation: float  # the fewest documents that a language has for validation; infinite before there are corpora


def plan(graph: Graph, model: str, gpus: int, gpu: str) -> tuple[dict[str, Any], list[str]]:
    """Return the row of a model in the plan, and what cannot work or will be missing."""
    resolved = graph.configuration.model(model)
    precision = precision_of(resolved.train.precision, gpus > 0 or fast_in_bf16())
    train = resolved.train.model_copy(update={"precision": precision})
    text, size, objective = text_of(graph, model), size_of_model(graph, model), objective_of(train)
    lengths, rows = schedule.whole_run(train, int(text.tokens), text.words_per_token, objective.smallest_batch)
    steps, tokens = len(rows), float((lengths * rows).sum())
    targets = lengths * rows * objective.target_share(objective.mask_rate(np.arange(steps), steps))
    work = float(flops(size, lengths, lengths * rows, targets).sum())
    rate, measured = speed_of(size, train, work / tokens / size.parameters, gpus > 0)
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
        "GiB": memory(resolved, size, train, gpus),
        "speed": rate,
        "measured": measured,
        "hours": work / rate / 3600,
        "GPU-hours": work / rate / 3600 * gpus,
        "training": graph.result("train", model).path,
    }
    notes, words = list[str](), tokens * text.words_per_token / 1e6
    if text.tokens < train.global_batch_tokens:
        notes.append(f"train.global_batch_tokens = {train.global_batch_tokens:,} is more than its whole text.")
    if text.validation < FEW:
        notes.append(f"only {plural(int(text.validation), 'document')} for validation: raise corpus.validation_share.")
    notes.append(say_missing(missing_points(resolved.run.snapshots, words), words, "about "))
    return row, [*filter(None, notes)]


# Tokens.


def made(graph: Graph, stage: str, name: str, part: str = "") -> dict[str, Any] | None:
    """Return the manifest of a result; None if it is not there."""
    result = graph.result(stage, name, part)
    return manifest.read(result.record) if result.is_there else None


def text_of(graph: Graph, model: str) -> Text:
    """Return what is known about the training text of a model."""
    resolved = graph.configuration.model(model)
    per_word = bytes_per_word(resolved)
    row = resolved.train.sequence_lengths[0] if resolved.learns_labels else None
    tokens, words, sources, validation = list[float](), list[float](), set[str](), float("inf")
    for code in resolved.languages:
        premium = graph.configuration.language(code).byte_premium
        if about := made(graph, "shards", model, code) or made(graph, "corpus", code):
            figures, source = about["figures"], about["stage"]
        else:
            size, source = bytes_of_text(graph, code)
            documents = {"train": size / (BYTES_PER_DESCRIPTION * premium), "validation": float("inf")}
            figures = {"bytes": {"train": size}, "documents": documents}
        size, documents = figures["bytes"]["train"], figures["documents"]
        of_text = figures["tokens"]["train"] if "tokens" in figures else size / (BYTES_PER_TOKEN * premium)
        tokens.append(documents["train"] * row if row else of_text)
        counted = "words" in figures and code not in per_word
        words.append(figures["words"]["train"] if counted else size / per_word.get(code, WORD * premium))
        validation = min(validation, documents["validation"])
        sources.add(source)
    if not all(tokens):
        raise UserError(f"{model}: its text is empty, so there is nothing to train on; set corpus.files")
    shares = schedule.proportions(list(map(int, tokens)), float(resolved.mixture.weights))
    rate = float(shares @ (np.array(words) / np.array(tokens))) / shares.sum()
    return Text(sum(tokens), rate, "+".join(sorted(sources)), validation)


def bytes_of_text(graph: Graph, code: str) -> tuple[float, str]:
    """Return the bytes of a language's training text before its corpus is made, and what they are estimated from.

    Of another dataset than the default one, nothing is known before it is fetched: then as much as the language's tier
    has is a `guess`.
    """
    language, resolved = graph.configuration.language(code), graph.configuration.corpus(code)
    corpus, size = resolved.corpus, TIER_BYTES[language.tier] * language.byte_premium
    source = f"tier {language.tier}" if corpus.hub == graph.configuration.defaults["corpus"]["hub"] else "guess"
    if corpus.files:
        label = f"{resolved.origins['corpus.files']}: corpus file"
        paths = {path for pattern in corpus.files for path in files_of(pattern, label, corpus.format)}
        size, source = sum(unpacked(path, os.path.getsize(path)) for path in paths), "files"
    elif corpus.builtin:
        size, source = BUILTIN_BYTES, "files"
    elif fetched := made(graph, "download", code):
        size, source = sum(unpacked(name, entry["bytes"]) for name, entry in fetched["files"].items()), "download"
    if corpus.budget and ((wanted := budget_bytes(corpus.budget, language.byte_premium)) < size or source == "guess"):
        size, source = wanted, "budget"
    return size * (1 if corpus.validation_files else 1 - corpus.validation_share), source


def unpacked(path: str, size: int) -> float:
    """Return the approximate bytes of text in a file of `size` bytes; a compressed file holds more than its size."""
    suffix, compression = split_name(path)
    return size * (PACKED if compression is not None or suffix == ".parquet" else 1)


# Parameters, speed and memory.


def size_of_model(graph: Graph, model: str) -> Size:
    """Return the size that a model will have: by its settings, or by the config.json of the model that it continues."""
    resolved = graph.configuration.model(model)
    first = resolved.chain()[-1]
    config = config_of_source(graph, first) if first.model.source else None
    if resolved.model.architecture not in schema.OURS:
        from babelmill.training.networks.transformers_models import planned  # imports transformers, which takes seconds

        return planned(first.model, resolved.train, first.tokenizer.vocab_size, config)
    if not config:
        return size_of(resolved.model, first.tokenizer.vocab_size)
    try:
        values = with_our_names(config)
        shape = {key: values[key] for key in SHAPE if key in (*SHAPE[:4], *values)}
        return size_of(schema.Model.model_validate(resolved.model.model_dump() | shape), values["vocab_size"])
    except (KeyError, ValueError):
        where = f"{first.name}: model.source = {first.model.source!r}"
        raise UserError(f"{where}: its config.json is of another model") from None


def config_of_source(graph: Graph, resolved: ResolvedModel) -> dict[str, Any]:
    """Return the config.json of a folder or repository that a model continues. Of a repository, it alone is fetched."""
    source, where = resolved.model.source or "", f"{resolved.origins['model.source']}: model.source"
    if made(graph, "base_model", resolved.name):
        path = graph.result("base_model", resolved.name).path / "config.json"
    elif is_folder(source):
        path = Path(source, "config.json")
        if not path.is_file():
            raise resolved.refused("model.source", lacks_config(path.parent))
    else:
        from babelmill.hub import client  # imports the Hub's client, which other plans do not need
        from babelmill.hub.files import of_source
        from babelmill.hub.sources import MODEL

        repository = {"repository": source, "revision": resolved.model.revision}
        client.WAITS = client.WAITS[:1]  # a user waits for the answer
        path = of_source(MODEL, repository).get(["config.json"])["config.json"]
    config = read_object(path, f"{where} = {source!r}: config.json")
    if config.get("architecture") == "transformers":  # the stage `base_model` wrote it
        config = config["config"]
    return llada.config_of(config, where) if config.get("model_type") == "llada" else config


def speed_of(size: Size, train: schema.Train, work: float, on_gpus: bool) -> tuple[float, bool]:
    """Return the share of the GPUs' peak, or the FLOP/s of the processor, and whether it was measured.

    It is the median of trainings of half to twice as many parameters, else assumed. `work`: the FLOPs per token and
    parameter.
    """
    rates = list[float]()
    for record in TrainStage.path_of("x").parent.glob(f"*/{manifest.NAME}"):
        figures = manifest.read(record)["figures"]
        if figures["precision"] != train.precision or not 0.5 <= figures["parameters"] / size.parameters <= 2:
            continue
        for line in metrics(record.parent)[1:]:
            if line["kind"] == "train" and on_gpus == bool(line["mfu"]):
                rates.append(line["mfu"] or line["tokens_per_second"] * figures["parameters"] * work)
    if rates:
        return statistics.median(rates), True
    if on_gpus:  # narrow models are bound by memory, not by arithmetic
        return 0.3 if size.hidden_size >= 768 else 0.15 if size.hidden_size >= 384 else 0.03, False
    return CORE * len(os.sched_getaffinity(0)), False


def memory(resolved: ResolvedModel, size: Size, train: schema.Train, gpus: int) -> float:
    """Return about how many GiB each GPU needs, or the process without one.

    Each GPU holds a whole GPT-BERT, and its part of the states of a transformers model (FSDP2). With adapters, only
    these have states, beside the frozen weights in bf16. Forward passes keep about 34 H + 14 I + 4 heads T bytes per
    token and layer in bf16, or 8 H if layers compute them again; and the scores that exist at once, in fp32.
    """
    objective = objective_of(train)
    each = BYTES_PER_PARAMETER if train.averages else BYTES_PER_PARAMETER - 4
    states = each * train.lora_rank * size.adapter + 2 * size.parameters if size.frozen else each * size.parameters
    states /= max(1, gpus) if resolved.model.architecture == "transformers" else 1
    whole = resolved.model.architecture == "transformers"
    tokens = schedule.whole_tokens(train) if whole else schedule.micro_batch_tokens(resolved.run, gpus > 0)
    width, layers, heads = size.hidden_size, size.num_hidden_layers, size.num_attention_heads
    layer = 34 * width + 14 * size.intermediate_size + 4 * heads * max(train.sequence_lengths)
    kept = 8 * width * layers + layer if train.activation_checkpointing else layer * layers
    scores = tokens * objective.target_share(objective.mask_rate(0, 1)) * size.output / width
    passes = (tokens * kept + 12 * min(schedule.CHUNK[not gpus], scores)) * (1 if train.precision == "bf16" else 2)
    return (states + passes) / 2**30 + (0 if gpus else LIBRARIES)


# The command.


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
    parser.add_argument("names", nargs="*", metavar="NAME", help="a model or a group (default: the targets)")
    loading.add_arguments(parser)
    parser.add_argument("--gpu", help=f"assume this GPU (default: gpu_model of the profile, or {ASSUMED_GPU})")
    parser.add_argument("--gpus", type=int, metavar="N", help="assume N GPUs per job; 0: the processor")


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
    machine = f"GPU: {gpu} (--gpu names another), {(peak_of(gpu) or 0) / 1e12:,.0f} TFLOP/s in bf16."
    if not any(row["GPUs"] for row in rows):
        machine = "No GPU: hours of this machine's processor (--gpu names a GPU, --profile uses those of a cluster)."
    said = [(row["model"], note) for row, of_row in found for note in of_row]
    languages = dict.fromkeys(code for model in models for code in configuration.languages_of(model))
    said += [(code, note) for code in languages if (note := few_documents(configuration.corpus(code)))]
    print(*table(rows), machine, HOW_FAR_OFF, *said_once(said), sep="\n")
