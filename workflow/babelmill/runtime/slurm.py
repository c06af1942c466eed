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

import math
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import FrameType

OWN_STEP = "BABELMILL_STEP"
# Job scripts of other schedulers set when the job ends (seconds since the epoch), and where it asks for another turn.
JOB_END, AGAIN = "BABELMILL_JOB_END", "BABELMILL_AGAIN"
KEPT = {"SLURM_JOB_ID", "SLURM_JOBID", "SLURM_CLUSTER_NAME", "SLURM_CONF"}
FIRST_PORT = PORTS = 15_000  # ports where the nodes of a job meet; the system itself assigns only ports from 32768 on
REQUEUE_SECONDS = 60  # how long a job that must leave tries to put itself back into the queue


def job_id() -> str | None:
    """Return the number of the SLURM job that this process belongs to; None outside of SLURM."""
    return os.environ.get("SLURM_JOB_ID")


def ask(*command: str) -> str | None:
    """Return what a command of SLURM prints; None if SLURM does not answer, or does not know the job any more."""
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return None
    return None if answer.returncode else answer.stdout.strip()


def about_job(job: str, field: str) -> str | None:
    """Return a field of a job as squeue prints it, such as its state (`%T`) or the time left (`%L`); see `ask`."""
    return ask("squeue", "--noheader", "--states", "all", "--jobs", job, "--format", field)


def was_cancelled(job: str) -> bool:
    """Return whether a job was ended with `scancel`. Only a cluster with accounting knows this."""
    command = ["sacct", "--allocations", "--noheader", "--parsable2", "--jobs", job, "--format", "State"]
    return (ask(*command) or "").startswith("CANCELLED")


def needs_step() -> bool:
    """Return whether this process is in a SLURM job, but not in its own job step."""
    return job_id() is not None and OWN_STEP not in os.environ and shutil.which("srun") is not None


def run_in_step(nodes: int, threads: int, command: list[str]) -> None:
    """Replace this process with `srun command`: one task on each of `nodes` nodes, with all resources of the job.

    Environment variables that an outer srun has set are removed, since this srun would read them as its options.
    """
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "SRUN_")) or name in KEPT
    }
    options = ["--overlap", "--nodes", str(nodes), "--ntasks", str(nodes), "--ntasks-per-node", "1"]
    options += ["--cpus-per-task", str(threads), "--cpu-bind", "none", "--kill-on-bad-exit"]
    sys.stdout.flush()
    os.execvpe("srun", ["srun", *options, *command], environment | {OWN_STEP: "1"})


def meeting_point() -> tuple[str, int]:
    """Return where the nodes of a job meet: the name of the first node, and a port that the job's number gives."""
    machines = os.environ["SLURM_STEP_NODELIST"]
    listing = subprocess.run(["scontrol", "show", "hostnames", machines], capture_output=True, text=True, check=True)
    return listing.stdout.split()[0], FIRST_PORT + int(job_id() or 0) % PORTS


def node_number() -> int:
    """Return the number of this machine among those of the job step, from 0; 0 outside of SLURM."""
    return int(os.environ.get("SLURM_NODEID", "0")) if job_id() else 0


def on_first_node() -> bool:
    """Return whether this machine is the only one or the first of a SLURM job."""
    return node_number() == 0


def requeue() -> None:
    """Put this job back into the queue, unless it is ending, such as one that was cancelled. A line says what happens.

    A busy controller may not answer at once, so it is asked for REQUEUE_SECONDS. On other clusters, the job's script
    (`jobscript.sh` of the profile) finds the mark that this leaves, and the scheduler starts the job again.
    """
    if AGAIN in os.environ:
        Path(os.environ[AGAIN]).touch()
        print("the job asks to be started again", file=sys.stderr)
        return
    job, end = job_id(), time.monotonic() + REQUEUE_SECONDS
    while job is not None:
        state = about_job(job, "%T")
        if state not in (None, "RUNNING"):
            print(f"job {job} is {state or 'over'}: it is not put back into the queue", file=sys.stderr)
            return
        if state and ask("scontrol", "requeue", job) is not None:
            print(f"job {job} is put back into the queue", file=sys.stderr)
            return
        if time.monotonic() > end:
            print(f"SLURM did not put job {job} back into the queue (scontrol requeue {job})", file=sys.stderr)
            return
        time.sleep(1)


EXIT_CODE = 75
ASK_EVERY = 60.0  # seconds; a time limit may be changed while the job runs
RESERVE = 30.0  # seconds in addition to the measured time of a step and a checkpoint


def seconds_left(text: str) -> float | None:
    """Parse squeue's time left, `[days-][hours:]minutes:seconds`; return None for other words (UNLIMITED, INVALID)."""
    match = re.fullmatch(r"(?:(?:(\d+)-)?(\d+):)?(\d+):(\d+)", text.strip())
    if not match:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def signals() -> list[signal.Signals]:
    """Return the signals that ask a training to leave.

    A terminal that closes sends SIGHUP, which `nohup` ignores. Grid Engine sends SIGUSR1 or SIGUSR2 before the end.
    """
    hangup = [] if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN else [signal.SIGHUP]
    return [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2, *hangup]


class Stop:
    """Watches for reasons to leave: a signal, or the end of the allocation.

    Attributes:
        signalled: when a signal came (time.monotonic), or None.
    """

    def __init__(self, ask_slurm: bool):
        """Watch for signals; with `ask_slurm`, also for the end of the allocation (one process does this for all)."""
        self.signalled: float | None = None
        self._name = ""  # of the signal
        self._end = math.inf  # of the allocation (time.monotonic), as far as SLURM has said
        for number in signals():
            signal.signal(number, self._received)
        if JOB_END in os.environ:
            self._end = time.monotonic() + float(os.environ[JOB_END]) - time.time()
        if ask_slurm and (job := job_id()):
            self._ask(job)
            threading.Thread(target=self._keep_asking, args=(job,), daemon=True).start()

    def _received(self, number: int, _frame: FrameType | None) -> None:
        self._name, self.signalled = signal.Signals(number).name, time.monotonic()

    def _ask(self, job: str) -> None:
        left = seconds_left(about_job(job, "%L") or "")
        if left is not None:
            self._end = time.monotonic() + left

    def _keep_asking(self, job: str) -> None:
        while True:
            time.sleep(ASK_EVERY)
            self._ask(job)

    def reason(self, needed: float) -> str | None:
        """Return why to leave now, or None; `needed`: how many seconds a step and a checkpoint may take."""
        if self.signalled is not None:
            return f"received {self._name}"
        return "the allocation ends soon" if time.monotonic() + needed + RESERVE > self._end else None
