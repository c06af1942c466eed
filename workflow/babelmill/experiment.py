"""Write the results of an experiment: all scores, tables for papers, and a page (stage `experiment`).

    python -m babelmill.experiment results/settings/experiment/masking.json

All models of the experiment must be complete. `results.csv` has one line per score and seed; `table.md` and `table.tex`
have the mean of each cell over its seeds; `page.html` is a report of the models that begins with the comparison.
"""

import sys
from typing import Any

from babelmill.core import stage_entry
from babelmill.core.files import atomic_write, write_text
from babelmill.experiments.tables import comparison, experiment_page, latex, markdown, with_cells
from babelmill.reporting.asked import EXPERIMENT
from babelmill.reporting.results import read_all
from babelmill.reporting.table import score_table, write_csv


def run(job: stage_entry.Job[Any]) -> None:
    """Write the results of an experiment whose models are complete."""
    asked, out = job.settings, job.out
    models = read_all(asked)
    scores = score_table(models)
    found = comparison(asked, models, scores)
    with atomic_write(out / "results.csv", "w") as file:
        write_csv(with_cells(asked, scores), file)
    texts = {"table.md": markdown(found), "table.tex": latex(found), "page.html": experiment_page(asked, models, found)}
    for name, text in texts.items():
        write_text(out / name, text)


if __name__ == "__main__":
    sys.exit(stage_entry.main(EXPERIMENT, run, __doc__))
