"""Write the results of an experiment: all scores, tables for papers, and a page (stage `experiment`).

    python -m babelmill.experiment --settings results/experiments/masking/settings.json --out experiments/masking

All models of the experiment must be complete. `results.csv` has one line per score and seed; `table.md` and `table.tex`
have the mean of each cell over its seeds; `page.html` is a report of the models that begins with the comparison.
"""

import argparse
import sys
from pathlib import Path

from babelmill.core import stage_entry
from babelmill.core.files import atomic_write, read_json, write_text
from babelmill.experiments.page import experiment_page
from babelmill.experiments.tables import comparison, latex, markdown, with_cells
from babelmill.reporting.results import read_all
from babelmill.reporting.table import score_table, write_csv


def run(args: argparse.Namespace) -> None:
    """Write the results of an experiment whose models are complete."""
    asked = read_json(args.settings)
    models = read_all(asked)
    scores = score_table(models)
    found = comparison(asked, models, scores)
    with atomic_write(args.out / "results.csv", "w") as file:
        write_csv(with_cells(asked, scores), file)
    texts = {"table.md": markdown(found), "table.tex": latex(found), "page.html": experiment_page(asked, models, found)}
    for name, text in texts.items():
        write_text(args.out / name, text)


def main() -> int:
    """Run the stage from the command line."""
    parser = stage_entry.arguments(__doc__)
    parser.add_argument("--out", required=True, type=Path, help="output folder, experiments/{experiment}")
    return stage_entry.run(run, parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
