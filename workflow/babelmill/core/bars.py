"""How far a job is, for people: one bar on a terminal, a plain line every so often elsewhere and in the log.

Several jobs may share a terminal. One of them draws, the one that holds the terminal's lock file; when it is done,
another does.
"""

import contextlib
import fcntl
import logging
import math
import os
import sys
import tempfile
import time

from babelmill.core import stage_entry

log = logging.getLogger("babelmill")
CLEAR = "\r\033[K"


class Bar:
    """Shows that so much of a total is done."""

    EVERY = 30.0  # seconds between plain lines
    DRAWN_EVERY = 0.1  # seconds between two drawings
    EARLY = 5.0  # seconds in which the time left is not foretold, and of less than 1 % in twelve times as many

    def __init__(self, total: float, done: float = 0, at_once: bool = False):
        """The total, and what is done before this process began, are of what the time goes by, such as tokens.

        A job that is over before `EVERY` seconds have passed has no plain line, unless the first comes `at_once`.
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
        """Say how far it is: `text` is what is done in the job's own words; time left is added. Ends with the total.

        The time left is unknown at the beginning, when a job still starts and little of it is done.
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
        """Leave the bar as it is, and the terminal to others."""
        if self._bar is not None:
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
            from tqdm import tqdm  # on a terminal alone

            tqdm.monitor_interval = 0  # no thread that draws when nothing has happened
            form = "{percentage:3.0f}% [{bar:24}] {desc}"
            self._bar = tqdm(total=self._total, bar_format=form, dynamic_ncols=True, ascii=".#", miniters=math.inf)
        self._bar.n = self._done
        self._bar.set_description_str(text, refresh=False)
        self._bar.refresh()

    def _may_draw(self) -> bool:
        """Return whether this process draws on the terminal: it does already, or nobody else does."""
        if self._lock is None:
            name = f"babelmill-bar-{os.getuid()}-{stage_entry.terminal_id().replace(':', '-')}.lock"
            with contextlib.ExitStack() as stack, contextlib.suppress(OSError):  # another draws, or the disk is full
                lock = stack.enter_context(open(os.path.join(tempfile.gettempdir(), name), "w"))
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                stack.pop_all()  # open while it is held
                self._lock = lock
        return self._lock is not None

    def _beside_the_bar(self, record: logging.LogRecord) -> bool:
        """On a terminal the bar stands for lines of progress, which go to the log file, and makes room for others."""
        if hasattr(record, "bar"):
            return False
        sys.stderr.write(CLEAR)  # of whatever job it is
        return True


def clock(seconds: float) -> str:
    """12345 as 3:25:45."""
    seconds = int(seconds)
    return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
