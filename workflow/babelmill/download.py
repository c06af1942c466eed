"""Download datasets of the Hugging Face Hub, each at one commit, as files on disk (stage `download`).

    python -m babelmill.download results/settings/download/eng-77ab01c3de.json --threads 2

A branch such as `main` is resolved to a commit once. The manifest states this commit, and `results/hub.lock` keeps it.
So a branch that moves later changes no run.

Without a budget the stage fetches all data files. With `corpus.budget` it fetches them in the order of a hash of their
names, and counts their text as they arrive, as the stage `corpus` will count it, until they hold 1.25 times the budget.
(From these files, the stage `corpus` draws a sample of the budget's size. Since there is more text than the budget, the
sample is not simply all text of the first files, and documents that are also in the validation text can be dropped.)
Which files are fetched depends only on the repository, the budget and the text. So an interrupted download continues,
and a larger budget adds to the files of a smaller one: files in the user's Hugging Face cache are not fetched again.

Files come through that cache (`HF_HOME`) and are hard links into it where the file system allows. `HF_ENDPOINT`,
`HF_TOKEN` and `HF_HUB_OFFLINE` mean what they mean to huggingface_hub. This stage adds two things that the client does
not do: it repeats requests if the server asks to try again later, and it checks the sha256 of each file.

The stage needs a network, which compute nodes often lack. The stage `corpus` reads its files.
"""

import itertools
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from huggingface_hub.utils import disable_progress_bars

from babelmill.config import canonical, schema
from babelmill.config.inputs import UNCOUNTED
from babelmill.core import manifest, stage_entry
from babelmill.core.bars import Bar
from babelmill.core.escape import line, some
from babelmill.core.files import UserError, atomic_folder, link_or_copy
from babelmill.core.stage_entry import Job
from babelmill.core.words import plural
from babelmill.corpus import readers
from babelmill.corpus.cleaning import clean
from babelmill.corpus.digests import DigestSet, digests_of
from babelmill.corpus.reading import Reading
from babelmill.corpus.sampling import Budget
from babelmill.corpus.tally import Tally
from babelmill.hub import revisions
from babelmill.hub.data_files import DataFiles, data_files, in_order
from babelmill.hub.files import Files, licence_of, of_source
from babelmill.hub.sources import DATASET
from babelmill.stages import DownloadStage

log = logging.getLogger("babelmill.download")
MARGIN = 1.25  # how many times the budget to fetch
HELD_OUT = 0.02  # part of the budget to fetch as validation text, at least one file
AT_ONCE = 8  # the largest number of files to fetch together


@dataclass(frozen=True)
class DatasetPart:
    """Holds the files that are needed from a repository."""

    asked: dict[str, Any]  # the repository's entry in the settings
    source: Files  # all files of the repository
    files: DataFiles  # names of the data files
    license: str | None = None  # the licence that its card names, if it names one
    paths: dict[str, Path] = field(default_factory=dict)  # {name: path in the cache} of the files that were fetched

    @property
    def repository(self) -> str:
        return self.asked["repository"]

    def fetch(self, names: list[str], arrived: Callable[[int], None] | None = None) -> dict[str, Path]:
        """Download those of the named files that are missing. Return {name: path in the cache} of all named files.

        While bytes arrive, `arrived` is called with their number.
        """
        if lacking := [name for name in names if name not in self.paths]:
            self.paths.update(self.source.get(lacking, arrived))
        return {name: self.paths[name] for name in names}


def open_part(asked: dict[str, Any]) -> DatasetPart:
    """Find the commit and the data files of a repository."""
    source = of_source(DATASET, asked, below=True)
    card = source.path("README.md")
    files = data_files(source.names, asked, card, source.where)
    total = sum(source.sizes[name] for name in files.train + files.validation)
    count = plural(len(files.train + files.validation), "file")
    log.info("%s at %s has %s, %.1f MB (%s)", asked["repository"], source.figures["commit"], count, total / 1e6, files)
    return DatasetPart(asked, source, files, licence_of(card))


def wanted(parts: list[DatasetPart], split: str) -> list[tuple[DatasetPart, str]]:
    """Return the files of a split in the order in which a budget needs them: one file of each part in turn."""
    rounds = itertools.zip_longest(*([(p, name) for name in in_order(getattr(p.files, split))] for p in parts))
    return [file for files in rounds for file in files if file is not None]


class Counter:
    """Counts documents or bytes of the text of files, as the section `corpus` would keep it."""

    def __init__(self, asked: dict[str, Any], byte_premium: float, scratch: Path):
        """Set up a count. `asked` is the result of `inputs.counted`, `scratch` the folder for temporary copies."""
        values = canonical.from_file({"corpus": asked | UNCOUNTED}, {"corpus": schema.Corpus})["corpus"]
        self.corpus = schema.Corpus.model_validate(values)
        assert self.corpus.budget is not None, "only downloads with a budget count"
        self.budget = Budget.parse(self.corpus.budget, byte_premium)
        self._scratch = scratch
        self._seen = DigestSet()

    def of(self, path: Path, text_column: str | None) -> int:
        """Return how much text a file adds, in the budget's unit. Documents of earlier files do not count again.

        A UserError says that the file cannot be read (see `readers.read`), or `corpus.categories` is set and the file
        has no categories.
        """
        tally, corpus, total = Tally(self.corpus.on_error), self.corpus, 0
        reading = Reading(corpus, {path: text_column} if text_column else {}, self._scratch)
        for batch in readers.read(path, reading, tally):
            kept = clean(batch, corpus, tally)
            if corpus.deduplicate:
                kept = kept.filter(pa.array(self._seen.add(digests_of(kept))))
            total += int(self.budget.sizes(kept).sum())
        if corpus.categories and tally.read and not tally.categories:
            raise UserError(f"{line(path.name)}: no document has a `category`, and corpus.categories asks for some")
        if not total:
            log.warning("%s adds no text: the filters drop all its %d documents", line(path.name), tally.read)
        return total


def how_many(counts: list[int], wanted: float) -> int:
    """Return how many files to fetch next: as many as the sizes of the files so far show to be needed."""
    lacking = wanted - sum(counts)
    largest = max(counts, default=0)
    return max(1, min(AT_ONCE, int(lacking / largest))) if largest else 1


def check_columns(path: Path, asked: dict[str, Any], text_column: str | None) -> None:
    """Read the beginning of a file. Raise a UserError if columns (it lists them) or documents are missing there.

    `asked`: keys of the section `corpus`, without those at their defaults. `text_column`: the file's own, if it has
    one.
    """
    values: dict[str, Any] = {"text_column": "text", "document": "line"} | asked
    own, tally = {path: text_column} if text_column else {}, Tally("skip")
    first = next(readers.read(path, Reading(schema.Corpus.model_construct(None, **values), own), tally), None)
    if tally.dropped["malformed"] and not (first and first.num_rows):
        raise UserError(f"{line(path.name)}: its beginning contains no document of this format; see the lines above")


class Arriving:
    """Shows the progress bar of a download. `text` returns the bar's text, which says what has been fetched so far.

    The bar is full at `total`. If it does not count bytes, the caller sets `done`.
    """

    def __init__(self, total: float, text: Callable[[], str], of_bytes: bool = False):
        # done: how much of the total is done
        self.done, self._total, self._text, self._of_bytes = 0.0, total, text, of_bytes
        self._bar, self._megabytes, self._lock = Bar(total), 0.0, threading.Lock()

    def bytes(self, count: int) -> None:
        with self._lock:  # several files arrive at once
            self._megabytes += count / 1e6
            if self._of_bytes:
                self.done = min(self.done + count, 0.999 * self._total)  # full only after the check of all files
            self._bar.show(self.done, f"{self._text()}, {self._megabytes:,.1f} MB")

    def end(self) -> None:
        """Show that all files are there. (Files that were in the cache do not count as arrived.)"""
        self._bar.show(self._total, f"{self._text()}, {self._megabytes:,.1f} MB")
        self._bar.close()


def until_full(
    parts: list[DatasetPart], split: str, limit: float, counter: Counter
) -> Iterator[tuple[DatasetPart, str, int]]:
    """Fetch files until they hold `limit` (in the budget's unit). Yield each file, and how much of the unit it holds.

    At least one file of each part is fetched.
    """
    waiting, counts, unit = wanted(parts, split), [], counter.budget.unit
    total, least = len(waiting), sum(bool(getattr(part.files, split)) for part in parts)
    arriving = Arriving(
        limit, lambda: f"{split}: {len(counts)} of {total} files, {sum(counts):,} of {limit:,.0f} {unit}"
    )
    while waiting and (sum(counts) < limit or len(counts) < least):
        together = how_many(counts, limit)
        batch, waiting = waiting[:together], waiting[together:]
        for part in parts:
            if names := [name for owner, name in batch if owner is part]:
                part.fetch(names, arriving.bytes)
        for part, name in batch:
            if sum(counts) >= limit and len(counts) >= least:
                break
            counts.append(counter.of(part.fetch([name])[name], part.asked.get("text_column")))
            arriving.done = min(sum(counts), limit)
            yield part, name, counts[-1]
        log.info(
            "%s: %d of %d files, %s of %s %s", split, len(counts), total, f"{sum(counts):,}", f"{limit:,.0f}", unit
        )
    arriving.end()


def take(parts: list[DatasetPart], counter: Counter) -> list[DatasetPart]:
    """Fetch the files that a budget needs. Return the parts with only these files."""
    limits = {"train": MARGIN * counter.budget.limit, "validation": HELD_OUT * counter.budget.limit}
    taken = {
        split: [(part, name) for part, name, _ in until_full(parts, split, limit, counter)]
        for split, limit in limits.items()
    }

    def of(part: DatasetPart, split: str) -> list[str]:
        return sorted(name for owner, name in taken[split] if owner is part)

    return [replace(part, files=DataFiles(of(part, "train"), of(part, "validation"))) for part in parts]


def take_all(parts: list[DatasetPart], asked: dict[str, Any]) -> None:
    """Fetch all data files. The smallest file of each part is the first, so that its columns are checked early."""
    size = sum(part.source.sizes[name] for part in parts for name in part.files.train + part.files.validation)
    count = plural(sum(len(part.files.train + part.files.validation) for part in parts), "file")
    arriving = Arriving(size, lambda: f"download of {count}", of_bytes=True)
    for part in parts:
        files = part.files.train or part.files.validation
        smallest = min(files, key=lambda name: (not part.source.sizes[name], part.source.sizes[name], name))
        path = part.fetch([smallest], arriving.bytes)[smallest]
        check_columns(path, asked, part.asked.get("text_column"))
    for part in parts:
        part.fetch(part.files.train + part.files.validation, arriving.bytes)
    arriving.end()


def describe(settings: DownloadStage, parts: list[DatasetPart]) -> dict[str, Any]:
    """Return the manifest's figures: where the files come from, and which they are."""
    described = [
        {key: value for key, value in part.asked.items() if value}
        | {"commit": part.source.figures["commit"], "train": part.files.train, "validation": part.files.validation}
        | ({"license": part.license} if part.license else {})
        for part in parts
    ]
    summary = ", ".join(f"{part['repository']} at {part['commit'][:8]}" for part in described)
    return ({"parts": described} if settings.parts_of_text else described[0]) | {"summary": summary}


def run(job: Job[DownloadStage]) -> None:
    """Download the text of a language."""
    settings = job.settings
    disable_progress_bars()  # the client's own bars, for lists of files
    parts = [open_part(part) for part in ([settings.source] if settings.source else settings.parts_of_text)]
    refuse_validation_alone(parts)
    refuse_repeats(parts)
    with atomic_folder(job.out) as folder:
        if settings.counted is not None:
            parts = take(parts, Counter(settings.counted, settings.byte_premium or 1.0, folder))
        else:
            take_all(parts, settings.columns)
        names = []
        for part in parts:
            for name, path in part.fetch(part.files.train + part.files.validation).items():
                names.append(f"{part.repository}/{name}" if settings.parts_of_text else name)
                (folder / names[-1]).parent.mkdir(parents=True, exist_ok=True)
                link_or_copy(path.resolve(), folder / names[-1])
        manifest.write(folder, settings, names, figures=describe(settings, parts))
    for part in parts:
        revisions.record(DATASET.repo_type, **part.source.figures)


def refuse_validation_alone(parts: list[DatasetPart]) -> None:
    """Raise a UserError if no part has text for training."""
    if not any(part.files.train for part in parts):
        files = "; ".join(f"{part.repository}: {some(part.files.validation)}" for part in parts)
        raise UserError(f"corpus.hub: all files are for validation, by their names ({files}); name some to train on")


def refuse_repeats(parts: list[DatasetPart]) -> None:
    """Raise a UserError if two parts share a file, whose text the corpus would contain twice."""
    seen: set[tuple[str, str]] = set()
    for part in parts:
        files = {(part.repository, name) for name in part.files.train + part.files.validation}
        if twice := seen & files:
            raise UserError(
                f"corpus.hub: two entries name the file {line(min(twice)[1], 100)} of {part.repository}; name it once"
            )
        seen |= files


if __name__ == "__main__":
    sys.exit(stage_entry.main(DownloadStage, run, __doc__))
