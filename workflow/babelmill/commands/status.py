"""Show how far each model is, in one line per model.

    babelmill status            # the configuration's targets, and all other models that have begun
    babelmill status tier1      # the models of a batch
    babelmill status --watch    # renewed every 5 seconds until Ctrl-C, which never ends the run
    babelmill status --runs     # all training runs of this folder: steps, tokens, hours, scores

This command reads only files and asks neither Snakemake nor SLURM, so it works on any machine that sees the folder,
during a run and after it. The line shows the stage that a model is at, the step and speed of its training, and the last
message of a job that failed. `attempt` counts the attempts of a training job that SLURM runs or that `retries` repeat.
Columns that would be empty are left out. For a model that takes part in a challenge, lines below count its snapshots
and scores, and say which numbers of the leaderboard it has. If items of a suite stand in a model's training text, a
line says how many, and what the score is without them. `babelmill why` says what would run next, and why.
"""

import argparse
import contextlib
import multiprocessing
import shutil
import signal
import sys
import time
from concurrent.futures import ProcessPoolExecutor

from babelmill.commands.progress.model_status import begun, status_of
from babelmill.commands.terminal.status_table import status_table
from babelmill.config import loading
from babelmill.config.snapshots import FOLDER, name_of, points
from babelmill.config.submissions import rules_of_model, submission_of
from babelmill.config.suites import scores_asked, suites_of_model
from babelmill.core import escape, manifest
from babelmill.core.files import UserError, read_json
from babelmill.core.words import plural
from babelmill.evaluation.overlaps import lines_of_suite
from babelmill.graph import CHECKPOINTS, Graph
from babelmill.stages import STAGES


def challenge_line(graph: Graph, model: str) -> str | None:
    """Return how much there is of what a model's challenge asks for; None without a challenge."""
    configuration = graph.configuration
    rules = rules_of_model(configuration, model)
    if not rules:
        return None
    asked = points(configuration.model(model).run.snapshots)
    wanted = [name_of(point) for point in rules.points()]
    kept = snapshots_kept(graph, model) & set(wanted)
    of_model, of_each = scores_asked(configuration, model)
    done = sum(scores_there(graph, model, suite) for suite in suites_of_model(configuration, model))
    return (
        f"{model}: {rules.title}: {len(kept)} of {plural(len(wanted), 'snapshot')},"
        f" {done} of {plural(of_model + of_each * len(asked), 'score')}"
    ) + "".join(f"\n{model}: {numbers}" for numbers in [numbers_of_challenge(graph, model)] if numbers)


def snapshots_kept(graph: Graph, model: str) -> set[str]:
    """Return the names of the snapshots that the training of a model has kept."""
    run = CHECKPOINTS / graph.result("train", model).name
    return {path.stem for path in (run / FOLDER).glob("chck_*.json")}


def scores_there(graph: Graph, model: str, suite: str) -> int:
    """Return how many scores a suite's results have: that of the model, and one of each snapshot."""
    path = graph.result("score", model, suite).path / "scores.json"
    return 1 + len(read_json(path).get("snapshots", [])) if path.is_file() else 0


def numbers_of_challenge(graph: Graph, model: str) -> str:
    """Return which numbers a model has, and which are missing; "" if it has nothing to submit to a challenge.

    Several reasons why numbers are missing have a line each.
    """
    configuration = graph.configuration
    rules = rules_of_model(configuration, model)
    if rules is None or not STAGES["submission"].parts(configuration, model):
        return ""
    about = submission_of(configuration, model)
    missing, tuned = about["missing"], about.get("tuned", {})
    there: list[str] = []
    lacking: dict[str, list[str]] = {}
    for each in rules.numbers.values():
        why = [
            missing.get(task) or not_scored(graph, model, rules.tasks[task].suite, tuned.get(task, {}))
            for task in each.tasks
        ]
        if reason := "; ".join(dict.fromkeys(filter(None, why))):
            lacking.setdefault(reason, []).append(each.title)
        else:
            there.append(each.title)
    words = [f"{len(there)} of {len(rules.numbers)} numbers{': ' if there else ''}{', '.join(there)}"]
    words += [f"missing: {', '.join(titles)} ({reason})" for reason, titles in lacking.items()]
    submission = graph.result("submission", model)
    if submission.path.is_file():
        score = manifest.read(submission.path)["figures"]["leaderboard"]["score"]
        outdated = "" if submission.is_there else ", outdated"
        words.append(f"{submission.path}: {score:.2f} on the leaderboard{outdated}")
    return ("\n  " if len(lacking) > 1 else "; ").join(words)


def not_scored(graph: Graph, model: str, suite: str | None, tuned: dict[str, str]) -> str:
    """Return that a model has no scores on a suite, or by jobs of fine-tuning, yet; "" if it has all of them."""
    results = [graph.result("score", model, suite)] if suite else []
    results += [graph.result("tune", model, part) for part in tuned.values()]
    return "" if all(each.is_there for each in results) else "not scored yet"


def overlap_lines(graph: Graph, model: str) -> list[str]:
    """Return which items of its suites stand in a model's training text."""
    try:
        results = [graph.result("score", model, suite) for suite in suites_of_model(graph.configuration, model)]
        return [f"{model}: {line}" for each in results if each.is_there for line in lines_of_suite(each.path)]
    except UserError as error:
        return [f"{model}: {error}"]


def has_mistake(graph: Graph, model: str) -> bool:
    """Return whether a model cannot be made as the configuration asks for it; its row in the table says why."""
    try:
        graph.of_model(model)
    except UserError:
        return True
    return False


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
    names = configuration.models_of(args.names) if args.names else begun(configuration)
    sound = [model for model in names if not has_mistake(graph, model)]
    lines = [line for model in sound if (line := challenge_line(graph, model))]
    lines += [line for model in sound for line in overlap_lines(graph, model)]
    return "\n".join([status_table([status_of(graph, model) for model in names], width), *lines])


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
