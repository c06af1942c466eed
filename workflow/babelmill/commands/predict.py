"""Predict the codes of every row of a table, with a converted label model.

    babelmill predict converted/occ in.csv --text occ1 --context lang --out out.csv

The table is a .csv, .tsv, .parquet or .jsonl file, plain or with .gz or .zst. The output has all columns of the table.
After them come the codes that the model finds, with their probabilities, and the likeliest codes. After an
interruption, the same command continues.
"""

import argparse
import os
from pathlib import Path
from typing import Any

from babelmill.config.values import delimiter
from babelmill.core.files import UserError, sha256
from babelmill.core.stage_entry import utf8
from babelmill.release.elsewhere.given_model import converted_folder

REVIEW = "also write the rows to check: up to N rows without text, then the N rows whose codes are least certain"
METHODS = ["blocks", "linear"]
ENCODINGS = ["utf-8", "latin-1", "cp1252"]
QUOTING = ["format", "csv", "none"]
QUOTED = "say whether quotation marks enclose fields (default: format, which is csv for .csv and none for .tsv)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add = parser.add_argument
    add(
        "model",
        type=converted_folder,
        metavar="MODEL",
        help="a label model, such as converted/occ (or just occ)",
    )
    add("table", type=Path, metavar="TABLE", help="the table with the rows to predict")
    add("--text", required=True, metavar="COLUMN", help="read the text from this column")
    add("--context", metavar="COLUMN", help="read the context from this column, if the model learnt with one")
    add("--context-is", type=utf8, metavar="TEXT", default="", help="use one context for all rows")
    add("--out", required=True, type=Path, metavar="FILE", help="write this .csv or .tsv, which must not exist yet")
    add("--top", type=int, default=5, metavar="N", help="write the N likeliest codes (default: 5)")
    add("--method", choices=METHODS, default="blocks", help="predict codes by this method (default: blocks)")
    add(
        "--threshold",
        type=float,
        metavar="P",
        help="linear: write further codes from probability P on (default: the best)",
    )
    add("--review", nargs=2, metavar=("N", "FILE"), help=REVIEW)
    add("--delimiter", help="split .csv and .tsv at this character (default: comma, tab)")
    add("--encoding", choices=ENCODINGS, default="utf-8", help="read .csv and .tsv in this encoding (default: utf-8)")
    add("--quoting", choices=QUOTING, default="format", help=QUOTED)
    cores = len(os.sched_getaffinity(0))
    add("--threads", type=int, default=cores, metavar="N", help="use N threads (default: all cores)")


def review_of(words: list[str] | None) -> tuple[int, Path] | None:
    """Return the number of rows and the file that --review names; None without --review."""
    if words is None:
        return None
    count, path = words
    if not count.isdecimal() or count == "0":
        raise UserError(f"--review {count}: a number of rows is expected, such as --review 500 review.csv")
    return int(count), Path(os.path.expanduser(path))


def refuse_existing(paths: list[Path]) -> None:
    """Raise a UserError if one of the files to write already exists."""
    for path in paths:
        if path.exists():
            raise UserError(f"{path} exists already; delete it, or name another file")


def refuse_delimiter(separator: str | None) -> None:
    """Raise a UserError if --delimiter cannot separate fields."""
    try:
        delimiter(separator or ",")
    except ValueError as error:
        raise UserError(f"--delimiter: {error}") from None


def run(args: argparse.Namespace) -> None:
    """Predict the rows of the table."""
    review = review_of(args.review)
    written = [args.out, *([review[1]] if review else [])]
    if review and review[1].resolve() == args.out.resolve():
        raise UserError(f"--review {review[1]} is the same file as --out: name another file")
    refuse_existing(written)
    if args.top < 1:
        raise UserError(f"--top {args.top}: at least 1 is expected")
    if args.threshold is not None and not 0 <= args.threshold <= 1:
        raise UserError(f"--threshold {args.threshold}: a probability from 0 to 1 is expected")
    if args.context and args.context_is:
        raise UserError(
            "--context names the column of the context, and --context-is gives one context for all rows: choose one"
        )
    refuse_delimiter(args.delimiter)
    import torch  # takes seconds

    from babelmill.predict import TextColumns, Wanted, held, labels_of, predict
    from babelmill.tables.table import Table

    labels_of(args.model)  # check the model first: a table may take minutes to read
    torch.set_num_threads(args.threads)
    asked, wanted = TextColumns(args.text, args.context, args.context_is), Wanted(args.top, args.method, args.threshold)
    table = Table(
        args.table,
        asked.columns("--text", "--context"),
        delimiter=args.delimiter,
        encoding=args.encoding,
        quoting=args.quoting,
        scratch=args.out.parent,
    )
    read = [args.delimiter, args.encoding, args.quoting]
    identity: dict[str, Any] = {"table": sha256(args.table), "read": read}
    partial = args.out.with_name(f".{args.out.name}.partial")
    with held(partial):
        refuse_existing(written)  # another run may have written them meanwhile
        predict(args.model, table, asked, args.out, partial, identity, wanted, review)
