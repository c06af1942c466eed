"""Write the rows that a fine-tuning task has for a language, as two tables (stage `task`).

    python -m babelmill.task results/settings/task/rte_eng-0c7d5e91b2.json --threads 2

The stage reads the user's own files, or fetches them from a dataset on the Hugging Face Hub, at one commit. It writes
`train.parquet` and `test.parquet` (columns of `tasks.rows.SCHEMA`, or of `tasks.conll.SCHEMA` for sentences whose words
have labels) and `manifest.json`, whose figures count rows, classes, and test rows that are also trained on. With
`resplit`, `predicted.parquet` has rows that are only predicted. No data of a task ships with the project or with a
model.

This stage needs a network, which compute nodes often lack.
"""

import fnmatch
import itertools
import logging
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
from babelmill.tasks.rows import classes_of, read_rows, resplit

SPLITS = ("train", "test")
FEW = 0.01  # share of the test words whose label may be one that no training word has

log = logging.getLogger("babelmill.task")


def from_the_hub(settings: TaskStage, source: dict[str, Any]) -> tuple[dict[str, list[Path]], dict[str, Any]]:
    """Fetch the files of each split; return {split: paths}, in order, and where they come from."""
    files = of_source(TASK, source, below=True)
    names = {
        split: files.matching(patterns, f"the split {split} of {settings.task} in {settings.languages[0]}")
        for split, patterns in settings.files.items()
    }
    if settings.kind == "tagging":  # as of local files
        for split, patterns in settings.files.items():
            names[split].sort(key=lambda name: [fnmatch.fnmatchcase(name, each) for each in patterns].index(True))
    log.info("%s at %s", source["repository"], files.figures["commit"])
    paths = files.get(sorted({name for found in names.values() for name in found}))
    revisions.record(TASK.repo_type, **files.figures)
    return {split: [paths[name] for name in found] for split, found in names.items()}, files.figures


def figures(tables: dict[str, pa.Table]) -> dict[str, Any]:
    """Return counts of rows and classes, and of test rows whose text is also trained on.

    A UserError says that a label of the test rows is not among those of the training rows, or there is only one class.
    """
    labels = {split: table["label"].to_pylist() for split, table in tables.items()}
    classes = classes_of(labels["train"])
    if unknown := sorted({*labels["test"]} - {*classes}):
        raise UserError(
            f"the test rows have labels that no training row has: {escape.some(unknown)}; the classes are"
            f" {escape.some(classes)}; correct the files, or `label` of the task"
        )
    if len(classes) < 2:
        raise UserError(f"all training rows have the label {escape.line(classes[0])!r}: there is nothing to learn")
    texts = {
        split: [*zip(table["text"].to_pylist(), table["pair"].to_pylist(), strict=True)]
        for split, table in tables.items()
    }
    return {
        "rows": {split: len(table) for split, table in tables.items()},
        "classes": classes,
        "counts": {split: dict(Counter(labels[split])) for split in SPLITS},
        "test_rows_in_train": rows_trained_on(texts),
    }


def rows_trained_on(texts: dict[str, list[Any]]) -> int:
    """Return how many rows of the split `test` are training rows, too; raise a UserError if all of them are."""
    seen = {*texts["train"]}
    found = sum(text in seen for text in texts["test"])
    if found == len(texts["test"]):
        raise UserError(
            f"all {found:,} test rows are training rows, too: the score would only say what the model has learnt by"
            " heart; name other files in `train` or `test` of the task"
        )
    return found


def figures_of_sentences(tables: dict[str, pa.Table], settings: TaskStage) -> dict[str, Any]:
    """Return what `figures` returns, for sentences whose words have labels; `words` has the numbers of words.

    Rare labels, such as a tag of one word, may be in the test words alone: they are classes, too, and count as wrong. A
    UserError says that more than 1 % of the test words have such labels, there is only one class, or the labels mark no
    spans, but have to.
    """
    labels = {split: [*itertools.chain(*table["labels"].to_pylist())] for split, table in tables.items()}
    counts = {split: Counter(found) for split, found in labels.items()}
    if unknown := sorted(counts["test"].keys() - counts["train"].keys()):
        words = sum(counts["test"][label] for label in unknown)
        told = f"the test words have labels that no training word has: {escape.some(unknown)}"
        if words > FEW * len(labels["test"]):
            raise UserError(
                f"{settings.task}, {settings.languages[0]}: {told}; the classes are"
                f" {escape.some(sorted(counts['train']))}; correct the files, or `label` of the task"
            )
        log.warning(
            "%s, %s: %s; %s count as wrong", settings.task, settings.languages[0], told, plural(words, "such word")
        )
    classes = classes_of([label for found in counts.values() for label in found])
    if len(classes) < 2:
        raise UserError(f"all training words have the label {escape.line(classes[0])!r}: there is nothing to learn")
    if settings.spans and not are_spans(classes):
        raise UserError(
            f"tasks.{settings.task}.metric = span_f1 needs labels such as B-PER, I-PER and O; these files have"
            f" {escape.some(classes)}; set metric: accuracy, or correct `label`"
        )
    texts = {split: [*map(tuple, table["words"].to_pylist())] for split, table in tables.items()}
    return {
        "rows": {split: len(table) for split, table in tables.items()},
        "words": {split: len(found) for split, found in labels.items()},
        "classes": classes,
        "counts": {split: dict(counts[split]) for split in SPLITS},
        "test_rows_in_train": rows_trained_on(texts),
    }


def sentences_of(paths: dict[str, list[Path]], settings: TaskStage) -> dict[str, pa.Table]:
    """Return the sentences of each split, which `resplit` divides anew."""
    tables = {split: read_sentences(paths[split], settings.columns, settings.task) for split in SPLITS}
    return resplit(pa.concat_tables([*tables.values()]), **settings.resplit) if settings.resplit else tables


def run(job: Job[TaskStage]) -> None:
    """Read the rows, check them and write them."""
    settings, out = job.settings, job.out
    of_words = settings.kind == "tagging"
    disable_progress_bars()
    origin: dict[str, Any] = {}
    listing: list[dict[str, Any]] = []
    if settings.source:
        paths, origin = from_the_hub(settings, settings.source)
    else:
        any_name = "txt" if of_words else None  # names such as en_ewt-ud-train.conllu or eng.testa say no format
        named = {
            split: [path for glob in globs for path in local_sources.files_of(glob, "task file", any_name)]
            for split, globs in settings.files.items()
        }
        once = {split: local_sources.distinct(found) for split, found in named.items()}
        if of_words:  # the order of the patterns counts where rows are divided anew
            once = {split: [path for path in dict.fromkeys(named[split]) if path in once[split]] for split in named}
        paths = {split: [Path(path) for path in found] for split, found in once.items()}
        hashed = local_sources.hashes(sorted({path for found in once.values() for path in found}))
        listing = [{"path": path, "sha256": digest} for path, digest in hashed.items()]
    if of_words:
        tables = sentences_of(paths, settings)
        found = figures_of_sentences(tables, settings)
    else:
        tables = {split: read_rows(paths[split], settings.columns, settings.task) for split in SPLITS}
        found = figures(tables)
    found |= {"hub": origin or None, "sources": listing}
    if count := found["test_rows_in_train"]:
        log.warning(
            "%s, %s: %d of %d test rows are also training rows: the score is too good",
            *(settings.task, settings.languages[0], count, len(tables["test"])),
        )
    out.mkdir(parents=True, exist_ok=True)
    for split, table in tables.items():
        with atomic_write(out / f"{split}.parquet") as file:
            pq.write_table(table, file, compression="zstd")
    rows, classes = plural(len(tables["train"]), "sentence" if of_words else "row"), len(found["classes"])
    found["summary"] = f"{rows} to learn from, {len(tables['test']):,} to test, {classes:,} classes"
    manifest.write(out, settings, [f"{split}.parquet" for split in tables], figures=found)
    log.info("%s, %s: %s", settings.task, settings.languages[0], found["summary"])


if __name__ == "__main__":
    sys.exit(stage_entry.main(TaskStage, run, __doc__))
