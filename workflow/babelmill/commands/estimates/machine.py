"""Describe the machine that `babelmill plan` assumes: the GPUs of a training job and their speed, or the processor.

Without GPUs, this machine's processor trains. Its speed is the speed that finished or running trainings of the same
shape reached here. Before there is such a training, a matrix product of the model's size gives an estimate, which is
right within a factor of two. This module does not import torch.
"""

import functools
import glob
import json
import platform
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from babelmill.commands.status import tail
from babelmill.config import loading, schema
from babelmill.config.model_size import Counted
from babelmill.config.model_source import SHAPE
from babelmill.config.resolve import Configuration
from babelmill.config.stage_settings import TrainSettings
from babelmill.core import manifest
from babelmill.core.files import UserError, canonical_json, read_json
from babelmill.runtime.cost import flops, peak_of
from babelmill.runtime.record import SOURCE
from babelmill.settings import recorded
from babelmill.stages import STAGES
from babelmill.training.plan.objectives import objective_of

Shape = tuple[Any, ...]  # see `shape`
SHARE_OF_PRODUCT = 0.4  # assumed speed of training on a CPU, relative to that of a matrix product, until it is measured
PATIENCE = 0.2  # seconds for measuring a matrix product
DRIVERS = ("/dev/nvidia[0-9]*", "/dev/kfd")  # device files of NVIDIA's and AMD's drivers


@dataclass(frozen=True)
class Measured:
    """The speed and the memory that trainings of one shape reached.

    Attributes:
        rate: share of the GPUs' peak, or FLOP/s of this machine's processor.
        memory: peak memory in MiB.
    """

    rate: float
    memory: float


@functools.cache
def profile_resources(profile: str | None) -> dict[str, Any]:
    """Return a profile's resources for training jobs (`gpu`, `gpu_model`, `nodes`, `gres`), with two more keys.

    `limit` is the number of all GPUs, if the profile sets one; `here` says whether jobs run on this machine.
    """
    if profile is None:
        return {"here": True}
    values = loading.read_profile(profile)
    for key in ("default-resources", "set-resources", "resources"):
        if not isinstance(values.get(key) or {}, dict):
            raise UserError(f"{profile}: {key} is expected to be a mapping from names to values")
    resources = {**(values.get("default-resources") or {}), **((values.get("set-resources") or {}).get("train") or {})}
    limit = (values.get("resources") or {}).get("gpu")
    return {**resources, "limit": limit, "here": values.get("executor", "local") == "local"}


def has_gpu() -> bool:
    """Return whether a GPU driver is loaded on this machine."""
    return any(glob.glob(pattern) for pattern in DRIVERS)


def gpu_here() -> str | None:
    """Return the name that the driver reports for this machine's NVIDIA GPUs; None if no GPU has a known peak."""
    for path in sorted(glob.glob("/proc/driver/nvidia/gpus/*/information")):
        for line in Path(path).read_text(encoding="utf-8").splitlines():
            key, _, name = line.partition(":")
            if key == "Model" and peak_of(name.strip()):
                return name.strip()
    return None


def gpus_of(configuration: Configuration, model: str, resources: dict[str, Any]) -> int:
    """Return the number of GPUs of a model's training job, over all its nodes."""
    gres = str(resources.get("gres", "")).split(":")
    if gres[0] == "gpu":
        return int(resources.get("nodes", 1)) * int(gres[-1])
    gpus = resources.get("gpu", configuration.model(model).resources.gpus)
    return min(int(gpus), resources["limit"] if resources.get("limit") is not None else int(gpus))


@functools.cache
def measured(on_gpus: bool) -> dict[Shape, Measured]:
    """Return {shape: what trainings in this folder reached}, on GPUs or on this machine's processor."""
    found: dict[Shape, list[Measured]] = {}
    for identity in Path("results/checkpoints").glob("*/*/identity.json"):
        try:
            run = read_json(identity)
            settings = recorded(run["settings"], TrainSettings, identity)
            model = with_shape(settings.model, run["data"].get(SOURCE, {}).get("shape"))
            if model.architecture == "transformers" and not model.config:
                continue  # it started from another model, whose configuration is not in the run's record
            vocab_size = 0 if on_gpus else vocab_size_here(identity.parent)
        except (UserError, KeyError, TypeError):  # a run of a version with other settings, or of another machine
            continue
        for line in tail(identity.parent / "metrics.jsonl")[1:]:
            entry = json.loads(line) if line.endswith("}") else {}
            if entry.get("kind") != "train":
                continue
            rate = entry["mfu"] if on_gpus else floating_point_speed(entry, model, settings.train, vocab_size)
            if rate:
                reached = Measured(rate, entry["memory"])
                found.setdefault(shape(model, settings.train), []).append(reached)
    return {
        key: Measured(statistics.median(each.rate for each in values), max(each.memory for each in values))
        for key, values in found.items()
    }


def vocab_size_here(folder: Path) -> int:
    """Return the vocabulary size of the model in a run's folder. Raise a UserError if another device trained it."""
    attempt = read_json(folder / "attempt.json")
    if (attempt.get("host"), attempt.get("device")) != (platform.node(), "cpu"):
        raise UserError(f"{folder}: was trained on another device")
    return manifest.read(STAGES["tokenizer"].path(folder.parent.name, ""))["figures"]["vocab_size"]


def with_shape(model: schema.Model, config: dict[str, Any] | None) -> schema.Model:
    """Return the settings of a model with the shape in `config`, the config.json of the model that it starts from."""
    if config is None:
        return model
    return model.model_copy(update={key: config[key] for key in SHAPE if key in config})


def sized(model: schema.Model, train: schema.Train, vocab_size: int) -> schema.Model | Counted:
    """Return what costs are computed from: a GPT-BERT's settings, or the counted sizes of a model of transformers."""
    if model.architecture == "gpt_bert":
        return model
    return _counted(canonical_json(model.model_dump()), canonical_json(train.model_dump()), vocab_size)


@functools.cache
def _counted(model: str, train: str, vocab_size: int) -> Counted:
    from babelmill.training.networks.transformers_size import planned  # imports transformers, which takes seconds

    sections = schema.Model.model_validate_json(model), schema.Train.model_validate_json(train)
    return planned(*sections, vocab_size)


def floating_point_speed(line: dict[str, Any], model: schema.Model, train: schema.Train, vocab_size: int) -> float:
    """Return the FLOP/s of a line of a run's metrics."""
    size = sized(model, train, vocab_size)
    targets = objective_of(train).target_share(line["mask_rate"])
    return line["tokens_per_second"] * flops(size, vocab_size, line["sequence_length"], 1.0, targets)


def speed_of(model: schema.Model, train: schema.Train, vocab_size: int) -> tuple[float, bool]:
    """Return the FLOP/s at which this machine's processor trains a model, and whether a training measured it."""
    if known := measured(on_gpus=False).get(shape(model, train)):
        return known.rate, True
    size = sized(model, train, vocab_size)
    return SHARE_OF_PRODUCT * product_speed(size.hidden_size, size.intermediate_size), False


@functools.cache
def product_speed(size: int, inner: int) -> float:
    """Measure the FLOP/s of a product of fp32 matrices with a feed-forward layer's sizes."""
    rows = 1024
    left, right = np.ones((rows, size), np.float32), np.ones((size, inner), np.float32)
    best, end = np.inf, time.perf_counter() + PATIENCE
    while best == np.inf or time.perf_counter() < end:
        began = time.perf_counter()
        np.matmul(left, right)
        best = min(best, time.perf_counter() - began)
    return 2 * rows * size * inner / best


def shape(model: schema.Model, train: schema.Train) -> Shape:
    """Return the settings that utilisation and memory depend on."""
    sizes = canonical_json(model.model_dump(exclude={"source", "revision"}))
    return sizes, train.micro_batch_tokens, train.precision, train.activation_checkpointing, train.lora_rank


def assumed_mfu(hidden_size: int) -> float:
    """Return the utilisation to assume until one is measured: narrow models are bound by memory, not by arithmetic."""
    return 0.3 if hidden_size >= 768 else 0.15 if hidden_size >= 384 else 0.03
