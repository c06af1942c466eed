"""Write a report on models from the existing results: scores, training curves, tokenizers, costs, versions.

    babelmill report tier1      # the models of a group
    babelmill report eng deu

`reports/tier1.html` is one page without scripts that needs no network; `reports/tier1.csv` has a line for each score.
Failed and missing results are shown as such. `snakemake reports/tier1.html` makes missing results first.
"""

import argparse
from pathlib import Path

from babelmill.commands.progress import DONE, status_of
from babelmill.config import loading
from babelmill.core import escape
from babelmill.core.words import plural
from babelmill.graph import Graph


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("names", nargs="+", metavar="NAME", help="a model or a group, or `all` for the targets")
    loading.add_arguments(parser)


def run(args: argparse.Namespace) -> None:
    """Write the report, and print where it is."""
    from babelmill.report import write  # imports the libraries that read results
    from babelmill.reporting.asked import asked_of
    from babelmill.reporting.results import read_all

    graph = Graph(loading.from_arguments(args))
    asked = asked_of(graph, "+".join(args.names))
    states = {}
    for model in asked["models"]:
        status = status_of(graph, model)
        of_stage = f"{status.state} ({status.stage})" if status.state not in DONE else status.state
        note = f"{status.note}{f' ({status.log})' if status.log else ''}".strip()
        states[model] = (of_stage, escape.without_keys(note))
    models = read_all(asked, states)
    html = Path("reports", f"{asked['name']}.html")
    write(asked, models, html, html.with_suffix(".csv"))
    done = sum(state in DONE for state, _ in states.values())
    print(f"{html}, {html.with_suffix('.csv')}: {plural(len(models), 'model')}, {done} of them complete")
