"""Describe the machine that `babelmill plan` assumes: the GPUs of a training job and their speed, or the processor.

Without GPUs, this machine's processor trains. Its speed is the speed that finished or running trainings of the same
shape reached here. Before there is such a training, a matrix product of the model's size gives an estimate, which is
right within a factor of two. This module does not import torch.
"""

import functools
import glob
import platform
import statistics
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from babelmill.commands.estimates.shape import sized, with_shape
from babelmill.commands.progress.logs import metrics
from babelmill.config import loading, schema
from babelmill.config.resolve import Configuration
from babelmill.config.stage_settings import TrainSettings
from babelmill.core import manifest
from babelmill.core.files import UserError, canonical_json, read_json
from babelmill.graph import CHECKPOINTS
from babelmill.runtime.cost import fast_in_bf16, flops, peak_of, precision_of
from babelmill.runtime.record import SOURCE
from babelmill.settings import recorded
from babelmill.stages import STAGES
from babelmill.training.plan.objectives import objective_of

ASSUMED_GPU = "H100"
SHARE_OF_PRODUCT = 0.4  # assumed speed of training on a CPU, relative to that of a matrix product, until it is measured
PATIENCE = 0.2  # seconds for measuring a matrix product
SpeedKey = tuple[Any, ...]  # see `speed_key`
DRIVERS = ("/dev/nvidia[0-9]*", "/dev/kfd")  # device files of NVIDIA's and AMD's drivers


def known_peak(gpu: str, origin: str = "") -> float:
    """Return the peak of a GPU in FLOP/s. Raise a UserError, which begins with `origin`, if it is not known."""
    peak = peak_of(gpu)
    if peak is None:
        raise UserError(f"{origin}{gpu}: its peak is not known; name a similar GPU with --gpu, such as A100 or L40S")
    return peak


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
    gpus = int(resources.get("gpu", configuration.model(model).resources.gpus))
    return gpus if resources.get("limit") is None else min(gpus, resources["limit"])


@dataclass(frozen=True)
class Measured:
    """The speed and the memory that trainings of one shape reached."""

    rate: float  # share of the GPUs' peak, or FLOP/s of this machine's processor
    memory: float  # peak memory in MiB


@functools.cache
def measured(on_gpus: bool) -> dict[SpeedKey, Measured]:
    """Return {key: what trainings in this folder reached}, on GPUs or on this machine's processor; see `speed_key`."""
    rates, memory = defaultdict[SpeedKey, list[float]](list), defaultdict[SpeedKey, float](float)
    for path in CHECKPOINTS.glob("*/*/identity.json"):
        try:
            run = read_json(path)
            settings = recorded(run["settings"], TrainSettings, path)
            attempt = read_json(path.with_name("attempt.json"))
            train = settings.train.model_copy(update={"precision": attempt["precision"]})
            model = with_shape(settings.model, run["data"].get(SOURCE, {}).get("shape") or {})
            if model.architecture == "transformers" and not model.config:
                continue  # it started from another model, whose configuration is not in the run's record
            size, vocab_size = None, 0
            if not on_gpus:
                if (attempt.get("host"), attempt.get("device")) != (platform.node(), "cpu"):
                    continue
                tokenizer = STAGES["tokenizer"].path(path.parents[1].name, "")
                vocab_size = manifest.read(tokenizer)["figures"]["vocab_size"]
                size = sized(model, train, vocab_size)
        except (UserError, KeyError, TypeError):  # a run of a version with other settings, or an incomplete one
            continue
        for line in metrics(path.parent)[1:]:
            if line["kind"] != "train":
                continue
            rate = line["mfu"]
            if size is not None:
                targets = objective_of(train).target_share(line["mask_rate"])
                of_token = flops(size, vocab_size, line["sequence_length"], 1.0, targets)
                rate = line["tokens_per_second"] * of_token
            if rate:
                key = speed_key(model, train)
                rates[key].append(rate)
                memory[key] = max(memory[key], line["memory"])
    return {key: Measured(statistics.median(values), memory[key]) for key, values in rates.items()}


def speed_key(model: schema.Model, train: schema.Train) -> SpeedKey:
    """Return the settings that utilisation and memory depend on."""
    sizes = canonical_json(model.model_dump(exclude={"source", "revision"}))
    return sizes, train.micro_batch_tokens, train.precision, train.activation_checkpointing, train.lora_rank


def as_trained(train: schema.Train, on_gpus: bool) -> schema.Train:
    """Return the settings with the precision of a training on GPUs, or on this machine's processor."""
    return train.model_copy(update={"precision": precision_of(train.precision, on_gpus or fast_in_bf16())})


def assumed_mfu(hidden_size: int) -> float:
    """Return the utilisation to assume until one is measured: narrow models are bound by memory, not by arithmetic."""
    return 0.3 if hidden_size >= 768 else 0.15 if hidden_size >= 384 else 0.03


@functools.cache
def assumed_speed(hidden_size: int, intermediate_size: int) -> float:
    """Return the FLOP/s to assume for this machine's processor: a share of those of a product of fp32 matrices."""
    rows = 1024
    left, right = np.ones((rows, hidden_size), np.float32), np.ones((hidden_size, intermediate_size), np.float32)
    best, end = np.inf, time.perf_counter() + PATIENCE
    while best == np.inf or time.perf_counter() < end:
        began = time.perf_counter()
        np.matmul(left, right)
        best = min(best, time.perf_counter() - began)
    return SHARE_OF_PRODUCT * 2 * rows * hidden_size * intermediate_size / best
