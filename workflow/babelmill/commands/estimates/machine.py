"""Describe the machine that `babelmill plan` assumes: the GPUs of a training job and their speed, or the processor.

Without GPUs, this machine's processor trains. Its speed is the speed that finished or running trainings of the same
shape reached here. Before there is such a training, a matrix product gives an estimate of the speed if nothing
else runs, which is right within a factor of two or three. This module does not import torch.
"""

import contextlib
import functools
import glob
import os
import platform
import statistics
import timeit
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from babelmill.commands.estimates.shape import sized, with_shape
from babelmill.commands.progress.logs import metrics
from babelmill.config import loading, schema
from babelmill.config.resolve import Configuration
from babelmill.core import manifest
from babelmill.core.files import UserError, canonical_json, read_json
from babelmill.core.words import plural
from babelmill.graph import CHECKPOINTS
from babelmill.runtime.cost import fast_in_bf16, flops, peak_of, precision_of
from babelmill.runtime.record import SOURCE
from babelmill.settings import recorded
from babelmill.stages import STAGES, TrainStage
from babelmill.training.plan.objectives import objective_of

ASSUMED_GPU = "H100"
# The assumed speed of training on a CPU, relative to that of a small matrix product, until it is measured. On one core,
# hidden sizes of 64, 128, 256, 384 and 768 reached 0.35, 0.45, 0.67, 0.74 and 0.82 of it; several cores reach less.
SHARE_OF_PRODUCT = 0.4
SIDE, PRODUCTS = 64, 2000  # matrices of so many rows and columns, and how many products of them are measured
QUOTA = Path("/sys/fs/cgroup/cpu.max")
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
            settings = recorded(run["settings"], TrainStage, path)
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


def busy() -> str:
    """Return a note if other programs keep this machine's cores busy; "" otherwise."""
    load = os.getloadavg()[0]
    if load <= cores():
        return ""
    return f"This machine is busy (load {load:.1f} on {plural(cores(), 'core')}): training beside that takes longer."


@functools.cache
def assumed_speed() -> float:
    """Return the FLOP/s to assume for this machine's processor: a share of those of products of fp32 matrices.

    The products are so small that each is computed by one core, in microseconds: the fastest of many is one that no
    other program disturbed.
    """
    matrix = np.ones((SIDE, SIDE), np.float32)
    result = np.empty_like(matrix)
    best = min(timeit.repeat(lambda: np.matmul(matrix, matrix, out=result), number=1, repeat=PRODUCTS))
    return SHARE_OF_PRODUCT * cores() * 2 * SIDE**3 / best
