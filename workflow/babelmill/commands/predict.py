"""Predict the codes of every row of a table, with a converted label model.

    babelmill predict converted/occ in.csv --text occ1 --context lang --out out.csv

The table is a .csv, .tsv, .parquet or .jsonl file, plain or with .gz or .zst. The output has all columns of the table.
After them come the codes that the model finds, with their probabilities, and the likeliest codes. After an
interruption, the same command continues. Options are the keys of the section `predict` (docs/labels.md).
"""

import argparse
import os
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from babelmill.commands.by_hand import converted_folder
from babelmill.config.layers import worded
from babelmill.config.schema import Predict
from babelmill.core.files import UserError
from babelmill.core.stage_entry import utf8


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add, cores = parser.add_argument, len(os.sched_getaffinity(0))
    add("model", type=converted_folder, metavar="MODEL", help="a label model, such as converted/occ (or just occ)")
    add("table", type=Path, metavar="TABLE", help="the table with the rows to predict")
    add("--text", required=True, dest="text_column", metavar="COLUMN", help="read the text from this column")
    add("--context", dest="context_column", metavar="COLUMN", help="read the context from this column")
    add("--context-is", dest="context", type=utf8, metavar="TEXT", help="use one context for all rows")
    add("--out", required=True, type=Path, metavar="FILE", help="write this .csv or .tsv, which must not exist yet")
    add("--top", type=int, metavar="N", help="write the N likeliest codes (default: 5)")
    add("--method", help="predict codes by blocks (default) or linear")
    add("--threshold", type=float, metavar="P", help="linear: write further codes from probability P on")
    review = "also write the rows to check: the N rows whose codes are least certain"
    add("--review", nargs=2, metavar=("N", "FILE"), help=review)
    add("--delimiter", help="split .csv and .tsv at this character (default: comma, tab)")
    add("--encoding", help="read .csv and .tsv as utf-8 (default), latin-1 or cp1252")
    add("--quoting", help="whether quotation marks enclose fields: csv, none, or format (default: as the name says)")
    add("--threads", type=int, default=cores, metavar="N", help="use N threads (default: all cores)")


def section_of(args: argparse.Namespace) -> Predict:
    """Return the arguments as a section `predict`, whose types and bounds are theirs."""
    given: dict[str, Any] = {key: value for key, value in vars(args).items() if key in Predict.model_fields}
    if args.review:
        given["review"] = int(args.review[0]) if args.review[0].isdecimal() else args.review[0]
    given = {key: value for key, value in given.items() if value is not None}
    try:
        return Predict.model_validate(given)
    except ValidationError as error:
        raise UserError(worded(error, given, "predict")[1]) from None


def run(args: argparse.Namespace) -> None:
    """Predict the rows of the table."""
    asked = section_of(args)
    review = Path(os.path.expanduser(args.review[1])) if args.review else None
    written = list(filter(None, (args.out, review)))
    if len({path.resolve() for path in written}) < len(written):
        raise UserError(f"--review {review} is the same file as --out: name another file")
    import torch  # takes seconds

    from babelmill.predict import held, predict

    torch.set_num_threads(args.threads)
    partial = args.out.with_name(f".{args.out.name}.partial")
    with held(partial):
        if there := [path for path in written if path.exists()]:
            raise UserError(f"{there[0]} exists already; delete it, or name another file")
        predict(args.model, args.table, asked, args.out, partial, review, by_hand=True)
