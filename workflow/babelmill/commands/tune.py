"""Fine-tune a model from anywhere for tasks, as the workflow does it with its own models.

    babelmill tune openai-community/gpt2 --task rte
    babelmill tune converted/eng --task rte_sound wsc_sound --seed 4 5

MODEL is a folder that transformers loads, or a repository on the Hub, which is fetched at one commit. The tasks are
those of the configuration (docs/fine-tuning.md). The files are as in results/tune. After an interruption, the same
command continues; what is finished is not tuned again.
"""

import argparse
import logging
from pathlib import Path
from typing import Any

from babelmill import __version__
from babelmill.commands.by_hand import languages_asked, made_by_hand
from babelmill.config import loading
from babelmill.config.datasets import how_tuned
from babelmill.core import escape, manifest
from babelmill.graph import Graph
from babelmill.release.elsewhere.given_model import add_model_arguments, compute_quietly, model_folder
from babelmill.stages import TuneStage

log = logging.getLogger("babelmill.tune")


def is_done(out: Path, settings: TuneStage, origin: dict[str, Any], tasks: list[Path]) -> bool:
    """Return whether a folder has the results of this model, these settings and these rows, by this release."""
    if manifest.missing(out):
        return False
    about, upstream = manifest.read(out), {task.as_posix(): manifest.digest(task) for task in tasks}
    there = [about[key] for key in ("version", "settings", "upstream")] + [about["figures"].get("model")]
    return there == [__version__, settings.raw, upstream, origin]


def seed(text: str) -> int:
    """Return a seed from an argument."""
    if not (text.isdecimal() and text.isascii() and int(text) < 2**32):
        raise argparse.ArgumentTypeError(f"{escape.line(text)}: expected a whole number from 0 to {2**32 - 1}")
    return int(text)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add = parser.add_argument
    add_model_arguments(parser)
    add("--task", required=True, nargs="+", help="fine-tune for these tasks, of config/tasks or of your configuration")
    add("--language", nargs="+", metavar="CODE", help="tune for these languages, if a task has several")
    add("--seed", type=seed, nargs="+", metavar="N", help="use these seeds (default: those of the task's protocol)")
    add("--out", type=Path, metavar="FOLDER", help="write here, a folder per task and seed (default: tuned/{MODEL})")
    loading.add_arguments(parser)


def run(args: argparse.Namespace) -> None:
    """Tune the model for each task with each seed, and write the same files as the stage `tune`."""
    graph = Graph(configuration := loading.from_arguments(args))
    covered = {
        name: languages_asked(f"the task {name}", "rows", configuration.task(name).covered, args.language)
        for name in args.task
    }
    folder, origin, model = model_folder(args, configuration.known_models())
    from babelmill import task  # imports the client of the Hub
    from babelmill.tune import tune  # imports PyTorch

    compute_quietly(args.threads)
    for name, languages in covered.items():
        tasks = [made_by_hand(graph, "task", task.run, code, name) for code in languages]
        for number in dict.fromkeys(args.seed or configuration.tuning(name).seeds):
            out = (args.out or Path("tuned", model)) / name / str(number)
            values = {"languages": languages, "covered": languages, "seed": number} | how_tuned(configuration, name)
            settings = TuneStage(**values, raw=values)
            if is_done(out, settings, origin, tasks):
                log.info("%s is finished", out)
            else:
                tune(folder, origin, settings, tasks, out / "checkpoints", out, tasks, {"model": origin})
            print(out)
