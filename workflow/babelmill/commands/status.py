"""Show how far models are: the stage that each is at, and how its training goes.

    babelmill status            # the targets, and all other models that have begun
    babelmill status tier1      # the models of a batch
    babelmill status --watch    # renewed every 5 seconds until Ctrl-C, which never ends the run
    babelmill status --runs     # all training runs of this folder: steps, tokens, hours, scores

This command reads only files and asks neither Snakemake nor SLURM, so it works on any machine that sees the folder,
during a run and after it. The line shows the stage that a model is at, the step and speed of its training, and the last
message of a job that failed. `attempt` counts the attempts of a training job that SLURM runs or that `retries` repeat.
Columns that would be empty are left out. `babelmill why` says what would run next, and why.
"""

import argparse
import contextlib
import dataclasses
import json
import multiprocessing
import shutil
import signal
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from babelmill.commands.progress.logs import last_words, metrics
from babelmill.config import loading
from babelmill.core import escape
from babelmill.core.files import UserError, read_json
from babelmill.core.words import aligned, clock, plural
from babelmill.graph import ASKED, CHECKPOINTS, Graph, Result
from babelmill.runtime.record import newest_log
from babelmill.runtime.run_lock import DEAD_AFTER, died_here
from babelmill.stages import STAGES, UNFINISHED

LOCKS = Path(".snakemake/locks")  # there is a file in it as long as a run holds this folder
STATES = ("failed", "running", "stopped", "waiting")  # of several jobs, the first is shown
RIGHT = ("step", "loss", "tokens/s", "left", "attempt")  # columns of numbers


@dataclasses.dataclass
class Status:
    """How far a model is; None means unknown or not applicable."""

    model: str
    stage: str = ""  # the present stage; if the model has several jobs of it, also how many of them are done
    # converted, or one of STATES. stopped: a job ended without an error message; waiting: it has not been tried.
    state: str = "waiting"
    # step, steps: optimizer steps done, and in the whole run.
    step: int | None = None
    steps: int | None = None
    loss: float | None = None  # loss of the last logged training step
    tokens_per_second: float | None = None
    left: float | None = None  # seconds of training that remain, at the present speed
    attempt: int | None = None  # attempt of the training job, counted from 1; None for the first one without SLURM
    job: str | None = None  # number of the SLURM job, and its machine where that is known
    note: str = ""  # the last message of a failed job, or what is being done
    # Where to read more; for training, the log of its newest attempt, which stays after the job.
    log: Path | None = None


def state_of(model: str, result: Result) -> Status:
    """Return the state, note and log of a job whose result is not there."""
    log = Path("logs", result.stage.stage, f"{result.name}.log")
    if not log.is_file():
        return Status(model)
    failed, note = last_words(log)
    if result.record.is_file() and not failed:  # it was made with other settings, and not tried again since
        return Status(model)
    running = any(LOCKS.glob("*"))
    return Status(model, state="failed" if failed else "running" if running else "stopped", note=note, log=log)


def add_training(status: Status, run: Path, running: bool) -> None:
    """Fill in how far a training run is, from its folder. `running`: training is the present stage."""
    if not (run / "attempt.json").is_file():
        return
    kept = newest_log(run)
    if running and kept and (status.log is None or kept.stat().st_mtime >= status.log.stat().st_mtime):
        status.log = kept
    attempt = json.loads((run / "attempt.json").read_text())
    status.attempt = attempt["attempt"] if attempt["attempt"] > 1 or attempt["job"] else None
    status.steps = attempt["steps"]
    trained = [line for line in metrics(run) if line["kind"] == "train"]
    saved = [int(path.stem.removeprefix("step-")) for path in run.glob("step-*.safetensors")]
    status.step = max([attempt["began_after_step"], *saved, *(line["step"] for line in trained[-1:])])
    if trained:
        status.loss, status.tokens_per_second = trained[-1]["loss"], trained[-1]["tokens_per_second"]
    lock = run / "lock.json"
    if not running or not lock.is_file():
        return
    owner = json.loads(lock.read_text())
    if time.time() - lock.stat().st_mtime < DEAD_AFTER and not died_here(owner):
        status.state = "running"
        status.job = f"{owner['job']} on {owner['host']}" if owner["job"] else owner["host"]
        if trained:
            status.note = validating(run)
            status.left = (attempt["tokens"] - trained[-1]["tokens"]) / trained[-1]["tokens_per_second"]


def validating(folder: Path) -> str:
    """Return how far the validation of a run is: "validating, 45 %"; "" if there is none."""
    try:
        found = json.loads((folder / "validating.json").read_text())
        return f"validating, {100 * found['share']:.0f} %"
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def status_of_jobs(model: str, results: list[Result], missing: list[Result]) -> Status:
    """Return the status of a stage that is not done; `missing`: those of its results that are not there."""
    status = min((state_of(model, each) for each in missing), key=lambda each: STATES.index(each.state))
    name = results[0].stage.stage
    status.stage = f"{name} {len(results) - len(missing)}/{len(results)}" if len(results) > 1 else name
    return status


def status_of(graph: Graph, model: str) -> Status:
    """Return how far a model is: at the stage with a job under way, or else at the first stage that is not done."""
    try:
        results = graph.of_model(model)
        missing = list(dict.fromkeys(results[-1].runs()))
    except UserError as error:
        return Status(model, state="failed", note=str(error))
    statuses = {}
    for stage in STAGES.values():
        if of_stage := [each for each in missing if each.stage is stage]:
            statuses[stage.stage] = status_of_jobs(model, [each for each in results if each.stage is stage], of_stage)
    under_way = [stage for stage, status in statuses.items() if status.state == "running"]
    stage = next(iter([*under_way, *statuses]), None)
    status = statuses[stage] if stage else status_of_tables(graph, Status(model, "convert", "converted"))
    training = results[-1].training
    if training and (stage == "train" or training.is_there):
        add_training(status, CHECKPOINTS / training.name, running=stage == "train")
    elsewhere = graph.configuration.model(model).run.checkpoints
    if stage == "train" and elsewhere and status.state != "running":
        status.note = "; ".join(filter(None, [status.note, f"{elsewhere} may have a later checkpoint"]))
    return status


def status_of_tables(graph: Graph, converted: Status) -> Status:
    """Add to a converted model's status how many tables are predicted.

    The state stays `converted` if none of the other tables was begun.
    """
    model = converted.model
    tables = [graph.result("predict", model, part) for part in STAGES["predict"].parts(graph.configuration, model)]
    missing = [each for each in tables if not each.is_there]
    note = f"{len(tables) - len(missing)}/{len(tables)} tables predicted" if tables else ""
    status = status_of_jobs(model, tables, missing) if missing else converted
    if status.state in ("converted", "waiting"):
        return dataclasses.replace(converted, note=note)
    done = []
    for table in missing:
        folder = UNFINISHED / "predict" / table.name  # `labels/windows.py` writes it
        windows = len(list(folder.glob("*.csv")))
        if windows and (identity := read_json(folder / "identity.json")):
            rows = identity["rows"]
            done.append(f"{table.part}: {min(windows * identity['window'], rows):,} of {rows:,} rows")
    return dataclasses.replace(status, note="; ".join(filter(None, [*done, status.note])))


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
    add("names", nargs="*", metavar="NAME", help="a model or a batch (default: targets and all begun)")
    add("--runs", action="store_true", help="list all training runs of this folder, of earlier settings, too")
    add("--watch", nargs="?", type=float, const=5.0, metavar="SECONDS", help="renew it (default: every 5 seconds)")
    loading.add_arguments(parser)


def text(args: argparse.Namespace, width: int) -> str:
    """Return how far models are: stage, step, loss, speed, time left, attempt and SLURM job; or all training runs."""
    if args.runs:
        from babelmill.commands.terminal.run_table import run_table  # imports what reads all results

        models = loading.from_arguments(args).models_of(args.names) if args.names else ()
        return "\n".join(line[:width] for line in run_table(models))
    graph = Graph(configuration := loading.from_arguments(args))
    ran = [path.stem for path in sorted(ASKED.glob("*.json")) if configuration.is_model(path.stem)]
    names = configuration.models_of(args.names) or dict.fromkeys([*configuration.targets(), *ran])
    return status_table([status_of(graph, model) for model in names], width)


def text_now(args: argparse.Namespace, width: int) -> str:
    """Return `text`, or what is wrong while the configuration or a result is being replaced."""
    try:
        return escape.terminal(text(args, width))
    except (UserError, OSError, ValueError) as error:
        return escape.terminal(f"error: {error}")


def watch(args: argparse.Namespace) -> None:
    """Show the status until Ctrl-C. Each view comes from a fork, so that files which are read once are read again."""
    from rich.console import Console  # takes long to import
    from rich.live import Live
    from rich.text import Text

    console, fork = Console(file=sys.__stdout__), multiprocessing.get_context("fork")
    with Live(console=console, screen=True, auto_refresh=False) as live, contextlib.suppress(KeyboardInterrupt):
        while True:
            with ProcessPoolExecutor(1, fork, signal.signal, (signal.SIGINT, signal.SIG_IGN)) as pool:
                shown = pool.submit(text_now, args, console.width).result()
            live.update(Text(f"{shown}\n{time.strftime('%H:%M:%S')}, Ctrl-C ends the view", no_wrap=True), refresh=True)
            time.sleep(args.watch)


def run(args: argparse.Namespace) -> None:
    """Print the status, or show it until Ctrl-C."""
    if args.watch is not None and not 1 <= args.watch <= 3600:
        raise UserError(f"--watch {args.watch:g}: give 1 to 3600 seconds")
    if args.watch and sys.stdout.isatty():
        watch(args)
    else:
        print(text(args, shutil.get_terminal_size().columns if sys.stdout.isatty() else 10_000))
