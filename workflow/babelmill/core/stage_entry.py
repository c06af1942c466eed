"""Do what all entry points of stages share: read the arguments, write the log, and show an error in one line.

A stage writes its messages to its log file and to standard error. So a terminal shows errors and progress, and a
cluster keeps them. If our logger plugin for Snakemake writes to the same terminal, the plugin shows what is important.
The stage then shows only its warnings and, now and then, the progress of the training. A user can also repeat a job by
hand, with `python -m babelmill.<stage>`.
"""

import argparse
import contextlib
import io
import logging
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from babelmill.core import escape
from babelmill.core.files import UserError, trouble

TERMINAL = "BABELMILL_TERMINAL"  # the environment variable that names the standard error of the logger plugin
QUIET = (30.0, 1800.0)  # seconds between messages of progress beside the plugin: 30 first, then doubled, up to 1800
CLOCK = "%H:%M:%S"

log = logging.getLogger("babelmill")
shown_name = ""  # the name of the model, for its progress bar: other models may use the same terminal
BUG = "error: unexpected; this is a bug in Babelmill, please report it with this text"


def arguments(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the arguments every stage has: `--settings` and `--log`."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--settings", required=True, type=Path, help="results/settings/{name}/{stage}.json")
    parser.add_argument("--log", type=Path, help="also write messages to this file")
    return parser


def folder(text: str) -> Path:
    """Return the folder of a stage from an argument: the folder, or its manifest.json, which rules have as input."""
    path = Path(text)
    return path.parent if path.name == "manifest.json" else path


def utf8(text: str) -> str:
    """Return the text of an argument, which is UTF-8 in any locale."""
    try:
        return text.encode("utf-8", "surrogateescape").decode("utf-8")
    except UnicodeDecodeError:
        raise argparse.ArgumentTypeError(f"{escape.line(text)}: is not UTF-8 text") from None


def terminal_id() -> str:
    """Return an id of what standard error writes to; it is the same for all processes that share it."""
    status = os.fstat(2)
    return f"{status.st_dev}:{status.st_ino}"


class BesideThePlugin(logging.Filter):
    """Shows only warnings and, now and then, the progress of the training: the logger plugin shows the rest.

    Errors are in the log, and the plugin quotes them from there.
    """

    def __init__(self) -> None:
        super().__init__()
        self._gap, self._last = QUIET[0], time.monotonic()

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a message is shown."""
        if hasattr(record, "bar") and time.monotonic() - self._last >= self._gap:
            self._gap, self._last = min(2 * self._gap, QUIET[1]), time.monotonic()
            return True
        return record.levelno == logging.WARNING


class Formatter(logging.Formatter):
    """Writes a time and a message, so that a terminal obeys nothing that stands in file names or data."""

    def __init__(self, before: str = "") -> None:
        super().__init__(f"%(asctime)s {before}%(message)s", CLOCK)

    def format(self, record: logging.LogRecord) -> str:
        """Return the lines of a message."""
        return escape.lines(super().format(record))


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
    accept_all_letters(sys.stdout, sys.stderr)
    terminal = logging.StreamHandler(sys.stderr)
    handlers: list[logging.Handler] = [terminal]
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        handlers.append(logging.FileHandler(path, encoding="utf-8"))
        if os.environ.get(TERMINAL) == terminal_id():
            terminal.addFilter(BesideThePlugin())
            terminal.setFormatter(Formatter(f"          {subject}  "))
    for handler in handlers:
        if handler.formatter is None:
            handler.setFormatter(Formatter())
    logging.basicConfig(level=logging.INFO, handlers=handlers, force=True)


def run(function: Callable[[argparse.Namespace], int | None], args: argparse.Namespace) -> int:
    """Run a stage and return its exit code: 1 after an error, which is one line if the user can fix it."""
    global shown_name
    shown_name = f"{args.settings.parent.name}  "
    try:
        configure_logging(args.log, f"{args.settings.stem:<9}  {args.settings.parent.name:<8}")
        return function(args) or 0
    except UserError as error:
        log.error("error: %s", error)
    except OSError as error:
        if problem := trouble(error):
            log.error("error: %s", problem)
        else:
            log.exception(BUG)
    except KeyboardInterrupt:
        log.error("interrupted; the same command starts this stage again")
        return 130
    except Exception:
        log.exception(BUG)
    return 1
