"""Do what all entry points of stages share: read the arguments, write the log, and show an error in one line.

A stage writes its messages to its log file and to standard error. So a terminal shows errors and progress, and a
cluster keeps them. If our logger plugin for Snakemake writes to the same terminal, the plugin shows what is important.
The stage then shows only its warnings, and draws what it does now (`bars.py`). A user can also repeat a job by hand,
with `python -m babelmill.<stage> SETTINGS`.
"""

import argparse
import contextlib
import io
import logging
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar

from babelmill.core import bars, escape
from babelmill.core.files import lock, remove_leftovers, trouble

QUIET = (30.0, 1800.0)  # seconds between messages of progress beside the plugin: 30 first, then doubled, up to 1800
CLOCK = "%H:%M:%S"

BUG = "error: unexpected; this is a bug in Babelmill, please report it with this text"

log = logging.getLogger("babelmill")


S = TypeVar("S")  # the class of a stage (`stages.Stage`)


class LogFile(logging.FileHandler):
    """The log of a stage, locked as long as its process lives: by that, `babelmill status` knows that it runs.

    If it cannot be written (on a full disk), `lost` says so, and the stage goes on.
    """

    lost = False

    def _open(self) -> io.TextIOWrapper:
        """Open the file and lock it; several processes may write the same log."""
        file = super()._open()
        lock(file, shared=True)
        return file

    def handleError(self, record: logging.LogRecord) -> None:
        """Note that a message could not be written."""
        self.lost = True

    def close(self) -> None:
        """Close the file, which writes what is left."""
        with contextlib.suppress(OSError):
            super().close()


class BesideThePlugin(logging.Filter):
    """Shows only warnings and, now and then, progress that has no bar: the logger plugin shows the rest.

    On a terminal, each other message is drawn until the next one comes: it says what the stage does now. Errors are in
    the log, and the plugin quotes them from there, unless the log could not be written.
    """

    def __init__(self, log_file: LogFile) -> None:
        super().__init__()
        self._log, self._gap, self._last = log_file, QUIET[0], time.monotonic()

    def filter(self, record: logging.LogRecord) -> bool:
        if self._log.lost and record.levelno > logging.WARNING:
            return True
        if hasattr(record, "bar") and time.monotonic() - self._last >= self._gap:
            self._gap, self._last = min(2 * self._gap, QUIET[1]), time.monotonic()
            return True
        if record.levelno == logging.INFO:
            bars.draw(bars.shown_name + record.getMessage().partition("\n")[0])
        return record.levelno == logging.WARNING


class Formatter(logging.Formatter):
    """Writes a time and a message, so that a terminal obeys nothing that stands in file names or data.

    `clear`: what a terminal obeys before each message, see `bars.clear`.
    """

    def __init__(self, before: str = "", clear: str = "") -> None:
        super().__init__(f"%(asctime)s {before}%(message)s", CLOCK)
        self._clear = clear

    def format(self, record: logging.LogRecord) -> str:
        return self._clear + escape.lines(super().format(record))


def accept_all_letters(*streams: object) -> None:
    """Let streams write what the locale has no letters for as escapes: LC_ALL=C has only those of ASCII."""
    for stream in streams:
        if isinstance(stream, io.TextIOWrapper):
            with contextlib.suppress(OSError):  # the stream may be a pipe in the place of a file, which cannot seek
                stream.reconfigure(errors="backslashreplace")


def configure_logging(path: Path | None, subject: str = "") -> None:
    """Send this package's messages to standard error and, if given, to the file at `path`.

    `subject`: stage and name, for a terminal that also shows the messages of other stages. Messages are appended to an
    existing log: it may belong to a job that is still running and makes this one end with an error. (Snakemake begins
    each job with a new log.)
    """
    logging.raiseExceptions = False  # no traceback when standard error is closed, or on a full disk
    accept_all_letters(sys.stdout, sys.stderr)
    terminal, clear = logging.StreamHandler(sys.stderr), bars.clear(sys.stderr)
    terminal.addFilter(lambda record: not getattr(record, "bar", False))  # this process draws it
    terminal.setFormatter(Formatter(clear=clear))
    handlers: list[logging.Handler] = [terminal]
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        log_file = LogFile(path, "a+", encoding="utf-8")
        log_file.setFormatter(Formatter())
        handlers.insert(0, log_file)  # first, since the terminal shows what it could not write
        if os.environ.get(bars.TERMINAL) == bars.terminal_id():
            terminal.addFilter(BesideThePlugin(log_file))
            terminal.setFormatter(Formatter(f"          {subject}  ", clear))
    logging.basicConfig(level=logging.INFO, handlers=handlers, force=True)


@dataclass(frozen=True)
class Job(Generic[S]):
    """A job of a stage: its settings file, and the resources that stand beside it on the command line."""

    stage: Any  # the class of the stage
    path: Path  # the settings file
    threads: int
    gpus: int
    args: argparse.Namespace  # all arguments

    @cached_property
    def settings(self) -> S:
        """Return the settings. A UserError says what is wrong with the file."""
        return self.stage.read(self.path)

    @property
    def name(self) -> str:
        """Return the name of the result."""
        return self.path.stem

    @property
    def out(self) -> Path:
        """Return the path of the result: a folder, or a file with the name of a model."""
        return self.stage.path_of(self.name)

    @property
    def unfinished(self) -> Path:
        """Return the folder that keeps what jobs that were killed had done."""
        return Path("results/unfinished", self.stage.stage, self.name)


def parser(stage: Any, description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the arguments that every stage has: its settings file and resources."""
    made = argparse.ArgumentParser(
        prog=f"python -m babelmill.{stage.stage}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("settings", type=Path, help=f"results/settings/{stage.stage}/{{result}}.json")
    made.add_argument("--threads", type=int, default=1, help="threads on this machine")
    made.add_argument("--gpus", type=int, default=0, help="GPUs of this machine to use; 0 uses the CPU")
    return made


def main(stage: Any, function: Callable[[Job[S]], int | None], description: str | None) -> int:
    """Run a stage from its command line, `python -m babelmill.STAGE SETTINGS`, and return its exit code."""
    args = parser(stage, description).parse_args()
    return run(function, Job(stage, args.settings, args.threads, args.gpus, args))


def run(function: Callable[[Job[S]], int | None], job: Job[S], writes_log: bool = True) -> int:
    """Run a job and return its exit code: 1 after an error, which is one line if the user or the machine caused it.

    First delete what a killed attempt left beside the results. The log is `logs/{stage}/{result}.log`.
    """
    stage = job.stage.stage
    bars.shown_name = f"{job.name}  "
    try:
        configure_logging(Path("logs", stage, f"{job.name}.log") if writes_log else None, f"{stage:<10}  {job.name:<8}")
        remove_leftovers([job.out, job.out.parent])
        remove_leftovers([job.unfinished, Path("results/checkpoints", job.name)], deep=True)
        return function(job) or 0
    except KeyboardInterrupt:
        kept = any(folder.exists() for folder in (job.unfinished, Path("results/checkpoints", job.name)))
        log.error("interrupted; the same command %s", "continues this stage" if kept else "starts this stage again")
        return 130
    except Exception as error:
        if problem := trouble(error):
            log.error("error: %s", problem)
        else:
            log.exception(BUG)
    return 1
