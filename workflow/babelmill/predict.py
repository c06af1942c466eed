"""Predict the codes of every row of a table with a converted label model (stage `predict`).

    python -m babelmill.predict --settings results/settings/occ/predict.census1880.json --converted converted/occ \\
        --table data/census.parquet --partial results/predictions/occ/census1880 --out predictions/occ/census1880.csv \\
        --review predictions/occ/census1880.review.csv

All columns of the table stay, in their order. After them come the predicted codes with their probabilities, and the
most probable codes. `babelmill predict` does the same by hand. The folder of the predictions also gets a manifest with
the same name.
"""

import argparse
import logging
import sys
from pathlib import Path
from typing import Any

import torch

from babelmill.config.stage_settings import PredictSettings
from babelmill.core import manifest, stage_entry
from babelmill.core.files import UserError, sha256
from babelmill.labels.prediction import Prediction, TextColumns, check_threshold, in_words, write_review
from babelmill.labels.predictor import Predictor, Wanted, identity_of, labels_of
from babelmill.labels.windows import Windows, check_name, held, write_table
from babelmill.runtime import gpu_claims
from babelmill.settings import read_settings
from babelmill.stages import STAGES
from babelmill.tables.table import Table
from babelmill.training.arithmetic import scoring_device

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

    `partial` is the folder of the rows done so far, which this process has locked: a call with the same `identity`,
    which identifies the table's content and how it is read, continues from there. (This function adds the model and the
    version of the stage.) `review`: how many rows a person should check first, and the file to write them to.
    """
    for path in [out, *([review[1]] if review else [])]:
        check_name(path)
    device = scoring_device()
    identity = identity | wanted._asdict() | {"columns": [asked.text, asked.context, asked.one_context]}
    identity["rows"] = table.rows
    identity |= {"model": identity_of(folder), "version": STAGES["predict"].version}
    check_threshold(folder, labels_of(folder), wanted)
    predictor = Predictor(folder, device)
    windows = Windows(partial, identity)
    for warning in table.warnings:
        log.warning("%s", warning)
    prediction = Prediction(table, asked, predictor, wanted, windows)
    figures = prediction.run()
    write_table(out, prediction.columns, windows)
    if review:
        write_review(review[1], review[0], prediction.columns, windows)
    log.info("%s", in_words(out, figures))
    return figures


def run(args: argparse.Namespace) -> None:
    """Run the stage."""
    settings = read_settings(args.settings, PredictSettings)
    gpu_claims.claim(args.gpus)
    torch.set_num_threads(args.threads)
    columns = settings.table
    asked = TextColumns(columns["text_column"], columns.get("context_column"), columns.get("context") or "")
    table = Table(
        args.table,
        asked.columns("predict.text_column", "predict.context_column"),
        delimiter=columns.get("delimiter"),
        encoding=columns.get("encoding", "utf-8"),
        quoting=columns["quoting"],
        section="predict",
        scratch=args.out.parent,
    )
    digest = sha256(args.table)
    if digest != columns.get("sha256"):
        raise UserError(f"{args.table} has changed since {args.settings} was written; run the workflow again")
    identity = {"table": digest, "read": {key: columns[key] for key in READ if key in columns}}
    section = settings.predict
    wanted, review = Wanted(section.top, section.method, section.threshold), (section.review, args.review)
    with held(args.partial):
        figures = predict(args.converted, table, asked, args.out, args.partial, identity, wanted, review)
        files, name = [args.out.name, args.review.name], args.out.with_suffix(".json").name
        manifest.write(args.out.parent, settings, files, [args.converted], figures, name=name)


if __name__ == "__main__":
    parser = stage_entry.arguments(__doc__)
    parser.add_argument("--converted", required=True, type=Path, help="converted/{model}")
    parser.add_argument("--table", required=True, type=Path, help="the table whose rows are predicted")
    parser.add_argument(
        "--partial", required=True, type=Path, help="folder that keeps the predictions of killed attempts"
    )
    parser.add_argument("--out", required=True, type=Path, help="predictions/{model}/{input}.csv")
    parser.add_argument("--review", required=True, type=Path, help="predictions/{model}/{input}.review.csv")
    parser.add_argument("--threads", type=int, default=1, help="number of threads")
    parser.add_argument("--gpus", type=int, default=0, help="1 for a GPU, 0 for the CPU")
    sys.exit(stage_entry.run(run, parser.parse_args()))
