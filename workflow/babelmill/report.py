"""Write the results of a batch as one page for people and one table for programs (stage `report`).

    python -m babelmill.report --settings results/reports/tier1/settings.json --out reports/tier1.html \\
        --csv reports/tier1.csv

Here every model must be complete; `babelmill report tier1` writes the same from the results that exist. The page is one
file without scripts, and it loads nothing from elsewhere. `reporting/asked.py` defines the settings.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

from babelmill.core import stage_entry
from babelmill.core.files import atomic_write, read_json, write_text
from babelmill.reporting.page import page
from babelmill.reporting.results import ModelResults, read_all
from babelmill.reporting.table import score_table, write_csv


def write(asked: dict[str, Any], models: list[ModelResults], html: Path, table: Path) -> None:
    """Write the page and the table."""
    with atomic_write(table, "w") as file:
        write_csv(score_table(models), file)
    write_text(html, page(asked, models))


def run(args: argparse.Namespace) -> None:
    """Write the report of models that are complete."""
    asked = read_json(args.settings)
    write(asked, read_all(asked), args.out, args.csv)


def main() -> int:
    """Run the stage from the command line."""
    parser = stage_entry.arguments(__doc__)
    parser.add_argument("--out", required=True, type=Path, help="reports/{batch}.html")
    parser.add_argument("--csv", required=True, type=Path, help="reports/{batch}.csv")
    return stage_entry.run(run, parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
