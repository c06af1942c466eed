"""Write the results of an experiment: all scores, tables for papers, and a page (stage `experiment`).

    python -m babelmill.experiment --settings results/experiments/masking/settings.json --out experiments/masking

All models of the experiment must be complete. `results.csv` has one line per score and seed; `table.md` and `table.tex`
have the mean of each cell over its seeds; `page.html` is a report of the models that begins with the comparison.
"""

import argparse
import sys
from pathlib import Path

from babelmill.core import manifest, stage_entry
from babelmill.core.files import atomic_write, read_json, write_text
from babelmill.experiments.asked import FILES
from babelmill.experiments.page import experiment_page
from babelmill.experiments.tables import latex, markdown, table_of, write_csv
from babelmill.reporting.asked import MADE_WITH, made_with
from babelmill.reporting.results import read_all


def run(args: argparse.Namespace) -> None:
    """Write the results of an experiment whose models are complete."""
    asked = read_json(args.settings)
    models = read_all(asked)
    table = table_of(asked, models)
    args.out.mkdir(parents=True, exist_ok=True)
    with atomic_write(args.out / "results.csv", "w") as file:
        write_csv(asked, models, file)
    texts = {"table.md": markdown(table), "table.tex": latex(table), "page.html": experiment_page(asked, models, table)}
    for name, text in texts.items():
        write_text(args.out / name, text)
    record = made_with(args.settings, asked, [args.out / name for name in FILES])
    manifest.write_sealed(args.settings.with_name(MADE_WITH), record)


def main() -> int:
    """Run the stage from the command line."""
    parser = stage_entry.arguments(__doc__)
    parser.add_argument("--out", required=True, type=Path, help="output folder, experiments/{experiment}")
    return stage_entry.run(run, parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
