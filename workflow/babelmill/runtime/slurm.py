"""Run training inside a SLURM job: in its own job step, with requeueing; and decide, anywhere, when to leave early.

Own job step: SLURM sends SIGTERM (at preemption, at the time limit, after scancel) only to the first process of a job
step. In a step that Snakemake started, this is Snakemake, which ignores the signal while its job runs. So training
starts its own step with srun. As its first process, it receives the signal and saves a checkpoint. The same srun starts
one launcher on each node.

Leaving early: after a signal, or shortly before the end of the allocation, training ends the current step, saves a
checkpoint and leaves with exit code 75 ("try again", EX_TEMPFAIL of sysexits.h).

Requeueing: a training that must leave before its end puts its own job back into SLURM's queue, if the profile asks for
it (`requeue: 1`). Snakemake waits for the same job, and its `retries` remain for failures.
"""

import contextlib
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path
from types import FrameType

EXIT_CODE = 75
OWN_STEP = "BABELMILL_STEP"
# Job scripts of other schedulers set when the job ends (seconds since the epoch), and where it asks for another turn.
JOB_END, AGAIN = "BABELMILL_JOB_END", "BABELMILL_AGAIN"
KEPT = {"SLURM_JOB_ID", "SLURM_JOBID", "SLURM_CLUSTER_NAME", "SLURM_CONF"}
FIRST_PORT = PORTS = 15_000  # ports where the nodes of a job meet; the system itself assigns only ports from 32768 on
REQUEUE_SECONDS = 60  # how long a job that must leave tries to put itself back into the queue
RESERVE = 30.0  # seconds in addition to the measured time of a step and a checkpoint


def job_id() -> str | None:
    """Return the number of the SLURM job that this process belongs to; None outside of SLURM."""
    return os.environ.get("SLURM_JOB_ID")


def ask(*command: str) -> str | None:
    """Return what a command of SLURM prints; None if SLURM does not answer."""
    environment = os.environ | {"SLURM_TIME_FORMAT": "standard"}
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20, env=environment)
        return done.stdout.strip()


def about_job(job: str, field: str) -> str | None:
    """Return a field of a job as squeue prints it, such as its state (`%T`) or its end (`%e`); see `ask`."""
    return ask("squeue", "--noheader", "--states", "all", "--jobs", job, "--format", field)


def move_to_own_step(nodes: int, threads: int, command: list[str]) -> None:
    """In a SLURM job, replace this process by `srun command`, unless this has been done.

    It runs one task on each of `nodes` nodes, with all resources of the job. Environment variables that an outer srun
    has set are removed, since this srun would read them as its options.
    """
    if job_id() is None or OWN_STEP in os.environ or shutil.which("srun") is None:
        return
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "SRUN_")) or name in KEPT
    }
    options = ["--overlap", "--nodes", str(nodes), "--ntasks", str(nodes), "--ntasks-per-node", "1"]
    options += ["--cpus-per-task", str(threads), "--cpu-bind", "none", "--kill-on-bad-exit"]
    sys.stdout.flush()
    os.execvpe("srun", ["srun", *options, *command], environment | {OWN_STEP: "1"})


def meeting_point() -> str:
    """Return where the nodes of a job meet: the name of the first node, and a port that the job's number gives."""
    machines = os.environ["SLURM_STEP_NODELIST"]
    listing = subprocess.run(["scontrol", "show", "hostnames", machines], capture_output=True, text=True, check=True)
    return f"{listing.stdout.split()[0]}:{FIRST_PORT + int(job_id() or 0) % PORTS}"


def node_number() -> int:
    """Return the number of this machine among those of the job step, from 0; 0 outside of SLURM."""
    return int(os.environ.get("SLURM_NODEID", "0")) if job_id() else 0


def requeue() -> None:
    """Put this job back into the queue. A line says what happens.

    On clusters without SLURM, the job's script (`jobscript.sh` of the profile) finds the mark that this leaves, and the
    scheduler starts the job again.
    """
    if AGAIN in os.environ:
        Path(os.environ[AGAIN]).touch()
        print("the job asks to be started again", file=sys.stderr)
    elif job := job_id():
        print(f"job {job} is {put_back(job)}", file=sys.stderr)


def put_back(job: str) -> str:
    """Put a job back into the queue, unless it is ending, such as one that was cancelled. Return what became of it.

    A busy controller may not answer at once, so it is asked for REQUEUE_SECONDS.
    """
    end = time.monotonic() + REQUEUE_SECONDS
    while time.monotonic() < end:
        state = about_job(job, "%T")
        if state not in (None, "RUNNING"):
            return f"not put back into the queue: it is {state or 'over'}"
        if state and ask("scontrol", "requeue", job) is not None:
            return "put back into the queue"
        time.sleep(1)
    return f"not put back into the queue: SLURM refused, or did not answer (scontrol requeue {job})"


def signals() -> list[signal.Signals]:
    """Return the signals that ask a training to leave.

    A terminal that closes sends SIGHUP, which `nohup` ignores. Grid Engine sends SIGUSR1 or SIGUSR2 before the end.
    """
    hangup = [] if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN else [signal.SIGHUP]
    return [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2, *hangup]


def end_of_job() -> float:
    """Return when the job of this process ends (seconds since the epoch), as far as its cluster says that now."""
    if JOB_END in os.environ:
        return float(os.environ[JOB_END])
    job = job_id()
    try:
        return datetime.fromisoformat(about_job(job, "%e") or "").timestamp() if job else math.inf
    except ValueError:  # other words (N/A), or no answer
        return math.inf


class Stop:
    """Watches for reasons to leave: a signal, or the end of the allocation.

    Attributes:
        signalled: the name of the signal that came, or None.
    """

    def __init__(self, ask_slurm: bool):
        """Watch for signals; with `ask_slurm`, also for the end of the allocation (one process does this for all)."""
        self.signalled: str | None = None
        self._end = end_of_job() if ask_slurm else math.inf
        for number in signals():
            signal.signal(number, self._received)

    def _received(self, number: int, _frame: FrameType | None) -> None:
        self.signalled = signal.Signals(number).name

    def reason(self, needed: float) -> str | None:
        """Return why to leave now, or None; `needed`: how many seconds a step and a checkpoint may take."""
        if self.signalled is not None:
            return f"received {self.signalled}"
        return "the allocation ends soon" if time.time() + needed + RESERVE > self._end else None
