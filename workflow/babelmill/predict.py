"""Predict the codes of every row of a table with a converted label model (stage `predict`).

    python -m babelmill.predict results/settings/predict/occ.census1880.json --threads 2

All columns of the table stay, in their order. After them come the predicted codes with their probabilities, and the
most probable codes. `babelmill predict` does the same by hand. The folder of the predictions also gets a manifest with
the same name.
"""

import logging
import sys
from pathlib import Path
from typing import Any

import torch

from babelmill.core import manifest, stage_entry
from babelmill.core.files import UserError, sha256
from babelmill.core.formats import DELIMITERS
from babelmill.core.stage_entry import Job
from babelmill.evaluation.kept import Kept
from babelmill.labels.prediction import (
    Prediction,
    TextColumns,
    check_threshold,
    held,
    in_words,
    write_review,
    write_table,
)
from babelmill.labels.predictor import Predictor, Wanted, identity_of, labels_of
from babelmill.runtime import gpu_claims
from babelmill.stages import PredictStage
from babelmill.tables.rows import Table
from babelmill.tables.text import Form
from babelmill.training.kernels.compilation import scoring_device

log = logging.getLogger("babelmill.predict")
READ = ("delimiter", "encoding", "quoting")  # the keys of `predict` that say how a table is read


def predict(
    folder: Path,
    table: Table,
    asked: TextColumns,
    out: Path,
    partial: Path,
    identity: dict[str, Any],
    wanted: Wanted,
    review: tuple[int, Path] | None = None,
) -> dict[str, Any]:
    """Write the predictions of a table to `out`, .csv or .tsv, which appears at the end. Return the figures.

    `partial` is the folder of the texts done so far, which this process has locked: a call with the same `identity`,
    which identifies the table's content and how it is read, continues from there. (This function adds the model and the
    version of the stage.) `review`: how many rows a person should check first, and the file to write them to.
    """
    for path in [out, *([review[1]] if review else [])]:
        if path.suffix not in DELIMITERS:
            raise UserError(f"{path}: predictions are written only as .csv or .tsv; change the name of the file")
    device = scoring_device()
    identity = identity | wanted._asdict() | {"columns": [asked.text, asked.context, asked.one_context]}
    identity["rows"] = table.rows
    identity |= {"model": identity_of(folder), "version": PredictStage.version}
    check_threshold(folder, labels_of(folder), wanted)
    prediction = Prediction(table, asked, Predictor(folder, device), wanted)
    figures = prediction.run(Kept(partial, identity))
    write_table(out, prediction.columns, prediction.rows())
    if review:
        write_review(review[1], review[0], prediction.columns, prediction.rows())
    figures["summary"] = in_words(out, figures)
    log.info("%s", figures["summary"])
    return figures


def run(job: Job[PredictStage]) -> None:
    """Run the stage."""
    settings, out = job.settings, job.out.with_suffix(".csv")
    gpu_claims.claim(job.gpus)
    torch.set_num_threads(job.threads)
    columns, path = settings.table, Path(settings.table["file"])
    asked = TextColumns(columns["text_column"], columns.get("context_column"), columns.get("context") or "")
    table = Table(path, asked.columns("predict.text_column", "predict.context_column"), Form.of("predict", columns))
    digest = sha256(path)
    if digest != columns.get("sha256"):
        raise UserError(f"{path} has changed since {job.path} was written; run the workflow again")
    identity = {"table": digest, "read": {key: columns[key] for key in READ if key in columns}}
    section, review = settings.predict, job.out.with_suffix(".review.csv")
    wanted, converted = Wanted(section.top, section.method, section.threshold), settings.folder("converted")
    with held(job.unfinished):
        checked = section.review, review
        figures = predict(converted, table, asked, out, job.unfinished, identity, wanted, checked)
        files = [out.name, review.name]
        manifest.write(out.parent, settings, files, [converted], figures, name=job.out.name)


if __name__ == "__main__":
    sys.exit(stage_entry.main(PredictStage, run, __doc__))
