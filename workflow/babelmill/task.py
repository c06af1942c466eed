"""Write the rows that a fine-tuning task has for a language, as two tables (stage `task`).

    python -m babelmill.task results/settings/task/rte_eng-0c7d5e91b2.json --threads 2

The stage reads the user's own files, or fetches them from a dataset on the Hugging Face Hub, at one commit. It writes
`train.parquet` and `test.parquet` (columns of `tasks.rows.SCHEMA`, or of `tasks.conll.SCHEMA` for sentences whose words
have labels) and `manifest.json`, whose figures count rows, classes, and test rows that are also trained on. With
`resplit`, `predicted.parquet` has rows that are only predicted. No data of a task ships with the project or with a
model.

This stage needs a network, which compute nodes often lack.
"""

import itertools
import logging
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from huggingface_hub.utils import disable_progress_bars

from babelmill.core import escape, local_sources, manifest, stage_entry
from babelmill.core.files import UserError, atomic_write
from babelmill.core.stage_entry import Job
from babelmill.core.words import plural
from babelmill.hub import revisions
from babelmill.hub.files import of_source
from babelmill.hub.sources import TASK
from babelmill.stages import TaskStage
from babelmill.tasks.conll import read_sentences
from babelmill.tasks.metrics import are_spans
from babelmill.tasks.rows import classes_of, keys_of, read_rows, resplit

SPLITS = ("train", "test")
FEW = 0.01  # share of the test words whose label may be one that no training word has
SAME = 0.5  # share of the rows of a file that may be in another one

log = logging.getLogger("babelmill.task")


def from_the_hub(settings: TaskStage, source: dict[str, Any]) -> tuple[dict[str, list[Path]], dict[str, Any]]:
    """Fetch the files of each split; return {split: paths}, in the order of the patterns, and where they come from."""
    files = of_source(TASK, source, below=True)
    names = {
        split: files.matching(patterns, f"the split {split} of {settings.task} in {settings.languages[0]}")
        for split, patterns in settings.files.items()
    }
    log.info("%s at %s", source["repository"], files.figures["commit"])
    paths = {split: [*files.get(found).values()] for split, found in names.items()}
    revisions.record(TASK.repo_type, **files.figures)
    return paths, {"hub": files.figures, "sources": []}


def from_here(settings: TaskStage) -> tuple[dict[str, list[Path]], dict[str, Any]]:
    """Find the user's own files of each split; return as `from_the_hub`."""
    any_name = "txt" if settings.kind == "tagging" else None  # en_ewt-ud-train.conllu or eng.testa say no format
    paths = {}
    for split, globs in settings.files.items():
        named = [path for glob in globs for path in local_sources.files_of(glob, "task file", any_name)]
        once = local_sources.distinct(named)
        paths[split] = [Path(path) for path in dict.fromkeys(named) if path in once]
    hashed = local_sources.hashes(sorted({str(path) for found in paths.values() for path in found}))
    return paths, {"hub": None, "sources": [{"path": path, "sha256": digest} for path, digest in hashed.items()]}


def read(paths: list[Path], settings: TaskStage) -> pa.Table:
    """Return the rows or sentences of files, in order.

    A UserError says that there are none, or that one file is a copy, or another version, of another one.
    """
    reader = read_sentences if settings.kind == "tagging" else read_rows
    tables = [reader(path, settings.columns, settings.task) for path in paths]
    if not any(map(len, tables)):
        raise UserError(f"{escape.some(paths, 3)}: tasks.{settings.task}: these files have no rows")
    keys = [{*keys_of(table)} for table in tables]
    for (first, mine), (second, other) in itertools.combinations(zip(paths, keys, strict=True), 2):
        if len(mine & other) > SAME * min(len(mine), len(other)):
            both = f"{len(mine & other):,} of its {plural(len(other), 'row')} are in {escape.line(first)}, too"
            raise UserError(f"{escape.line(second)}: tasks.{settings.task}: {both}; name only one of these files")
    return pa.concat_tables(tables)


def figures(tables: dict[str, pa.Table], settings: TaskStage) -> dict[str, Any]:
    """Return counts of rows and classes, and of test rows whose text is also trained on, or missing.

    Rare labels, such as a tag of one word, may be in the test words alone: they are classes, too, and count as wrong. A
    UserError says that labels are not those of a classification, or do not fit.
    """
    where, tagging = f"tasks.{settings.task}, {settings.languages[0]}", settings.kind == "tagging"
    of_rows = {split: table["labels" if tagging else "label"].to_pylist() for split, table in tables.items()}
    labels = {split: [*itertools.chain(*each)] if tagging else each for split, each in of_rows.items()}
    counts = {split: Counter(found) for split, found in labels.items()}
    classes = classes_of([label for found in counts.values() for label in found])
    check_classes(where, classes, counts, settings)
    if unknown := sorted(counts["test"].keys() - counts["train"].keys()):
        rows = sum(counts["test"][label] for label in unknown)
        told = f"the test rows have labels that no training row has: {escape.some(unknown)}"
        if not tagging or rows > FEW * len(labels["test"]):
            known = escape.some(sorted(counts["train"]))
            raise UserError(f"{where}: {told}; the classes are {known}; correct the files, or `label` of the task")
        log.warning("%s: %s; %s count as wrong", where, told, plural(rows, "such word"))
    seen, tested = {*keys_of(tables["train"])}, keys_of(tables["test"])
    if (copies := sum(key in seen for key in tested)) == len(tested):
        raise UserError(
            f"{where}: all {copies:,} test rows are training rows, too: the score would only say what the model has"
            " learnt by heart; name other files in `train` or `test` of the task"
        )
    return {
        "rows": {split: len(table) for split, table in tables.items()},
        **({"words": {split: len(found) for split, found in labels.items()}} if tagging else {}),
        "classes": classes,
        "counts": {split: dict(counts[split]) for split in SPLITS},
        "test_rows_in_train": copies,
        "test_rows_without_text": 0 if tagging else tables["test"]["whole"].to_pylist().count(False),
    }


def check_classes(where: str, classes: list[str], counts: dict[str, Counter[str]], settings: TaskStage) -> None:
    """Raise a UserError if labels are not those of a classification, or mark no spans, but have to."""
    if len(counts["train"]) < 2:
        raise UserError(f"{where}: all training rows have the label {classes_of(counts['train'])[0]!r}; add others")
    if settings.spans and not are_spans(classes):
        raise UserError(
            f"tasks.{settings.task}.metric = span_f1: labels such as B-PER, I-PER and O are expected; these files have"
            f" {escape.some(classes)}; set metric: accuracy, or correct `label`"
        )
    if {"-1", "0"} <= {*classes} and all(re.fullmatch(r"-?\d+", label) for label in classes):
        rows = plural(sum(found["-1"] for found in counts.values()), "row")
        raise UserError(f"{where}: {rows} have the label -1, which stands for no label; leave them out, or write names")
    numbers = [re.fullmatch(r"-?(\d+\.?\d*|\.\d+)", label) for label in classes]
    if all(numbers) and any(number and float(number[0]) % 1 for number in numbers):
        shown = escape.some(classes, 3)
        raise UserError(f"{where}: labels are decimals ({shown}), as of a regression; write names if they are classes")


def run(job: Job[TaskStage]) -> None:
    """Read the rows, check them and write them."""
    settings, out, of_words = job.settings, job.out, job.settings.kind == "tagging"
    disable_progress_bars()
    paths, origin = from_the_hub(settings, settings.source) if settings.source else from_here(settings)
    tables = {split: read(paths[split], settings) for split in SPLITS}
    if settings.resplit:
        tables = resplit(pa.concat_tables([*tables.values()]), **settings.resplit)
    found = figures(tables, settings) | origin
    who, count = f"{settings.task}, {settings.languages[0]}", found["test_rows_in_train"]
    if count:
        tested = plural(len(tables["test"]), "test row")
        log.warning("%s: %d of %s are also training rows: the score is too good", who, count, tested)
    for split, table in () if of_words else tables.items():
        if count := table["whole"].to_pylist().count(False):
            log.warning("%s: %d of %s lack a text", who, count, plural(len(table), f"{split} row"))
    out.mkdir(parents=True, exist_ok=True)
    for split, table in tables.items():
        with atomic_write(out / f"{split}.parquet") as file:
            pq.write_table(table, file, compression="zstd")
    rows, classes = plural(len(tables["train"]), "sentence" if of_words else "row"), len(found["classes"])
    found["summary"] = f"{rows} to learn from, {len(tables['test']):,} to test, {classes:,} classes"
    manifest.write(out, settings, [f"{split}.parquet" for split in tables], figures=found)
    log.info("%s: %s", who, found["summary"])


if __name__ == "__main__":
    sys.exit(stage_entry.main(TaskStage, run, __doc__))
