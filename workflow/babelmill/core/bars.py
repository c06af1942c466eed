"""Write to the terminal that the processes of a run share: whole lines and, below them, one line that is drawn over.

All processes write lines. Each line first clears what was drawn, whoever drew it, and is one write, so that nothing
comes in between. What is drawn says how far a job is (a bar), or what it does now; jobs side by side take turns.

Elsewhere, and in the log, a bar is a plain line every 30 s.
"""

import contextlib
import logging
import math
import os
import sys
import time
from typing import TextIO

from babelmill.core import escape
from babelmill.core.words import clock

TERMINAL = "BABELMILL_TERMINAL"  # the environment variable that names the standard error of the logger plugin
CLEAR = "\r\033[K"
WIDTH = 24  # characters of a bar

log = logging.getLogger("babelmill")
shown_name = ""  # the name of the model, since other models may use the same terminal


def terminal_id() -> str:
    """Return an id of what standard error writes to; it is the same for all processes that share it."""
    status = os.fstat(2)
    return f"{status.st_dev}:{status.st_ino}"


def clear(stream: TextIO | None) -> str:
    """Return what clears the line that was drawn on a stream, if it is a terminal; None: standard error is closed."""
    return CLEAR if stream and stream.isatty() else ""


def say(text: str, stream: TextIO | None = None) -> None:
    """Write a line to a stream (standard error if it is None). On a terminal, it replaces what was drawn there."""
    where = stream or sys.stderr
    where.write(f"{clear(where)}{text}\n")
    where.flush()


def draw(text: str) -> None:
    """Draw one line of text on standard error if it is a terminal, over the one before; it is cut where that ends."""
    with contextlib.suppress(OSError):  # the terminal was closed
        if sys.stderr.isatty():
            columns = os.get_terminal_size(sys.stderr.fileno()).columns or 80
            sys.stderr.write(CLEAR + escape.line(text)[: columns - 1])
            sys.stderr.flush()


class Bar:
    """Shows which part of a total is done, and estimates the time left."""

    EVERY = 30.0  # seconds between plain lines
    DRAWN_EVERY = 0.5  # seconds between two drawings
    EARLY = 5.0  # seconds before the first estimate of the time left; twelve times as many while less than 1 % is done

    def __init__(self, total: float, done: float = 0, at_once: bool = False):
        """Start the clock of a job.

        `total`: the size of the whole job, in a unit whose number is proportional to the time, such as tokens; `done`:
        how much of it was done before this process began. Without `at_once`, the first plain line appears after `EVERY`
        seconds, and a shorter job has none.
        """
        self._total, self._start, self._done = total, done, done
        self._began, self._drawn = time.monotonic(), -math.inf
        self._said, self._silent = (-math.inf if at_once else self._began), True

    def show(self, done: float, text: str) -> None:
        """Show how far the job is: `text` says it in the job's own words, and the time left is added to it.

        At the beginning, when too little is done for an estimate, the text says that the time left is unknown. When
        `done` reaches the total, the bar closes.
        """
        self._done, now = done, time.monotonic()
        ended = done >= self._total > 0
        text = f"{text}  {self._left(now)} left"
        on_terminal = sys.stderr.isatty()
        if on_terminal and (now - self._drawn >= self.DRAWN_EVERY or ended):
            self._drawn = now
            share = done / self._total if self._total else 0.0
            draw(f"{share:4.0%} [{'#' * int(share * WIDTH):.<{WIDTH}}] {shown_name}{text}")
        if now - self._said >= self.EVERY or (ended and not self._silent):
            self._said, self._silent = now, False
            log.info("%s", text, extra={"bar": on_terminal})  # whether it is drawn
        if ended:
            self.close()

    def close(self) -> None:
        """Clear the bar."""
        if self._drawn > -math.inf:
            draw("")

    def _left(self, now: float) -> str:
        seconds, left = now - self._began, self._total - self._done
        if left <= 0:
            return clock(0)
        share = (self._done - self._start) / (self._total - self._start)
        if share <= 0 or seconds < self.EARLY or (share < 0.01 and seconds < 12 * self.EARLY):
            return "unknown time"
        return clock(seconds / (self._done - self._start) * left)
