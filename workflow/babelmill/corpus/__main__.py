"""Read a language's text, clean it, drop duplicates, and choose validation documents (stage `corpus`).

    python -m babelmill.corpus results/settings/corpus/eng-4cba5fd9a7.json --threads 2

The stage reads local files (`corpus.files`, `corpus.builtin`), or the files of the stage `download`. It writes
`train.parquet`, `validation.parquet` and `manifest.json`. Both tables have the column `text` and the metadata columns
of `record_batches.METADATA`; if `corpus.prompt_column` is set, also `prompt`; if `corpus.label_columns` is set, also
`context`, `labels` and `origin`. The manifest says how much was read, how much was dropped, and why.

There are three steps: all documents are read, cleaned and spooled (`record_batches.py`); the numbers of each document
say which stay, and for which split (`choosing.py`); these are written. This process reads, in the order of the files
(sorted) and of the documents in each file, and others clean. So every run writes the same bytes, on any number of
processes.

A document's digest decides whether it is for validation. So the choice does not change when documents are added, and
the same text is never in both splits. If a document has a prompt, the digest of the prompt decides. So all answers to
a question are in the same split, and a model that has learnt one of them is not scored on another. If a document has
labels, only the digest of its text decides. The stage reads `corpus.validation_files` first, and never uses their text
for training.
"""

# pyright: reportAttributeAccessIssue=false
# (pyarrow creates the functions of pyarrow.compute at import: a type checker cannot see them.)

import contextlib
import itertools
import logging
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from babelmill.config import identifiers, schema
from babelmill.config.inputs import UNCOUNTED_STEPS, set_aside
from babelmill.core import escape, local_sources, manifest, stage_entry
from babelmill.core.bars import Bar
from babelmill.core.files import UserError, atomic_write, sha256
from babelmill.core.formats import split_name
from babelmill.core.stage_entry import Job
from babelmill.core.words import and_words, plural, short
from babelmill.core.worker_pool import in_order
from babelmill.corpus.builtin import python_docs
from babelmill.corpus.choosing import Budget, choose
from babelmill.corpus.cleaning import Steps, decontamination, is_of, prepared
from babelmill.corpus.identification import Identification
from babelmill.corpus.reading import Reading, read
from babelmill.corpus.record_batches import MEASURES, RowGroups, Split, Spool
from babelmill.corpus.tally import Tally
from babelmill.stages import CorpusStage

EXPANDS = 4  # bytes of text per byte of a compressed file
WORTH_IT = 128 << 20  # bytes of text; to clean less is faster than to start workers
SPLITS = ("train", "validation")
ORIGIN = ("repository", "revision", "commit", "license")  # what the manifest says of a download
log = logging.getLogger("babelmill.corpus")


class Inputs(NamedTuple):
    """The files to read."""

    train: list[Path]
    validation: list[Path]
    local: list[Path]  # the user's own files, which the manifest lists
    hub: dict[str, str] | list[dict[str, str]] | None  # the origin of the download; a list if it has several parts
    text_columns: dict[Path, str]  # {file: column} of the files that have their own column of text


def each_once(paths: Iterable[str | Path]) -> list[Path]:
    """Return one path for each real file, sorted: several globs may reach the same file through links."""
    return [Path(path) for path in local_sources.distinct(str(Path(path)) for path in paths)]


def inputs(corpus: schema.Corpus, download: Path | None) -> Inputs:
    """Return the files that the configuration names, and those that the stage `download` wrote to `download`."""
    train, validation = (
        each_once(path for glob in globs for path in local_sources.files_of(glob, f"corpus.{key}:", corpus.format))
        for key, globs in (("files", corpus.files), ("validation_files", corpus.validation_files))
    )
    if not download:
        return Inputs(train, validation, [*train, *validation], None, {})
    figures = manifest.verify(download)["figures"]
    several = "parts" in figures
    parts = figures["parts"] if several else [figures]
    found: dict[str, list[Path]] = {split: [] for split in SPLITS}
    columns: dict[Path, str] = {}
    for part in parts:
        folder = download / part["repository"] if several else download
        for split, paths in found.items():
            own = [folder / name for name in part[split]]
            paths += own
            columns |= dict.fromkeys(own, part["text_column"]) if "text_column" in part else {}
    origins = [{key: p[key] for key in ORIGIN if key in p} for p in parts if p["train"] + p["validation"]]
    both = each_once([*train, *found["train"]]), validation or each_once(found["validation"])
    return Inputs(*both, [*train, *validation], origins if several else origins[0], columns)


def identification_of(settings: CorpusStage, asked: schema.LanguageFilter) -> tuple[Identification, str | None]:
    """Return which language the documents must be in, and the sha256 of the model; None for one that is installed."""
    path, content = asked.model, None
    if fetched := settings.folders("identifier"):
        path = str(fetched[0] / identifiers.FILE)
        content = manifest.verify(fetched[0])["figures"]["hub"]["sha256"]
    elif path != identifiers.PY3LANGID:
        content = sha256(path)
    if content != settings.identification.get("sha256", content):
        raise UserError(f"{path} has changed since the settings were written; run the workflow again")
    labels = frozenset(settings.identification["labels"])
    found = Identification(path, labels, asked.at_least)
    if not found.knows:
        raise UserError(
            f"corpus.language_filter of {settings.label()}: the model {asked.model} does not know the language;"
            " leave the filter out, or use another model"
        )
    return found, content


def text_size(path: Path) -> int:
    """Return about how many bytes of text are in a file, or 0 if it is missing (its reader will report this)."""
    size = path.stat().st_size if path.exists() else 0
    return size * (EXPANDS if split_name(path)[1] or path.suffix == ".parquet" else 1)


def documents_of(paths: list[Path], reading: Reading, tally: Tally, builtin: bool = False) -> Iterator[pa.RecordBatch]:
    """Yield the documents of files and, if they are asked for, those that come with Python."""
    yield from read(paths, reading, tally)
    for batch in python_docs() if builtin else ():
        tally.read += batch.num_rows
        yield batch


def spool(
    batches: Iterable[pa.RecordBatch], total: int, steps: Steps, rows: RowGroups, tally: Tally, job: Job[Any]
) -> int:
    """Clean documents of about `total` bytes, and add them to a spool. Return how many stay."""
    count = size = 0
    done = in_order(prepared, batches, steps, job.threads if total >= WORTH_IT else 1)
    with contextlib.closing(done), contextlib.closing(Bar(total)) as bar:
        for batch, part in done:
            tally.merge(part)
            rows.write(batch, batch.nbytes)
            count += batch.num_rows
            size += pc.sum(batch["bytes"]).as_py() or 0
            # The total is a guess, and there may be more.
            bar.show(min(size, 0.99 * total), f"reading: {tally.read:,} documents, {size / 1e6:,.0f} MB")
    return count


def run(job: Job[CorpusStage]) -> None:
    """Build the corpus of a language."""
    settings, out, (language,) = job.settings, job.out, job.settings.languages
    download, corpus = settings.folders("download"), settings.corpus
    sources, tally = inputs(corpus, next(iter(download), None)), Tally(corpus.on_error)
    reading, suites = Reading(corpus, sources.text_columns), settings.folders("suites")
    asked = corpus.language_filter
    identification, content = identification_of(settings, asked) if asked else (None, None)
    items = decontamination(suites) if suites else None
    budget = None if corpus.budget is None else Budget.parse(corpus.budget, settings.byte_premium or 1.0)
    steps = Steps(corpus, identification, items, budget)
    out.mkdir(parents=True, exist_ok=True)
    for left in out.glob(".*.parquet.*"):  # a process that was killed did not remove them
        left.unlink()
    outputs = [out / f"{split}.parquet" for split in SPLITS]
    with tempfile.NamedTemporaryFile(prefix=".spool.parquet.", dir=out) as file:
        empty, _ = prepared(pa.RecordBatch.from_pylist([], reading.of_documents), steps)
        with RowGroups(file.name, empty.schema, "lz4") as rows:
            sizes = [sum(map(text_size, paths)) for paths in (sources.validation, sources.train)]
            held = spool(documents_of(sources.validation, reading, tally), sizes[0], steps, rows, tally, job)
            batches = documents_of(sources.train, reading, tally, bool(corpus.builtin))
            spool(batches, sizes[1], steps, rows, tally, job)
        documents = Spool(file.name)
        log.info("choosing among %s", plural(documents.documents, "document"))
        share = 0.0 if sources.validation else corpus.validation_share
        *chosen, sample = choose(documents, held, corpus, budget, share, out, tally)
        with contextlib.ExitStack() as files:
            train, validation = both = [
                files.enter_context(Split(files.enter_context(atomic_write(path)), reading.of_documents))
                for path in outputs
            ]
            for first, batch in documents.batches([*reading.of_documents.names, *MEASURES]):
                for split, rows in zip(both, chosen, strict=True):
                    split.add(batch.filter(pa.array(rows[first : first + len(batch)])))
            check(language, corpus, tally, train, validation)
    splits, paths = dict(zip(SPLITS, both, strict=True)), [*sources.train, *sources.validation]
    figures = {
        **{key: {name: getattr(split, key) for name, split in splits.items()} for key in ("documents", *MEASURES)},
        "read": tally.read,
        "dropped": dict(tally.dropped),
        "changed": dict(tally.changed),
        "contains": dict(tally.contains),
        "damaged_files": tally.damaged_files,
        "categories": dict(train.by_category + validation.by_category),
        "licenses": dict(train.by_license + validation.by_license),
        "sources": listing(sources.local, settings),
        "budget": sample,
        "hub": sources.hub,
    }
    for key, given in (("with_prompt", corpus.prompt_column is not None), ("without_labels", corpus.label_columns)):
        if given:
            figures[key] = {name: getattr(split, key) for name, split in splits.items()}
    if asked:
        figures["identifier"] = {"model": asked.model, "sha256": content}
        figures["other_languages"] = dict(sorted(tally.languages.items()))
    if corpus.decontaminate:
        figures["suites"] = dict(sorted(tally.suites.items()))
        figures["bytes_with_test_texts"] = tally.with_items
    if tally.examples:
        figures["examples"] = {step: [*found.values()] for step, found in sorted(tally.examples.items())}
    words = and_words(train.words, train.bytes, settings.bytes_per_word)
    lost = f"; {tally.dropped.total():,} dropped" if tally.dropped else ""
    lost += f"; {plural(len(tally.damaged_files), 'file')} not read to the end" if tally.damaged_files else ""
    figures["summary"] = (
        f"{plural(train.documents, 'document')}{words}, {short(train.bytes)}B;"
        f" {validation.documents:,} for validation{lost}"
    )
    manifest.write(out, settings, [output.name for output in outputs], [*download, *suites], figures)
    remarks = tally.remarks(paths)
    if sample and not tally.dropped["over_budget"]:
        later = [f"corpus.{key}" for key in UNCOUNTED_STEPS if getattr(corpus, key)] if download else []
        why = f"; the download counts text before {', '.join(later)}" if later else ""
        remarks = itertools.chain([f"less text than corpus.budget: {sample}{why}"], remarks)
    for remark in remarks:
        log.warning("%s: %s", language, remark)
    log.info("%s: %s", language, figures["summary"])


def check(name: str, corpus: schema.Corpus, tally: Tally, train: Split, validation: Split) -> None:
    """Raise a UserError if there are no training documents, or no validation documents although the user wants some."""
    reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(tally.dropped.items())) or "none"
    alike = "prompt" if corpus.prompt_column is not None else "text" if corpus.label_columns else ""
    sides = f"; documents with the same {alike} stay in the same split" if alike else ""
    if missing := {asked for asked in corpus.categories if not any(is_of(found, asked) for found in tally.categories)}:
        found = escape.some(sorted(tally.categories)) or "none"
        message = f"corpus.categories of {name}: no document is in {escape.some(sorted(missing))}; the text has {found}"
        selected = {asked for asked in corpus.categories if not asked.startswith("-")}
        if selected and selected <= missing:
            raise UserError(message)
        log.warning("%s", message)
    if not train.documents:
        where = escape.some(corpus.files) or corpus.builtin or "the download"
        raise UserError(
            f"the corpus of {name} is empty: {plural(tally.read, 'document')} in {where}; dropped: {reasons};"
            f" used for validation: {validation.documents}{sides}"
        )
    if corpus.label_columns and train.without_labels == train.documents:
        columns = escape.some(map(repr, corpus.label_columns))
        raise UserError(
            f"no training text of {name} has a label: the columns {columns} (corpus.label_columns) are empty in all"
            f" {plural(train.documents, 'document')}"
        )
    if not validation.documents and corpus.validation_files:
        raise UserError(f"corpus.validation_files of {name} contain no document; dropped: {reasons}")
    if not validation.documents and corpus.validation_share:
        raise UserError(
            f"{name} has {plural(train.documents, 'document')}, and by chance none is in the validation split"
            f" (corpus.validation_share = {corpus.validation_share}{sides}); {set_aside(corpus)}"
        )


def listing(paths: list[Path], settings: CorpusStage) -> list[dict[str, Any]]:
    """Return path, bytes and sha256 of each local file.

    A UserError says that they are not those of the settings (any more): one may have changed while it was read.
    """
    form = settings.corpus.format
    for pattern, entry in settings.sources.items():  # those of the texts that come with Python are no dictionaries
        if isinstance(entry, dict) and local_sources.of_files(local_sources.files_of(pattern, "corpus", form)) != entry:
            raise UserError(f"{pattern}: the files changed since the settings were written; run the workflow again")
    content = local_sources.hashes(sorted(path.as_posix() for path in paths))
    return [{"path": path, "bytes": Path(path).stat().st_size, "sha256": found} for path, found in content.items()]


if __name__ == "__main__":
    sys.exit(stage_entry.main(CorpusStage, run, __doc__))
