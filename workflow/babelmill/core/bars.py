"""Show people how far a job is: as one bar on a terminal, and elsewhere and in the log as a plain line every 30 s.

Several jobs may share a terminal. Only the one that holds the terminal's lock file draws its bar. When it ends, another
job takes the lock file and draws.
"""

import contextlib
import logging
import math
import os
import sys
import tempfile
import time

from babelmill.core import stage_entry, writers
from babelmill.core.words import clock

log = logging.getLogger("babelmill")
CLEAR = "\r\033[K"


class Bar:
    """Shows which part of a total is done, and estimates the time left."""

    EVERY = 30.0  # seconds between plain lines
    DRAWN_EVERY = 0.1  # seconds between two drawings
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
        self._lock, self._bar = None, None
        if sys.stderr.isatty():
            for handler in logging.getLogger().handlers:
                if type(handler) is logging.StreamHandler:
                    handler.addFilter(self._beside_the_bar)

    def show(self, done: float, text: str) -> None:
        """Show how far the job is: `text` says it in the job's own words, and the time left is added to it.

        At the beginning, when too little is done for an estimate, the text says that the time left is unknown. When
        `done` reaches the total, the bar closes.
        """
        self._done, now = done, time.monotonic()
        ended = done >= self._total > 0
        if now - self._said >= self.EVERY or (ended and not self._silent):
            self._said, self._silent = now, False
            log.info("%s  %s left", text, self._left(now), extra={"bar": True})
        if sys.stderr.isatty() and (now - self._drawn >= self.DRAWN_EVERY or ended) and self._may_draw():
            self._drawn = now
            self._draw(f"{stage_entry.shown_name}{text}  {self._left(now)} left")
        if ended:
            self.close()

    def close(self) -> None:
        """Leave the bar on the terminal as it is, and let other jobs draw there."""
        if self._bar is not None:
            with contextlib.suppress(OSError):  # the terminal was closed
                self._bar.close()
        if self._lock is not None:
            self._lock.close()
        self._bar = self._lock = None

    def _left(self, now: float) -> str:
        seconds, left = now - self._began, self._total - self._done
        if left <= 0:
            return clock(0)
        share = (self._done - self._start) / (self._total - self._start)
        if share <= 0 or seconds < self.EARLY or (share < 0.01 and seconds < 12 * self.EARLY):
            return "unknown time"
        return clock(seconds / (self._done - self._start) * left)

    def _draw(self, text: str) -> None:
        if self._bar is None:
            from tqdm import tqdm  # imported only if there is a terminal

            tqdm.monitor_interval = 0  # otherwise a thread of tqdm draws the bar again when nothing has happened
            form = "{percentage:3.0f}% [{bar:24}] {desc}"
            self._bar = tqdm(total=self._total, bar_format=form, dynamic_ncols=True, ascii=".#", miniters=math.inf)
        self._bar.n = self._done
        self._bar.set_description_str(text, refresh=False)
        with contextlib.suppress(OSError):  # the terminal was closed
            self._bar.refresh()

    def _may_draw(self) -> bool:
        """Return whether this process draws on the terminal: it does already, or nobody else does."""
        if self._lock is None:
            name = f"babelmill-bar-{os.getuid()}-{stage_entry.terminal_id().replace(':', '-')}.lock"
            with contextlib.ExitStack() as stack, contextlib.suppress(OSError):  # another job draws, or no space
                lock = stack.enter_context(open(os.path.join(tempfile.gettempdir(), name), "w"))
                if writers.lock(lock, wait=False):
                    stack.pop_all()  # keeps the file open, and with it the lock
                    self._lock = lock
        return self._lock is not None

    def _beside_the_bar(self, record: logging.LogRecord) -> bool:
        """Return whether a log message is shown on a terminal with a bar; clear the bar's line for it.

        Lines of progress go only to the log file, because the bar already shows them.
        """
        if hasattr(record, "bar"):
            return False
        with contextlib.suppress(OSError):  # the terminal was closed
            sys.stderr.write(CLEAR)  # also if the bar belongs to another job
        return True
