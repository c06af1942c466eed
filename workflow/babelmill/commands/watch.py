"""Watch a run in the terminal: each model's stage, losses and GPUs, renewed every few seconds.

    babelmill watch             # the configuration's targets, and all other models that have begun
    babelmill watch tier1       # the models of a batch
    babelmill watch --once      # one picture, for a file or a mail

This is `babelmill status` with the losses of the trainings: a line for the training rows, diamonds for validation.
Trainings under way come first, then the newest, as many as fit. Like `status`, the command reads only files, so it
works on a login node, and it sees edits of the configuration. Ctrl-C ends the view and never the run.
"""

import argparse
import contextlib
import math
import multiprocessing
import resource
import shutil
import signal
import sys
import time
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, NamedTuple

from babelmill.commands.progress.model_status import Status, begun, newest_run, status_of
from babelmill.commands.terminal.curves import Point, curves
from babelmill.commands.terminal.status_table import status_table
from babelmill.config import loading
from babelmill.core import escape
from babelmill.core.files import UserError
from babelmill.core.words import plural
from babelmill.release.card.training_history import read_record
from babelmill.stages import STAGES

if TYPE_CHECKING:
    from rich.text import Text

EVERY = 5.0  # seconds
SHARE = 0.05  # of a processor's time may be spent on reading: with many models, the view is renewed less often
LONGEST = 30.0  # seconds from one view to the next, unless --every asks for more
WIDE, HIGH = 44, 10  # the least size of a picture, in characters
QUIET = ("converted", "waiting")
COLOURS = {"running": "green", "failed": "bold red", "queued": "yellow", "stopped": "yellow", "outdated": "yellow"}


class Training(NamedTuple):
    """The losses of a model's newest training run."""

    model: str
    running: bool  # whether it is under way
    changed: float  # when its record was last written, in seconds since the epoch
    trained: list[Point]
    measured: list[Point]
    steps: int  # the steps of the whole run


def training_of(status: Status) -> Training | None:
    """Read the losses of a model's newest training run, or else of its result; None if there are none."""
    for folder in filter(None, (newest_run(status.model), STAGES["train"].path(status.model, ""))):
        path = folder / "metrics.jsonl"
        try:
            record, changed = read_record(path), path.stat().st_mtime
        except OSError:  # not begun, or being replaced
            continue
        trained, measured = points_of(record, "train"), points_of(record, "validation")
        if trained:
            running = status.state == "running" and status.stage == "train"
            return Training(status.model, running, changed, trained, measured, status.steps or trained[-1].step)
    return None


def points_of(record: list[dict[str, Any]], kind: str) -> list[Point]:
    """Return the losses of one kind of lines; a loss that was no finite number is null in the record."""
    lines = [line for line in record if line["kind"] == kind]
    return [Point(line["step"], math.nan if line["loss"] is None else line["loss"]) for line in lines]


def picture_of(training: Training, width: int, height: int) -> list[str]:
    """Return a heading with the last losses, and the curves of a training: `height` lines in all."""
    heading = f"{training.model}: loss {training.trained[-1].loss:.3f}"
    if training.measured:
        heading += f", validation {training.measured[-1].loss:.3f}"
    return [heading[:width], *curves(training.trained, training.measured, training.steps, width, height - 1)]


def side_by_side(trainings: list[Training], width: int, height: int) -> list[str]:
    """Return the pictures of as many trainings as fit into `width` x `height` characters, all of one size."""
    across = min(max(1, width // (WIDE + 2)), len(trainings))
    if not across or height <= HIGH:
        return []
    down = min(height // (HIGH + 1), -(-len(trainings) // across))
    wide, high = min(width // across - 2, 2 * WIDE), min(height // down - 1, 2 * HIGH)
    lines: list[str] = []
    for first in range(0, min(len(trainings), across * down), across):
        pictures = [picture_of(training, wide, high) for training in trainings[first : first + across]]
        padded = [picture + [""] * (high - len(picture)) for picture in pictures]
        lines += ["", *("  ".join(f"{part:<{wide}}" for part in row).rstrip() for row in zip(*padded, strict=True))]
    return lines


def view(args: argparse.Namespace, width: int, height: int) -> list[str]:
    """Return the lines of the view, at most `height` lines of at most `width` characters.

    Where there is too little room for all models, those that are running, queued or in trouble stay.
    """
    configuration = loading.from_arguments(args)
    names = configuration.models_of(args.names) if args.names else begun(configuration)
    statuses = [status_of(configuration, model) for model in names]
    lines = status_table(statuses, width).splitlines()
    if len(lines) > height:
        busy = [status for status in statuses if status.state not in QUIET]
        lines = [
            *status_table(busy, width).splitlines(),
            f"and {plural(len(statuses) - len(busy), 'model')} that wait or are done",
        ]
    trainings = sorted(filter(None, map(training_of, statuses)), key=lambda each: (not each.running, -each.changed))
    return [line[:width] for line in (*lines, *side_by_side(trainings, width, height - len(lines)))][:height]


def send_view(sender: Connection, args: argparse.Namespace, width: int, height: int) -> None:
    """Send the lines of the view, or what is wrong: the configuration may be edited at this moment."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        sender.send(view(args, width, height))
    except (UserError, OSError, ValueError) as error:  # a file that another process replaces at this moment
        sender.send([f"error: {error}"])


def view_now(args: argparse.Namespace, width: int, height: int) -> list[str]:
    """Return `view` from a fork of this process, so that files which a process reads once are read again each time."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=send_view, args=(sender, args, width, height))
    process.start()
    sender.close()
    try:
        return [escape.terminal(line) for line in receiver.recv()]
    except EOFError:
        return ["error: the view could not be made; `babelmill status` says more"]
    finally:  # Ctrl-C may come in between
        receiver.close()
        process.terminate()
        process.join()


def seconds_of_views() -> float:
    """Return the processor time of all views so far. It does not depend on what else the machine does."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("names", nargs="*", metavar="NAME", help="a model or a batch (default: targets and all begun)")
    parser.add_argument("--every", type=float, default=EVERY, metavar="SECONDS", help=f"default: {EVERY:.0f}")
    parser.add_argument(
        "--once", action="store_true", help="print the view once; so it is, too, if the output is a file"
    )
    loading.add_arguments(parser)


def coloured(lines: list[str]) -> "Text":
    """Return the lines of the view with the colours of states and curves."""
    from rich.text import Text

    text = Text("\n".join(lines), no_wrap=True)
    for state, colour in COLOURS.items():
        text.highlight_regex(rf"(?m)(?<= ){state}(?= |$)", colour)
    text.highlight_regex("[\u2800-\u28ff]+", "cyan")
    return text


def run(args: argparse.Namespace) -> None:
    """Show the view until Ctrl-C, or print it once."""
    if not 1 <= args.every <= 3600:
        raise UserError(f"--every {args.every:g}: give 1 to 3600 seconds")
    if args.once or not sys.stdout.isatty():
        print(*view(args, *shutil.get_terminal_size((100, 60))), sep="\n")
        return
    from rich.console import Console  # takes long to import
    from rich.live import Live

    console = Console(file=sys.__stdout__)  # `view_now` has escaped what comes from outside; rich writes its own codes
    with Live(console=console, screen=True, auto_refresh=False) as live, contextlib.suppress(KeyboardInterrupt):
        while True:
            before = seconds_of_views()
            lines = view_now(args, console.width, console.height - 1)
            live.update(coloured([*lines, f"{time.strftime('%H:%M:%S')}, Ctrl-C ends the view"]), refresh=True)
            time.sleep(max(args.every, min(LONGEST, (seconds_of_views() - before) / SHARE)))
