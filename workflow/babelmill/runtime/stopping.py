"""Decide when to leave early: after a signal, or shortly before the end of a SLURM allocation.

In both cases, training ends the current step, saves a checkpoint and leaves with exit code 75 ("try again", EX_TEMPFAIL
of sysexits.h).
"""

import re
import signal
import threading
import time
from types import FrameType

from babelmill.runtime import slurm

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
    """Return the signals that ask a training to leave. A terminal that closes sends SIGHUP, which `nohup` ignores."""
    hangup = [] if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN else [signal.SIGHUP]
    return [signal.SIGTERM, signal.SIGINT, *hangup]


class Stop:
    """Watches for reasons to leave."""

    def __init__(self, ask_slurm: bool):
        """Watch for signals; with `ask_slurm`, also for the end of the allocation (one process does this for all)."""
        self._signal: int | None = None
        self.signalled: float | None = None  # when a signal came (time.monotonic)
        self._end: float | None = None
        for number in signals():
            signal.signal(number, self._received)
        job = slurm.job_id()
        if ask_slurm and job:
            self._ask(job)
            threading.Thread(target=self._watch, args=(job,), daemon=True).start()

    def _received(self, number: int, _frame: FrameType | None) -> None:
        self._signal, self.signalled = number, time.monotonic()

    def _ask(self, job: str) -> None:
        left = seconds_left(slurm.ask(job, "%L") or "")
        if left is not None:
            self._end = time.monotonic() + left

    def _watch(self, job: str) -> None:
        while True:
            time.sleep(ASK_EVERY)
            self._ask(job)

    def reason(self, needed: float) -> str | None:
        """Return why to leave now, or None; `needed`: how many seconds a step and a checkpoint may take."""
        if self._signal is not None:
            return f"received {signal.Signals(self._signal).name}"
        if self._end is not None and time.monotonic() + needed + RESERVE > self._end:
            return "the allocation ends soon"
        return None
