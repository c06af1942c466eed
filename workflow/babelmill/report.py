"""Write the results of a group as one page for people and one table for programs (stage `report`).

    python -m babelmill.report results/settings/report/tier1.json

Here every model must be complete; `babelmill report tier1` writes the same from the results that exist. The page is one
file without scripts, and it loads nothing from elsewhere. `reporting/asked.py` defines the settings.
"""

import sys
from pathlib import Path
from typing import Any

from babelmill.core import stage_entry
from babelmill.core.files import atomic_write, write_text
from babelmill.reporting.asked import REPORT
from babelmill.reporting.page import page
from babelmill.reporting.results import ModelResults, read_all
from babelmill.reporting.table import score_table, write_csv


def write(asked: dict[str, Any], models: list[ModelResults], html: Path, table: Path) -> None:
    """Write the page and the table."""
    with atomic_write(table, "w") as file:
        write_csv(score_table(models), file)
    write_text(html, page(asked, models))


def run(job: stage_entry.Job[Any]) -> None:
    """Write the report of models that are complete."""
    write(job.settings, read_all(job.settings), job.out, job.out.with_suffix(".csv"))


if __name__ == "__main__":
    sys.exit(stage_entry.main(REPORT, run, __doc__))
