"""Write what the folder of a training run says about the run: who it is, its attempts with their logs, its losses.

`identity.json` holds the settings and the data of the run. `attempt.json`
counts attempts: after two without progress, the run ends with an error. `logs/` has the log of each attempt, since
Snakemake deletes a rule's log before the next attempt. They stay as long as the folder, and are small: a run that SLURM
interrupts a hundred times writes as many lines of progress as one without interruptions, and a dozen more per attempt.

`metrics.jsonl` is the record, one JSON object per line. During training, it is in the run's folder, so that it stays
after a failed attempt. At the end it becomes a result of the stage. A resumed run first drops the lines after its
checkpoint, so the record has each logged step once.

The fields of a line are `step` (steps done), `kind` and those below. In training lines, they are means since the last
training line:
    loss, loss_masked, loss_causal  cross-entropy in nats per target; `loss` weighs the kinds of rows as the objective
                                    does; each objective names its kinds (here: masked and causal, of hybrid models)
    perplexity, accuracy            exp(loss); share of targets predicted right
    z_loss                          mean of logsumexp^2
    grad_norm                       before clipping
    learning_rate, mask_rate, sequence_length, rows, tokens (of the run so far), epoch
    tokens_per_second, mfu          over all processes; share of the GPUs' peak (null if the peak is not known)
    memory                          peak of the main process in MiB: the GPU's, or the process's without a GPU
    skipped                         steps skipped because of a non-finite gradient
and, if NVIDIA's driver reports them:
    gpu_utilization, gpu_memory, gpu_power, gpu_temperature
                                    of the main process's machine: mean of its GPUs in percent, highest in MiB, sum in
                                    W, highest in degrees Celsius
    energy                          of all GPUs since the last training line, with validations and checkpoints, in J
Validation lines have loss, loss_masked, loss_causal, perplexity and accuracy of the last weights, and the same for the
averaged weights, with the prefix `ema_`; and `targets`, the number of targets measured, in which samples of the
validation text differ (`run.validation_tokens`). Models of several languages also have
`languages`: the same losses for each.
"""

import json
import logging
import math
import os
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from babelmill.core import escape, manifest, modules
from babelmill.core.files import UserError, atomic_write, read_json, write_json, writing
from babelmill.runtime import slurm

log = logging.getLogger("babelmill")

ATTEMPT = "attempt.json"  # what is known of the newest attempt
LOGS = "logs"  # the folder of the logs
SPLITS = ("train", "validation")


def identity(
    settings: dict[str, Any], tokenizer: Path, shards: list[Path], source: Path | None = None
) -> dict[str, Any]:
    """Return the identity of a run, for JSON.

    Args:
        settings: the content of the stage's settings file, with the version of the stage.
        tokenizer, shards: the folders of the data, whose manifests are read.
        source: the folder of the model that the run continues.
    """
    data = {folder.as_posix(): manifest.digest(folder) for folder in [*shards, *([source] if source else [])]}
    about = {
        "settings": settings,
        "data": data,
        "tokenizer": manifest.read(tokenizer)["files"]["tokenizer.json"]["sha256"],
    }
    return about | ({"shape": read_json(source / "config.json")} if source else {})


def begin_attempt(
    path: Path, attempt: int, done: int, steps: int, tokens: int, device: str, precision: str, ran_with: dict[str, str]
) -> None:
    """Record in the run's folder that an attempt begins; `babelmill status` and `plan` read this record.

    One retry without progress is allowed, since it may have more memory or another machine. A job that SLURM put back
    into its queue is still the same attempt.

    Args:
        path: the run's folder.
        attempt: the number of the attempt: 1, or more for a retry.
        done: the number of steps that were done before.
        steps, tokens: the number of steps and tokens of the whole run.
        device: the device that trains, "cuda" or "cpu"; precision: "bf16" or "fp32".
        ran_with: the processors and the code of this attempt. The record has those of all attempts, and the modules
            with which the run began.

    Raises:
        UserError: the two attempts before this one made no progress.
    """
    record, job = path / ATTEMPT, slurm.job_id()
    last = read_json(record) if record.exists() else {}
    before = last if attempt > 1 and last else None
    fruitless = 0
    if before is not None and before["began_after_step"] == done:
        fruitless = before["fruitless"] + (job is None or before["job"] != job)
    if fruitless > 1:
        raise UserError(
            f"training failed in two attempts without progress after step {done}, so it is not tried again;"
            " fix the cause and run the workflow again"
        )
    note = {"attempt": attempt, "job": job, "began_after_step": done, "fruitless": fruitless}
    note |= {"steps": steps, "tokens": tokens, "host": platform.node(), "device": device, "precision": precision}
    before_this, began_with = [], modules.loaded()
    if done:  # a checkpoint that was fetched has no record of its attempts
        before_this, began_with = last.get("ran_with", []), last.get("modules", {})
    ran = [each for each in before_this if each != ran_with] + [ran_with]
    write_json(record, note | {"ran_with": ran, "modules": began_with})


def ran_with(path: Path) -> dict[str, Any]:
    """Return the figure `ran_with` of a run: the processors and the code of its attempts; {} if they are not known."""
    record = path / ATTEMPT
    return {"ran_with": read_json(record)["ran_with"]} if record.is_file() else {}


def modules_of(path: Path) -> dict[str, str]:
    """Return the modules with which a run began; {} if they are not known."""
    record = path / ATTEMPT
    return read_json(record).get("modules", {}) if record.is_file() else {}


def say_edited(path: Path) -> None:
    """Log which modules were edited since a run began, which now continues."""
    if names := modules.edited(modules_of(path)):
        log.info("%s %s edited since this run began", escape.some(names, 3), "was" if len(names) == 1 else "were")


def keep_log(folder: Path, model: str, preset: str, done: int, steps: int) -> None:
    """Write the log of this process also to `logs/20261122-143105_small_attempt2_job812.log`, from now on.

    The time is UTC, so that the names sort by time on any machine. All attempts are counted. This includes attempts
    that the user or SLURM starts again, which Snakemake counts as the first. Each message is written immediately, so it
    is in the file even if the process is killed right after it.

    Args:
        folder: the folder of the run.
        model: the name of the model.
        preset: the preset of the model; "" if it is not known.
        done, steps: the number of steps that are done, and of all steps of the run.
    """
    now, job = datetime.now(UTC), slurm.job_id()
    attempt = 1 + sum(1 for _ in (folder / LOGS).glob("*.log"))
    parts = [f"{now:%Y%m%d-%H%M%S}", preset, f"attempt{attempt}", job and f"job{job}"]
    path = folder / LOGS / ("_".join(part for part in parts if part) + ".log")
    path.parent.mkdir(parents=True, exist_ok=True)
    where = f"{platform.node()}{f', job {job}' if job else ''}"
    with open(path, "a", encoding="utf-8") as file:
        file.write(f"{now:%Y-%m-%d %H:%M:%S} UTC: attempt {attempt} of {model} on {where}, after step {done}/{steps}\n")
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%d %H:%M:%S"))
    # It stays until the process ends: an error of the process is logged after the folder is closed.
    logging.getLogger().addHandler(handler)


def newest_log(folder: Path) -> Path | None:
    """Return the log of the newest attempt of the run in a folder; None if there is none."""
    return max((folder / LOGS).glob("*.log"), default=None)


class Record:
    """The file `metrics.jsonl` of a run that has done `step` steps.

    Attributes:
        path: the path of the file.
        validated: whether the file has the validation after `step` steps.
    """

    def __init__(self, path: Path, step: int):
        kept, self.validated = [], False
        if path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                try:
                    entry = json.loads(line)
                    if entry["step"] <= step:
                        kept.append(line + "\n")
                        self.validated |= entry["step"] == step and entry["kind"] == "validation"
                except ValueError:
                    break  # the process died while it wrote its last line
        with atomic_write(path, "w") as file:
            file.writelines(kept)
        self.path, self._file = path, open(path, "a", encoding="utf-8")  # noqa: SIM115  it stays open during the run

    def append(self, line: dict[str, Any]) -> None:
        """Add a line; numbers that are not finite become null."""
        with writing(self.path):
            self._file.write(json.dumps(finite(line), allow_nan=False) + "\n")
            self._file.flush()

    def sync(self) -> None:
        """Flush the file to disk: at each checkpoint, all lines before it must be on disk."""
        with writing(self.path):
            os.fsync(self._file.fileno())


def energy_kwh(path: Path) -> float | None:
    """Return the energy of a whole run in kWh, from its record; None if a part of the run has no energy.

    Work counts once if it was lost when the run was killed, and then done again. The same is true for the hours.
    """
    with open(path, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    joules = [line.get("energy") for line in lines if line["kind"] == "train"]
    return sum(joules) / 3.6e6 if joules and None not in joules else None


def finite(value: Any) -> Any:
    """Replace NaN and infinity, which JSON does not have, with None, also in nested dictionaries."""
    if isinstance(value, dict):
        return {key: finite(entry) for key, entry in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
