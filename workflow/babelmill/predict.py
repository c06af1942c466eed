"""Predict the codes of every row of a table with a converted label model (stage `predict`).

    python -m babelmill.predict results/settings/predict/occ.census1880.json --threads 2

All columns of the table stay, in their order. After them come the predicted codes with their probabilities, and the
most probable codes. `babelmill predict` does the same by hand. The folder of the predictions also gets a manifest with
the same name.
"""

import sys
from pathlib import Path

import torch

from babelmill.config import schema
from babelmill.core import manifest, stage_entry
from babelmill.core.files import UserError, sha256
from babelmill.core.stage_entry import Job
from babelmill.labels.prediction import held, predict, review_of
from babelmill.runtime import gpu_claims
from babelmill.stages import PredictStage


def run(job: Job[PredictStage]) -> None:
    """Run the stage."""
    settings, out = job.settings, job.out.with_suffix(".csv")
    gpu_claims.claim(job.gpus)
    torch.set_num_threads(job.threads)
    path = Path(settings.table["file"])
    if sha256(path) != settings.table.get("sha256"):
        raise UserError(f"{path} has changed since {job.path} was written; run the workflow again")
    how = {key: value for key, value in settings.table.items() if key in schema.Predict.model_fields}
    asked = settings.predict.model_copy(update=how)
    converted = settings.folder("converted")
    with held(job.unfinished):
        figures = predict(converted, path, asked, out, job.unfinished)
        manifest.write(out.parent, settings, [out.name, review_of(out).name], [converted], figures, name=job.out.name)


if __name__ == "__main__":
    sys.exit(stage_entry.main(PredictStage, run, __doc__))
