"""What all entry points share: the arguments, the log, and errors in one line.

A stage writes its messages to its log file and to standard error, so that the terminal shows errors and progress
while a cluster keeps them. `python -m babelmill.<stage>` is also how a job is repeated by hand.
"""

import argparse
import logging
import sys
from collections.abc import Callable
from pathlib import Path

from babelmill.core.files import UserError, trouble

log = logging.getLogger("babelmill")
BUG = "error: unexpected; this is a bug in Babelmill, please report it with this text"


def arguments(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the arguments every stage has: `--settings` and `--log`."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--settings", required=True, type=Path, help="results/settings/{name}/{stage}.json")
    parser.add_argument("--log", type=Path, help="also write messages to this file")
    return parser


def folder(text: str) -> Path:
    """Argument type: the folder of a stage, given as itself or by its manifest.json, which is what a rule has."""
    path = Path(text)
    return path.parent if path.name == "manifest.json" else path


def configure_logging(path: Path | None) -> None:
    """Send this package's messages to standard error and, if given, to the file at `path`."""
    handlers: list[logging.Handler] = [logging.StreamHandler(sys.stderr)]
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        handlers.append(logging.FileHandler(path, mode="w", encoding="utf-8"))
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S", handlers=handlers, force=True
    )


def run(function: Callable[[argparse.Namespace], int | None], args: argparse.Namespace) -> int:
    """Run a stage and return its exit code: 1 after an error, which is one line if the user can fix it."""
    try:
        configure_logging(args.log)
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
