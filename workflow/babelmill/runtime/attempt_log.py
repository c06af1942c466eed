"""Keep the log of each attempt in the run's folder, since Snakemake deletes a rule's log before the next attempt.

The logs stay as long as the run's folder. They are small: a run that SLURM interrupts a hundred times writes as many
lines of progress as a run without interruptions, and a dozen more per attempt.
"""

import logging
import platform
from datetime import UTC, datetime
from pathlib import Path

from babelmill.runtime import slurm

FOLDER = "logs"


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
    attempt = 1 + sum(1 for _ in (folder / FOLDER).glob("*.log"))
    parts = [f"{now:%Y%m%d-%H%M%S}", preset, f"attempt{attempt}", job and f"job{job}"]
    path = folder / FOLDER / ("_".join(part for part in parts if part) + ".log")
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
    return max((folder / FOLDER).glob("*.log"), default=None)
