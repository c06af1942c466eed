"""Calculate what the fine-tuning of models for tasks costs: rows, tokens, operations and hours, task by task.

Rows and their lengths are those that the stage `task` has written; a task that has not been read yet has no hours. A
batch is as long as its longest row, which is drawn as in training. Speeds are measured where the model was tuned
before: for the same task, else for other tasks. Otherwise a tuning is assumed to be as fast as the plan of the model's
training says on this machine's processor, and ten times slower on GPUs: it computes in fp32 with small batches.
"""

import functools
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from babelmill.commands.estimates.machine import known_peak
from babelmill.commands.estimates.shape import network_of, sized
from babelmill.commands.estimates.text_size import BYTES_PER_TOKEN
from babelmill.commands.estimates.training_cost import Cost
from babelmill.config.resolve import Configuration
from babelmill.config.schema import Tuning
from babelmill.config.tasks import languages_of_task, seeds_of_task, tasks_of_model
from babelmill.core import manifest
from babelmill.core.files import UserError
from babelmill.runtime.cost import flops, slowdown
from babelmill.stages import STAGES

OF_TRAINING = 0.1  # assumed speed of a tuning on a GPU, relative to a training in bf16, until it is measured


@dataclass
class TuningCost:
    """What it costs to fine-tune a model for a task with all its seeds."""

    model: str
    task: str
    jobs: int  # the number of seeds
    rows: int  # training rows, of all its languages; 0 if they are not known yet
    epochs: int  # passes over them, at most
    flops: float  # FLOPs of all jobs
    hours: float | None  # hours of all jobs, one after the other; None if the rows are not known yet
    source: str  # where the speed is from: "measured", "other tasks" or "assumed"


def tuning_costs(configuration: Configuration, cost: Cost, gpu: str) -> list[TuningCost]:
    """Return what fine-tuning a model costs, for each of its tasks; `cost`: the plan of its training."""
    model = cost.model
    tasks = tasks_of_model(configuration, model)
    sizes = {task: flops_of(configuration, model, task, configuration.tuning(task)) for task in tasks}
    speeds = {task: measured(configuration, model, task, on_gpu=cost.gpus > 0) for task in tasks}
    others = [speed for each in speeds.values() for speed in each]
    found = []
    for task, (rows, of_job) in sizes.items():
        jobs, epochs = len(seeds_of_task(configuration, model, task)), configuration.tuning(task).epochs
        if rows == 0:
            found.append(TuningCost(model, task, jobs, 0, epochs, 0.0, None, ""))
            continue
        known = speeds[task] or others
        source = "measured" if speeds[task] else "other tasks" if others else "assumed"
        precision = configuration.model(model).train.precision
        speed = statistics.median(known) if known else assumed(cost, gpu, precision)
        found.append(TuningCost(model, task, jobs, rows, epochs, jobs * of_job, jobs * of_job / speed / 3600, source))
    return found


def assumed(cost: Cost, gpu: str, precision: str) -> float:
    """Return the FLOP/s to assume for fine-tuning a model whose training has this precision."""
    of_training = (cost.flops_per_second or 0) * slowdown(precision)  # tunings compute in fp32
    return of_training or OF_TRAINING * (cost.mfu or 0) * known_peak(gpu)


def flops_of(configuration: Configuration, model: str, task: str, how: Tuning) -> tuple[int, float]:
    """Return the training rows of a task, and the FLOPs of fine-tuning a model for it with one seed; 0 if not known."""
    network = network_of(configuration, model)
    size = sized(network[0], configuration.model(model).train, network[1])
    splits: list[list[np.ndarray]] = []
    for code in languages_of_task(configuration, model, task):
        folder = STAGES["task"].path(code, task)
        try:
            if manifest.missing(folder):
                return 0, 0.0
        except UserError:  # a damaged manifest
            return 0, 0.0
        per_token = BYTES_PER_TOKEN * configuration.language(code).byte_premium
        splits.append([lengths(folder / f"{split}.parquet", per_token, how) for split in ("train", "test")])
    least = min(len(train) for train, _ in splits) if configuration.task(task).joint else None  # each gives as many
    rows, total = 0, 0.0
    for train, test in splits:
        train = train[:least]
        rows += len(train)
        kept = round(len(train) * (1 - how.held_out))
        judged = len(train) - kept if how.held_out else len(test)
        longest = in_batches(train[:kept], how)
        # Rows that are only read cost a third of those that are learnt from.
        tokens = how.epochs * (longest * kept + judged * test.mean() / 3) + len(test) * test.mean() / 3
        total += float(flops(size, network[1], int(longest), tokens, 0.0))
    return rows, total


def lengths(path: Path, bytes_per_token: float, how: Tuning) -> np.ndarray:
    """Return about how many tokens each row of a split has, as the protocol cuts or fills them: [rows]."""
    tokens = np.minimum(2 + bytes_of(path) / bytes_per_token, how.longest)
    return np.full_like(tokens, how.longest) if how.same_length else tokens


@functools.cache
def bytes_of(path: Path) -> np.ndarray:
    """Return the bytes of text of each row of a split: [rows]."""
    table = pq.ParquetFile(path).read()
    if "words" in table.column_names:
        return np.array([sum(len(word.encode()) + 1 for word in words) for words in table["words"].to_pylist()], float)
    table = table.select(["text", "pair"])
    rows = zip(*(table[name].to_pylist() for name in table.column_names), strict=True)
    return np.array([sum(len(text.encode()) for text in row if text) for row in rows], float)


def in_batches(tokens: np.ndarray, how: Tuning) -> float:
    """Return the mean length of the batches of rows, in tokens: that of the longest row of each."""
    whole = max(1, len(tokens) // how.batch) * min(how.batch, len(tokens))
    shuffled = np.random.default_rng(0).permutation(tokens)[:whole]
    return float(shuffled.reshape(-1, min(how.batch, len(tokens))).max(1).mean())


def measured(configuration: Configuration, model: str, task: str, on_gpu: bool) -> list[float]:
    """Return the FLOP/s of finished tunings of a model for a task, on GPUs or on processors."""
    found = []
    for path in STAGES["tune"].path(model, f"{task}.0").parent.glob(f"*/{manifest.NAME}"):
        try:
            about = manifest.read(path.parent)
            seconds, is_gpu = about["figures"]["seconds"], about["figures"]["device"] != "cpu"
            how = Tuning.model_validate(about["settings"]["tuning"] | {"seeds": [about["settings"]["seed"]]})
        except (UserError, KeyError, ValueError):  # a damaged result
            continue
        if is_gpu == on_gpu and (count := flops_of(configuration, model, task, how)[1]):
            found.append(count / max(seconds, 0.1))  # manifests have tenths of seconds
    return found


def by_task(costs: Iterable[TuningCost]) -> dict[str, list[TuningCost]]:
    """Return {task: its costs, one for each model}."""
    found: dict[str, list[TuningCost]] = {}
    for cost in costs:
        found.setdefault(cost.task, []).append(cost)
    return found
