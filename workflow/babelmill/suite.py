"""Write the minimal pairs that an evaluation suite has for a language, as one table (stage `suite`).

    python -m babelmill.suite --settings results/settings/eng/suite.blimp.json --out results/suites/blimp/eng

The stage reads the user's own files, or fetches the files of the language from a dataset on the Hugging Face Hub, at
one commit (see `download`). It writes `pairs.parquet` (columns of `SCHEMA`) and `manifest.json`, whose figures
count pairs that may be wrong. No data of a suite ships with the project or with a model.

This stage needs a network, which compute nodes often lack.
"""

import argparse
import fnmatch
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from huggingface_hub.utils import disable_progress_bars

from babelmill.config.stage_settings import SuiteSettings
from babelmill.config.suites import located
from babelmill.core import escape, local_sources, manifest, stage_entry
from babelmill.core.files import UserError, atomic_write
from babelmill.core.formats import split_name
from babelmill.core.globs import distinct
from babelmill.core.words import plural
from babelmill.hub import revisions
from babelmill.hub.files import of_source
from babelmill.hub.sources import SUITE
from babelmill.settings import read_settings
from babelmill.tables.columns import Asked
from babelmill.tables.table import Table

log = logging.getLogger("babelmill.suite")

SCHEMA = pa.schema([(name, pa.string()) for name in ("good", "bad", "phenomenon", "paradigm")])
OF_FILE = "{file}"  # in place of a column's name: take the name of the file


def from_the_hub(settings: SuiteSettings, source: dict[str, Any]) -> tuple[list[Path], dict[str, Any]]:
    """Fetch the files that match the globs; return their paths, sorted, and where they come from."""
    key = revisions.dataset_key(source["repository"], source["revision"])
    files = of_source(SUITE, key, source, below=True)
    names = [name for name in files.names if any(fnmatch.fnmatchcase(name, pattern) for pattern in settings.files)]
    if not names:
        raise UserError(
            f"{files.where} has no file {escape.some(settings.files)} for {settings.name}; it has"
            f" {escape.some(files.names) or 'no files'}"
        )
    log.info("%s of %s at %s", plural(len(names), "file"), source["repository"], files.figures["commit"])
    paths = files.get(names)
    revisions.record(key, **files.figures)
    return [paths[name] for name in names], files.figures


def read_pairs(
    paths: Sequence[Path], columns: dict[str, str], suite: str = "mine", scratch: Path | None = None
) -> pa.Table:
    """Read the pairs of files, in order.

    Args:
        paths: .csv, .tsv, .jsonl or .parquet files, plain or compressed.
        columns: the keys of `schema.Suite` that say how to read the files. Without `quoting`, quotation marks
            enclose fields.
        suite: the name of the suite, for errors.
        scratch: the folder for unpacked copies.

    Returns:
        A table with the columns of SCHEMA. If the files have no phenomenon, it is "all"; if they have no paradigm, it
        is the phenomenon.

    Raises:
        UserError: a column is missing, a sentence is empty, or there is no pair.
    """
    section = f"suites.{suite}"
    named = {key: columns[key] for key in SCHEMA.names if columns.get(key, OF_FILE) != OF_FILE}
    sentences = ("good", "bad")
    asked = [Asked(name, f"{section}.{key}", key in sentences, key not in sentences) for key, name in named.items()]
    rows: list[dict[str, str]] = []
    for path in paths:
        table = Table(
            path,
            asked,
            delimiter=columns.get("delimiter"),
            encoding=columns.get("encoding", "utf-8"),
            quoting=columns.get("quoting", "csv"),
            section=section,
            scratch=scratch,
        )
        for warning in table.warnings:
            log.warning("%s", warning)
        places = {key: table.place(name) for key, name in named.items()}
        stem = Path(path.stem).stem if split_name(path)[1] else path.stem
        of_file = {key: stem for key, name in columns.items() if name == OF_FILE}
        for number, cells in enumerate(table, 1):
            row = {key: cells[place] for key, place in places.items()} | of_file
            for key in sentences:
                if not row[key].strip():
                    raise UserError(
                        f"{escape.line(path)}: row {number}: the {key} sentence ({columns[key]!r}) is empty; correct"
                        " the file"
                    )
            row["phenomenon"] = row.get("phenomenon") or "all"
            row["paradigm"] = row.get("paradigm") or row["phenomenon"]
            rows.append(row)
    if not rows:
        raise UserError(f"{escape.some(paths, 3)}: these files contain no pair of sentences")
    return pa.Table.from_pylist(rows, SCHEMA)


def figures(pairs: pa.Table) -> dict[str, Any]:
    """Return counts: of pairs, of phenomena and paradigms, and of pairs that may be wrong."""
    rows = pairs.to_pylist()
    sentences = [(row["good"], row["bad"]) for row in rows]
    words = [len(good.split()) != len(bad.split()) for good, bad in sentences]
    return {
        "pairs": len(rows),
        "phenomena": len({row["phenomenon"] for row in rows}),
        "paradigms": len({row["paradigm"] for row in rows}),
        "identical": sum(good == bad for good, bad in sentences),
        "duplicates": len(rows) - len(set(sentences)),
        "different_word_counts": sum(words),
    }


def run(args: argparse.Namespace) -> None:
    """Read the pairs, check them and write them."""
    settings = read_settings(args.settings, SuiteSettings)
    disable_progress_bars()
    origin: dict[str, Any] = {}
    listing: list[dict[str, Any]] = []
    if settings.source:
        paths, origin = from_the_hub(settings, settings.source)
    else:
        named = distinct(sorted({path for source in settings.sources for path in located(source)}))
        paths = [Path(path) for path in named]
        hashed = local_sources.hashes(named, args.out)
        listing = [{"path": path, "sha256": digest} for path, digest in hashed.items()]
    table = read_pairs(paths, settings.columns, settings.suite, args.out)
    found = figures(table) | {"hub": origin or None, "sources": listing}
    for key in ("identical", "duplicates"):
        if found[key]:
            log.warning("%s, %s: %d of %d pairs are %s", settings.suite, settings.name, found[key], len(table), key)
    args.out.mkdir(parents=True, exist_ok=True)
    with atomic_write(args.out / "pairs.parquet") as file:
        pq.write_table(table, file, compression="zstd")
    manifest.write(args.out, settings, ["pairs.parquet"], figures=found)
    log.info("%s, %s: %s", settings.suite, settings.name, plural(len(table), "pair"))


def main() -> None:
    """Run the stage from the command line."""
    parser = stage_entry.arguments(__doc__)
    parser.add_argument(
        "--out", required=True, type=stage_entry.folder, help="output folder, results/suites/{suite}/{language}"
    )
    sys.exit(stage_entry.run(run, parser.parse_args()))


if __name__ == "__main__":
    main()
