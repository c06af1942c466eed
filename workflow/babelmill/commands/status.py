"""Show how far models are: the stage that each is at, and how its training goes.

    babelmill status            # the targets, and all other models that have begun
    babelmill status tier1      # the models of a group
    babelmill status --watch    # renewed every 5 seconds until Ctrl-C, which never ends the run
    babelmill status --runs     # all training runs of this folder: steps, tokens, hours, scores

This command reads only files and asks neither Snakemake nor SLURM, so it works on any machine that sees the folder,
during a run and after it. The line shows the stage that a model is at, the step and speed of its training, and the last
message of a job that failed. `attempt` counts the attempts of a training job that SLURM runs or that `retries` repeat.
Columns that would be empty are left out. `babelmill why` says what would run next, and why.
"""

import argparse
import contextlib
import shutil
import subprocess
import sys
import time

from babelmill.commands.progress import STATES, Status, status_of
from babelmill.config import loading
from babelmill.core import escape
from babelmill.core.files import UserError
from babelmill.core.words import aligned, clock, plural
from babelmill.graph import ASKED, Graph

RIGHT = ("step", "loss", "tokens/s", "left", "attempt")  # columns of numbers


def status_table(statuses: list[Status], width: int) -> str:
    """Return a heading, one line per model, cut at `width` characters, without empty columns, and the sums."""
    rows = [("model", "stage", "state", "step", "loss", "tokens/s", "left", "attempt", "job", "")]
    for s in statuses:
        step = "" if s.steps is None else f"{s.step:,}/{s.steps:,}"
        loss = "" if s.loss is None else f"{s.loss:.3f}"
        speed = "" if s.tokens_per_second is None else f"{s.tokens_per_second:,.0f}"
        left = "" if s.left is None else clock(s.left)
        note = escape.without_keys(s.note)
        rows.append((s.model, s.stage, s.state, step, loss, speed, left, str(s.attempt or ""), s.job or "", note))
    columns = [column for column in zip(*rows, strict=True) if any(column[1:])]
    lines = aligned(list(zip(*columns, strict=True)), (column[0] in RIGHT for column in columns))
    counts = {state: sum(s.state == state for s in statuses) for state in ("converted", *STATES)}
    sums = f"{plural(len(statuses), 'model')}: " + ", ".join(f"{n} {state}" for state, n in counts.items() if n)
    shown = ("failed", "stopped", *(["running"] if len(statuses) == 1 else []))
    logs = [f"{s.model}: {s.log}" for s in statuses if s.state in shown and s.log]
    return "\n".join([*(line[:width] for line in lines), sums, *logs])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add = parser.add_argument
    add("names", nargs="*", metavar="NAME", help="a model or a group (default: targets and all begun)")
    add("--runs", action="store_true", help="list all training runs of this folder, of earlier settings, too")
    add("--watch", nargs="?", type=float, const=5.0, metavar="SECONDS", help="renew it (default: every 5 seconds)")
    loading.add_arguments(parser)


def text(args: argparse.Namespace, width: int) -> str:
    """Return how far models are: stage, step, loss, speed, time left, attempt and SLURM job; or all training runs."""
    if args.runs:
        from babelmill.commands.run_table import run_table  # imports what reads all results

        models = loading.from_arguments(args).models_of(args.names) if args.names else ()
        return "\n".join(line[:width] for line in run_table(models))
    graph = Graph(configuration := loading.from_arguments(args))
    ran = [path.stem for path in sorted(ASKED.glob("*.json")) if configuration.is_model(path.stem)]
    names = configuration.models_of(args.names) or dict.fromkeys([*configuration.targets(), *ran])
    return status_table([status_of(graph, model) for model in names], width)


def watch(seconds: float) -> None:
    """Show the status until Ctrl-C. Each view is this command in a new process, which reads all files again."""
    from rich.console import Console  # takes long to import
    from rich.live import Live
    from rich.text import Text

    command = [sys.executable, "-m", "babelmill", *sys.argv[1:]]
    view = Live(console=Console(file=sys.__stdout__), screen=True, auto_refresh=False)
    with contextlib.suppress(KeyboardInterrupt), view:
        while True:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            printed = escape.terminal(done.stdout.decode(errors="replace"))
            shown = f"{printed}{time.strftime('%H:%M:%S')}, Ctrl-C ends the view"
            view.update(Text(shown, no_wrap=True, overflow="crop"), refresh=True)
            time.sleep(seconds)


def run(args: argparse.Namespace) -> None:
    """Print the status, or show it until Ctrl-C."""
    if args.watch is not None and not 1 <= args.watch <= 3600:
        raise UserError(f"--watch {args.watch:g}: give 1 to 3600 seconds")
    if args.watch and sys.stdout.isatty():
        watch(args.watch)
    else:
        print(text(args, shutil.get_terminal_size().columns if sys.stdout.isatty() else 10_000))
