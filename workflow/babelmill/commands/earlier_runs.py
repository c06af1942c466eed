"""Find what an earlier run left in this folder: a lock, and SLURM jobs.

A Snakemake that was killed with -9 leaves both. As a program (`make demo` calls it), this
module fails if a Snakemake runs in the working folder.
"""

import contextlib
import os
import subprocess
import time
from pathlib import Path

import psutil

from babelmill.core import bars

PATIENCE = 120  # seconds for cancelled jobs to end


def snakemake_here() -> int | None:
    """Return the process id of another Snakemake that works in this folder; None if there is none."""
    above = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}  # such as `timeout 60 snakemake`
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):  # it has ended, or is somebody else's
            named = any(Path(word).name == "snakemake" for word in process.cmdline()[:4])
            if named and process.pid not in above and Path(process.cwd()) == Path.cwd():
                return process.pid
    return None


def slurm_jobs() -> list[str]:
    """Return the SLURM jobs that an earlier run in this folder has left; [] if SLURM cannot be asked."""
    try:
        command = ["squeue", "--me", "--noheader", "--format", "%i|%Z|%k"]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return []
    jobs = [line.split("|", 2) for line in answer.stdout.splitlines() if line.count("|") >= 2]
    return [job for job, folder, comment in jobs if folder == os.getcwd() and comment.startswith("rule_")]


def cancel_slurm_jobs() -> None:
    """Cancel the jobs that a killed Snakemake left in the queue, and wait for their end.

    This Snakemake holds the folder's lock, so no other one waits for these jobs, which would do the same work twice.
    Training saves a checkpoint when it is cancelled, and the new job continues from there.
    """
    jobs = slurm_jobs()
    if not jobs:
        return
    bars.say(f"Cancelling SLURM jobs that an earlier run left behind: {', '.join(jobs)}")
    subprocess.run(["scancel", *jobs], check=False)
    end = time.monotonic() + PATIENCE
    while slurm_jobs() and time.monotonic() < end:
        time.sleep(1)


if __name__ == "__main__":
    raise SystemExit(snakemake_here() is not None)
