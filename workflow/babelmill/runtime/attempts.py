"""Attempts of a training run: an attempt that fails without progress since the one before it is not repeated."""

from pathlib import Path

from babelmill.core.files import UserError, read_json, write_json
from babelmill.runtime import slurm


def begin_attempt(path: Path, attempt: int, done: int, steps: int, tokens: int) -> None:
    """Note that an attempt begins here; refuse the third in a row that begins after the same step, and any after a
    SLURM job that was cancelled: who cancels a job does not want it back.

    One repetition is made without progress, since it may have more memory or another machine. A job that SLURM put
    back into its queue has made no attempt of its own. `babelmill status` reads the note.
    """
    record, job = path / "attempt.json", slurm.job_id()
    before = read_json(record) if attempt > 1 and record.exists() else None
    last = before is not None and before["attempt"] == attempt - 1 and before["job"] not in (None, job)
    if last and slurm.was_cancelled(before["job"]):
        raise UserError(
            f"attempt {attempt} is not made: job {before['job']}, the one before it, was cancelled; run the workflow"
            f" again to go on after step {done}"
        )
    fruitless = 0
    if before is not None and before["began_after_step"] == done:
        fruitless = before["fruitless"] + (job is None or before["job"] != job)
    if fruitless > 1:
        raise UserError(
            f"attempt {attempt} is not made: the two before it failed without progress after step {done};"
            " mend the cause and run the workflow again"
        )
    write_json(
        record,
        {
            "attempt": attempt,
            "job": job,
            "began_after_step": done,
            "fruitless": fruitless,
            "steps": steps,
            "tokens": tokens,
        },
    )
