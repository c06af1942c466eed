"""Estimate what a training reads, how large its model is, and how fast it will be: what `babelmill plan` rests on.

Tokens are counted in shards, else estimated from bytes of text. Speed and memory are what finished trainings of this
folder reached with models of about the same size, else assumed. Nothing here imports torch, except for models of
transformers, which are counted by making them without weights.
"""

import contextlib
import functools
import os
import statistics
import timeit
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil

from babelmill.commands.progress.logs import metrics
from babelmill.config import schema
from babelmill.config.inputs import bytes_per_word, hub_model
from babelmill.config.languages import TIER_BYTES, WORD, budget_bytes
from babelmill.config.model_size import Size, size_of
from babelmill.config.model_source import SHAPE, ModelSource, lacks_config, with_our_names
from babelmill.core import manifest
from babelmill.core.files import UserError, read_object
from babelmill.core.formats import split_name
from babelmill.core.local_sources import files_of
from babelmill.graph import Graph
from babelmill.release.elsewhere import llada
from babelmill.runtime.cost import slowdown
from babelmill.stages import TrainStage
from babelmill.training.plan.schedule import proportions

BYTES_PER_TOKEN = 4.2  # in English, for 8,192 to 32,768 entries; in other languages, multiplied by the byte premium
BYTES_PER_DESCRIPTION = 60  # bytes of a row of labelled text, with its codes
PACKED = 3  # bytes of text per byte of a compressed file or of Parquet
BUILTIN_BYTES = 2.26e6  # size of `python-docs` in Python 3.11
# The assumed speed of training on a CPU, relative to that of small matrix products, until it is measured. On one core,
# hidden sizes of 64, 128, 256, 384 and 768 reached 0.35, 0.45, 0.67, 0.74 and 0.82 of it; several cores reach less.
SHARE_OF_PRODUCT = 0.4
SIDE, PRODUCTS = 64, 2000  # matrices of so many rows and columns, and how many products of them are measured
QUOTA = Path("/sys/fs/cgroup/cpu.max")


def made(graph: Graph, stage: str, name: str, part: str = "") -> dict[str, Any] | None:
    """Return the manifest of a result; None if it is not there."""
    result = graph.result(stage, name, part)
    return manifest.read(result.record) if result.is_there else None


def trainings() -> list[Path]:
    """Return the folders of all finished trainings, with their manifests and metrics."""
    return [path.parent for path in TrainStage.path_of("x").parent.glob(f"*/{manifest.NAME}")]


class Text(NamedTuple):
    """The text that a model learns."""

    tokens: float  # for a label model, each description counts as a whole row, as it does in training
    words_per_token: float  # languages count by their share of the training
    source: str  # what the tokens are counted on (`shards`) or estimated from
    validation: float  # the fewest documents that a language has for validation; infinite before there are corpora


def text_of(graph: Graph, model: str) -> Text:
    """Return what is known about the training text of a model."""
    configuration = graph.configuration
    resolved, per_word = configuration.model(model), bytes_per_word(configuration, model)
    row = resolved.train.sequence_lengths[0] if resolved.train.objective == "labels" else None
    tokens, words, sources, validation = list[float](), list[float](), set[str](), float("inf")
    for code in resolved.languages:
        premium = configuration.language(code).byte_premium
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
    shares = proportions(list(map(int, tokens)), float(resolved.mixture.weights))
    rate = float(shares @ (np.array(words) / np.array(tokens))) / shares.sum()
    return Text(sum(tokens), rate, "+".join(sorted(sources)), validation)


def bytes_of_text(graph: Graph, code: str) -> tuple[float, str]:
    """Return the bytes of a language's training text before its corpus is made, and what they are estimated from.

    Of another dataset than the default one, nothing is known before it is fetched: then as much as the language's tier
    has is a `guess`.
    """
    configuration = graph.configuration
    language, resolved = configuration.language(code), configuration.corpus(code)
    corpus, size = resolved.corpus, TIER_BYTES[language.tier] * language.byte_premium
    source = f"tier {language.tier}" if corpus.hub == configuration.defaults["corpus"]["hub"] else "guess"
    if corpus.files:
        label = f"{resolved.origins['corpus.files']}: corpus file"
        paths = {path for pattern in corpus.files for path in files_of(pattern, label, corpus.format)}
        size, source = sum(unpacked(path, os.path.getsize(path)) for path in paths), "files"
    elif corpus.builtin:
        size, source = BUILTIN_BYTES, "files"
    elif fetched := made(graph, "download", code):
        size, source = sum(unpacked(name, entry["bytes"]) for name, entry in fetched["files"].items()), "download"
    if corpus.budget:
        wanted = budget_bytes(corpus.budget, language.byte_premium)
        size, source = (wanted, "budget") if wanted < size or source == "guess" else (size, source)
    return size * (1 if corpus.validation_files else 1 - corpus.validation_share), source


def unpacked(path: str, size: int) -> float:
    """Return the approximate bytes of text in a file of `size` bytes; a compressed file holds more than its size."""
    suffix, compression = split_name(path)
    return size * (PACKED if compression is not None or suffix == ".parquet" else 1)


def size_of_model(graph: Graph, model: str) -> Size:
    """Return the size that a model will have: by its settings, or by the config.json of the model that it continues."""
    configuration = graph.configuration
    resolved, root = configuration.model(model), [model, *configuration.ancestors(model)][-1]
    first = configuration.model(root)
    config = config_of_source(graph, root, first.source) if first.source else None
    if resolved.model.architecture not in schema.OURS:
        from babelmill.training.networks.transformers_config import planned  # imports transformers, which takes seconds

        return planned(first.model, resolved.train, first.tokenizer.vocab_size, config)
    if not config:
        return size_of(resolved.model, first.tokenizer.vocab_size)
    try:
        values = with_our_names(config)
        shape = {key: values[key] for key in SHAPE if key in (*SHAPE[:4], *values)}
        return size_of(schema.Model.model_validate(resolved.model.model_dump() | shape), values["vocab_size"])
    except (KeyError, ValueError):
        raise UserError(f"{root}: model.source = {first.model.source!r}: its config.json is of another model") from None


def config_of_source(graph: Graph, model: str, source: ModelSource) -> dict[str, Any]:
    """Return the config.json of a folder or repository that a model continues. Of a repository, it alone is fetched."""
    configuration = graph.configuration
    where = f"{configuration.model(model).origins['model.source']}: model.source = {source.name!r}"
    if made(graph, "base_model", model):
        path = graph.result("base_model", model).path / "config.json"
    elif source.kind == "folder":
        path = Path(source.name, "config.json")
        if not path.is_file():
            raise UserError(f"{where}: {lacks_config(path.parent)}")
    else:
        from babelmill.hub import client  # imports the Hub's client, which other plans do not need
        from babelmill.hub.files import of_source
        from babelmill.hub.sources import MODEL

        client.WAITS = client.WAITS[:1]  # a user waits for the answer
        path = of_source(MODEL, hub_model(configuration, model) or {}).get(["config.json"])["config.json"]
    config = read_object(path, f"{where}: config.json")
    if config.get("architecture") == "transformers":  # the stage `base_model` wrote it
        config = config["config"]
    return llada.config_of(config, where) if config.get("model_type") == "llada" else config


def speed_of(size: Size, train: schema.Train, work: float, on_gpus: bool) -> tuple[float, float | None, bool]:
    """Return the share of the GPUs' peak, or the FLOP/s of the processor; the memory in GiB; and if it was measured.

    The speed is the median of trainings of half to twice as many parameters, else assumed. The memory is that of
    trainings of a model of the same size with equal micro-batches; None if there is none. `work`: the FLOPs per token
    and parameter.
    """
    rates, memory = list[float](), list[float]()
    for folder in trainings():
        about = manifest.read(folder)
        figures, theirs = about["figures"], about["settings"]["train"]
        if figures["precision"] != train.precision or not 0.5 <= figures["parameters"] / size.parameters <= 2:
            continue
        lines = [line for line in metrics(folder)[1:] if line["kind"] == "train" and on_gpus == bool(line["mfu"])]
        rates += [line["mfu"] or line["tokens_per_second"] * figures["parameters"] * work for line in lines]
        passes = theirs.get("micro_batch_tokens"), theirs.get("activation_checkpointing", False)
        # Models of transformers are split over GPUs, of which there may have been fewer.
        equal = not size.adapter and passes == (train.micro_batch_tokens, train.activation_checkpointing)
        memory += [line["memory"] / 1024 for line in lines if equal and figures["parameters"] == size.parameters]
    if rates:
        return statistics.median(rates), max(memory, default=None), True
    if on_gpus:  # narrow models are bound by memory, not by arithmetic
        return 0.3 if size.hidden_size >= 768 else 0.15 if size.hidden_size >= 384 else 0.03, None, False
    return speed_of_products() / slowdown(train.precision), None, False


@functools.cache
def speed_of_products() -> float:
    """Return the FLOP/s to assume for this machine's processor: a share of those of products of fp32 matrices.

    The products are so small that each is computed by one core, in microseconds: the fastest of many is one that no
    other program disturbed.
    """
    matrix = np.ones((SIDE, SIDE), np.float32)
    result = np.empty_like(matrix)
    best = min(timeit.repeat(lambda: np.matmul(matrix, matrix, out=result), number=1, repeat=PRODUCTS))
    return SHARE_OF_PRODUCT * cores() * 2 * SIDE**3 / best


def cores() -> int:
    """Return the number of cores that this process may use. Two threads of one core count once.

    A container may have a quota (of a control group, version 2), which the processors do not show.
    """
    threads = psutil.cpu_count() or 1
    allowed = len(os.sched_getaffinity(0)) * (psutil.cpu_count(logical=False) or threads) / threads
    with contextlib.suppress(OSError, ValueError):  # "max" in place of a number: no quota
        quota, period = map(int, QUOTA.read_text().split())
        allowed = min(allowed, quota / period)
    return max(1, round(allowed))
