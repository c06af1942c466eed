"""Show what would run for a model, stage by stage, and why.

    babelmill why               # for the configuration's targets
    babelmill why eng

A result runs if it is missing: `snakemake -n` decides by the same. This command names the values that have changed
since the model's last run, and says which jobs run now. Modules that were edited since are named, too: an edit alone
makes nothing run.
"""

import argparse
from collections import Counter

from babelmill.commands.progress import under_way
from babelmill.config import loading
from babelmill.core.escape import line
from babelmill.graph import Graph, Result, edits, reasons
from babelmill.stages import STAGES


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    words = "a model, group or experiment (default: the configuration's targets)"
    parser.add_argument("models", nargs="*", metavar="MODEL", help=words)
    loading.add_arguments(parser)


def run(args: argparse.Namespace) -> None:
    """Print, stage by stage, what would run for a model and why."""
    graph = Graph(loading.from_arguments(args))
    for model in graph.configuration.models_of(args.models or ["all"]):
        results = graph.of_model(model)
        why = reasons(model, results)
        counts = Counter(each.stage.stage for each in results)
        print(model)
        for each in results:
            title = each.title_for(model) if each.stage.several or counts[each.stage.stage] > 1 else each.stage.stage
            print(line(f"  {title:<16} {under_way(each) or '; '.join(why[each.path]) or state_of(each)}"))
        for name in ("predict", "submission"):
            for part in STAGES[name].parts(graph.configuration.model(model)):
                result = graph.result(name, model, part)
                print(line(f"  {result.title:<16} {'up to date' if result.is_there else 'not there, or outdated'}"))
        for text in edits(each for each in results if not why[each.path]):
            print(line(text))


def state_of(result: Result) -> str:
    """Say that a job does not run: its result is there, or it is not needed."""
    if result.is_there:
        return f"up to date: {result.path}"
    return "not there; not needed, since what was made from it is there"
