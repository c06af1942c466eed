"""The log of each attempt, kept in the run's folder: Snakemake deletes a rule's log before the next attempt.

All are kept, for as long as the run's folder is: a run of hours that SLURM interrupts a hundred times writes as many
lines of progress as one that it leaves alone, and a dozen more for each attempt.
"""

import logging
import platform
from datetime import UTC, datetime
from pathlib import Path

from babelmill.runtime import slurm

FOLDER = "logs"


def keep_log(folder: Path, model: str, preset: str, done: int, steps: int) -> None:
    """Write what this process logs from now on to `logs/20261122-143105_small_attempt2_job812.log`, too.

    The time is UTC, so that names sort by it on any machine. All attempts are counted, also those that the user or
    SLURM begins anew, which Snakemake calls the first. Each message is in the file at once, whatever kills the process
    after it.

    Args:
        folder: of the run.
        model: its name.
        preset: of the model; "" if none is known.
        done, steps: steps done before, and of the whole run.
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
    logging.getLogger().addHandler(handler)  # to the end of the process: its error is logged after the folder is closed


def newest_log(folder: Path) -> Path | None:
    """Return the log of the newest attempt of the run in a folder; None if there is none."""
    return max((folder / FOLDER).glob("*.log"), default=None)
