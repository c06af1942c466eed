"""Fine-tune a model from anywhere for tasks, as the workflow does it with its own models.

    babelmill tune openai-community/gpt2 --task rte
    babelmill tune converted/eng --task rte_sound wsc_sound --seed 4 5

MODEL is a folder that transformers loads, or a repository on the Hub, which is fetched at one commit. The tasks are
those of the configuration (docs/fine-tuning.md). The files are as in results/tune. After an interruption, the same
command continues; what is finished is not tuned again.
"""

import argparse
from pathlib import Path
from typing import Any

from babelmill.commands import by_hand
from babelmill.config import loading
from babelmill.config.datasets import how_tuned
from babelmill.core import escape
from babelmill.graph import Graph
from babelmill.stages import TuneStage


def seed(text: str) -> int:
    """Return a seed from an argument."""
    if not (text.isdecimal() and text.isascii() and int(text) < 2**32):
        raise argparse.ArgumentTypeError(f"{escape.line(text)}: expected a whole number from 0 to {2**32 - 1}")
    return int(text)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add = parser.add_argument
    by_hand.add_arguments(parser, "tuned/{MODEL}, with a folder per task and seed")
    add("--task", required=True, nargs="+", help="fine-tune for these tasks, of config/tasks or of your configuration")
    add("--seed", type=seed, nargs="+", metavar="N", help="use these seeds (default: those of the task's protocol)")


def run(args: argparse.Namespace) -> None:
    """Tune the model for each task with each seed, and write the same files as the stage `tune`."""
    graph = Graph(configuration := loading.from_arguments(args))
    covered = {
        name: by_hand.languages_asked(graph, "task", name, configuration.task(name).covered, args.language)
        for name in args.task
    }
    folder, origin, model = by_hand.model_folder(args, configuration.known_models())
    from babelmill.tune import tune  # imports PyTorch

    by_hand.quiet_transformers()
    for name, languages in covered.items():
        made_from = {"tasks": by_hand.made_by_hand(graph, "task", languages, name)}
        for number in dict.fromkeys(args.seed or configuration.tuning(name).seeds):
            out = (args.out or Path("tuned", model)) / name / str(number)
            values = {"languages": languages, "covered": languages, "seed": number} | how_tuned(configuration, name)
            values |= {"made_from": made_from, "origin": origin}  # not where the model is: it may be in a user's cache
            with_model: dict[str, Any] = values | {"made_from": made_from | {"export": [str(folder)]}}
            settings = TuneStage(**with_model, raw=values)
            if not by_hand.is_done(out, settings):
                tune(settings, out / "checkpoints", out)
            print(out)
