"""Record the attempts of a training run, and end it with an error after two attempts without progress."""

import platform
from pathlib import Path
from typing import Any

from babelmill.core.files import UserError, read_json, write_json
from babelmill.runtime import slurm


def begin_attempt(path: Path, attempt: int, done: int, steps: int, tokens: int, device: str) -> None:
    """Record in the run's folder that an attempt begins; `babelmill status` and `plan` read this record.

    One retry without progress is allowed, since it may have more memory or another machine. A job that SLURM put back
    into its queue is still the same attempt.

    Args:
        path: the run's folder.
        attempt: the number of the attempt: 1, or more for a retry.
        done: the number of steps that were done before.
        steps, tokens: the number of steps and tokens of the whole run.
        device: the device that trains, "cuda" or "cpu".

    Raises:
        UserError: the two attempts before this one made no progress, or the attempt before was a SLURM job that was
            cancelled. (A user who cancels a job does not want it to start again.)
    """
    record, job = path / "attempt.json", slurm.job_id()
    before = read_json(record) if attempt > 1 and record.exists() else None
    fruitless = 0
    if before is not None:
        refuse_after_cancelled(before, attempt, done)
        if before["began_after_step"] == done:
            fruitless = before["fruitless"] + (job is None or before["job"] != job)
    if fruitless > 1:
        raise UserError(
            f"training failed in two attempts without progress after step {done}, so it is not tried again;"
            " fix the cause and run the workflow again"
        )
    note = {"attempt": attempt, "job": job, "began_after_step": done, "fruitless": fruitless}
    write_json(record, note | {"steps": steps, "tokens": tokens, "host": platform.node(), "device": device})


def refuse_after_cancelled(before: dict[str, Any], attempt: int, done: int) -> None:
    """Raise a UserError if the attempt `before` this one was another SLURM job that was cancelled."""
    job = before["job"]
    if before["attempt"] == attempt - 1 and job not in (None, slurm.job_id()) and slurm.was_cancelled(job):
        raise UserError(
            f"training is not tried again: its job {job} was cancelled; run the workflow again to continue after"
            f" step {done}"
        )
