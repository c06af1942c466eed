"""Predict the codes of every row of a table, with a converted label model.

    babelmill predict converted/occ in.csv --text occ1 --context lang --out out.csv
    babelmill predict occ in.csv --text occ1 --out out.csv --config method=linear threshold=0.3 delimiter=";"

The table is a .csv, .tsv, .parquet or .jsonl file, plain or with .gz or .zst. The output has all columns of the table.
After them come the codes that the model finds, with their probabilities, and the likeliest codes. `out.review.csv` has
the rows to check. After an interruption, the same command continues. `--config` takes the keys of the section `predict`
(docs/labels.md).
"""

import argparse
from pathlib import Path

from babelmill.commands.by_hand import converted_folder, meant
from babelmill.config import loading
from babelmill.config.layers import Layer, validated
from babelmill.config.schema import Predict
from babelmill.core.files import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add = parser.add_argument
    add("model", type=converted_folder, metavar="MODEL", help="a label model, such as converted/occ (or just occ)")
    add("table", type=Path, metavar="TABLE", help="the table with the rows to predict")
    add("--text", required=True, metavar="COLUMN", help="read the text from this column")
    add("--context", metavar="COLUMN", help="read the context from this column")
    add("--out", required=True, type=Path, metavar="FILE", help="write this .csv or .tsv, which must not exist yet")
    add("--config", nargs="+", default=[], metavar="KEY=VALUE", help="keys of the section predict, such as top=3")


def run(args: argparse.Namespace) -> None:
    """Predict the rows of the table."""
    if not args.model.is_dir():
        raise UserError(f"{args.model}: no such folder{meant(args.model.name)}")
    given = {"text_column": args.text, "context_column": args.context} | loading.parse_overrides(args.config)
    asked = validated(Predict, given, [Layer({"predict": given}, "--config")], "predict")
    from babelmill.predict import held, predict, review_of  # imports PyTorch

    partial = args.out.with_name(f".{args.out.name}.partial")
    with held(partial):
        if there := [path for path in (args.out, review_of(args.out)) if path.exists()]:
            raise UserError(f"{there[0]} exists already; delete it, or name another file")
        predict(args.model, args.table, asked, args.out, partial)
