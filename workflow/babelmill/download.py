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
`HF_TOKEN` and `HF_HUB_OFFLINE` mean what they mean to huggingface_hub.

The stage needs a network, which compute nodes often lack. The stage `corpus` reads its files.
"""

import itertools
import logging
import math
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from huggingface_hub.utils import disable_progress_bars

from babelmill.config import schema
from babelmill.config.inputs import UNCOUNTED
from babelmill.core import manifest, stage_entry
from babelmill.core.bars import Bar
from babelmill.core.escape import line, some
from babelmill.core.files import UserError, atomic_folder, link_or_copy
from babelmill.core.stage_entry import Job
from babelmill.core.words import plural
from babelmill.corpus.choosing import Budget
from babelmill.corpus.cleaning import Steps, clean
from babelmill.corpus.reading import Reading, read
from babelmill.corpus.record_batches import keys_of
from babelmill.corpus.tally import Tally
from babelmill.hub import revisions
from babelmill.hub.data_files import SPLITS, data_files, in_order
from babelmill.hub.files import AT_ONCE, Files, licence_of, of_source
from babelmill.hub.sources import DATASET
from babelmill.stages import DownloadStage

log = logging.getLogger("babelmill.download")
# How many times the budget to fetch; of validation text, at least one file.
SHARES = {"train": 1.25, "validation": 0.02}


@dataclass
class DatasetPart:
    """Holds the files that are needed from a repository."""

    asked: dict[str, Any]  # the repository's entry in the settings
    source: Files  # all files of the repository
    files: dict[str, list[str]]  # names of the data files of each split
    license: str | None  # the licence that its card names, if it names one
    taken: dict[str, Path] = field(default_factory=dict)  # {name: path in the cache} of those that are needed

    @property
    def repository(self) -> str:
        return self.asked["repository"]

    def figures(self) -> dict[str, Any]:
        """Return where the files come from, and which they are, for the manifest."""
        about = {key: value for key, value in self.asked.items() if value} | {"commit": self.source.figures["commit"]}
        files = {split: [name for name in names if name in self.taken] for split, names in self.files.items()}
        return about | files | ({"license": self.license} if self.license else {})


def open_part(asked: dict[str, Any]) -> DatasetPart:
    """Find the commit and the data files of a repository."""
    source = of_source(DATASET, asked, below=True)
    card = source.path("README.md")
    files = data_files(source.names, asked, card, source.where)
    size = sum(source.sizes[name] for names in files.values() for name in names) / 1e6
    has = "; ".join(f"{split}: {plural(len(names), 'file')}, {some(names)}" for split, names in files.items() if names)
    log.info("%s at %s has %.1f MB (%s)", asked["repository"], source.figures["commit"], size, has)
    return DatasetPart(asked, source, files, licence_of(card))


def wanted(parts: list[DatasetPart], split: str) -> list[tuple[DatasetPart, str]]:
    """Return the files of a split in the order in which a budget needs them: one file of each part in turn."""
    rounds = itertools.zip_longest(*([(p, name) for name in in_order(p.files[split])] for p in parts))
    return [file for files in rounds for file in files if file is not None]


class Text:
    """Counts the text of files in the budget's unit, as the section `corpus` would keep it."""

    def __init__(self, asked: dict[str, Any], byte_premium: float):
        """Set up a count. `asked` is the result of `inputs.counted`."""
        self.corpus = schema.Corpus.model_validate(schema.Corpus.filled(asked | UNCOUNTED))
        assert self.corpus.budget is not None, "only downloads with a budget count"
        self.budget = Budget.parse(self.corpus.budget, byte_premium)
        self._seen = set[bytes]()

    def of(self, path: Path, text_column: str | None) -> int:
        """Return how much text a file adds. Documents of earlier files do not count again."""
        tally, corpus, total = Tally(self.corpus.on_error), self.corpus, 0
        for batch in read([path], Reading(corpus, {path: text_column} if text_column else {}), tally):
            kept = clean(batch, Steps(corpus), tally)
            for key, size in zip(map(bytes, keys_of(kept)), self.budget.sizes(kept).tolist(), strict=True):
                total += 0 if key in self._seen else size
                if corpus.deduplicate:
                    self._seen.add(key)
        if corpus.categories and tally.read and not tally.categories:
            raise UserError(f"{line(path.name)}: no document has a `category`, and corpus.categories asks for some")
        if not total:
            log.warning("%s adds no text: the filters drop all its %d documents", line(path.name), tally.read)
        return total


def check_columns(path: Path, asked: dict[str, Any], text_column: str | None) -> None:
    """Read the beginning of a file. Raise a UserError if columns (it lists them) or documents are missing there.

    `asked`: keys of the section `corpus`, without those at their defaults. `text_column`: the file's own, if it has
    one.
    """
    values: dict[str, Any] = {"text_column": "text", "document": "line"} | asked
    own, tally = {path: text_column} if text_column else {}, Tally("skip")
    first = next(read([path], Reading(schema.Corpus.model_construct(None, **values), own), tally), None)
    if tally.dropped["malformed"] and not (first and first.num_rows):
        raise UserError(f"{line(path.name)}: its beginning contains no document of this format; see the lines above")


def take(parts: list[DatasetPart], split: str, text: Text | None, columns: dict[str, Any]) -> None:
    """Fetch files of a split: all of them or, with a budget, until they hold enough, at least one of each part.

    The first file of each part is read at once, so that its columns are checked early.
    """
    waiting = wanted(parts, split)
    total, least, sizes, arrived = len(waiting), sum(bool(part.files[split]) for part in parts), list[int](), 0
    limit = SHARES[split] * text.budget.limit if text else math.inf
    bar, said = Bar(limit if text else total), ""
    while waiting and (sum(sizes) < limit or len(sizes) < least):
        lacking = (limit - sum(sizes)) / max(sizes, default=0) if any(sizes) else 1  # in files as large as the largest
        batch = waiting[: max(1, int(min(AT_ONCE, lacking)))]
        for part in parts:
            part.source.get([name for owner, name in batch if owner is part])
        for part, name in batch:
            if sum(sizes) >= limit and len(sizes) >= least:
                break
            path, column = part.source.get([name])[name], part.asked.get("text_column")
            if not text and not part.taken:
                check_columns(path, columns, column)
            part.taken[name] = path
            sizes.append(text.of(path, column) if text else 1)
            arrived += part.source.sizes[name]
            said = f"{split}: {len(sizes)} of {plural(total, 'file')}, {arrived / 1e6:,.1f} MB"
            said += f", {sum(sizes):,} of {limit:,.0f} {text.budget.unit}" if text else ""
            bar.show(min(sum(sizes), limit), said)
        del waiting[: len(batch)]
    bar.close()
    if said:
        log.info("%s", said)


def run(job: Job[DownloadStage]) -> None:
    """Download the text of a language."""
    settings = job.settings
    disable_progress_bars()  # the client's own bars
    parts = [open_part(part) for part in ([settings.source] if settings.source else settings.parts_of_text)]
    refuse(parts)
    with atomic_folder(job.out) as folder:
        text = Text(settings.counted, settings.byte_premium or 1.0) if settings.counted is not None else None
        names = []
        for split in SPLITS:
            take(parts, split, text, settings.columns)
        for part in parts:
            for name, path in part.taken.items():
                names.append(f"{part.repository}/{name}" if settings.parts_of_text else name)
                (folder / names[-1]).parent.mkdir(parents=True, exist_ok=True)
                link_or_copy(path, folder / names[-1])
        figures = [part.figures() for part in parts]
        summary = ", ".join(f"{part['repository']} at {part['commit'][:8]}" for part in figures)
        about = {"parts": figures} if settings.parts_of_text else figures[0]
        manifest.write(folder, settings, names, figures=about | {"summary": summary})
    for part in parts:
        revisions.record(DATASET.repo_type, **part.source.figures)


def refuse(parts: list[DatasetPart]) -> None:
    """Raise a UserError if no part has text for training, or if two parts share a file."""
    if not any(part.files["train"] for part in parts):
        files = "; ".join(f"{part.repository}: {some(part.files['validation'])}" for part in parts)
        raise UserError(f"corpus.hub: all files are for validation, by their names ({files}); name some to train on")
    named = Counter((part.repository, name) for part in parts for names in part.files.values() for name in names)
    for (repository, name), times in named.items():
        if times > 1:
            raise UserError(f"corpus.hub: two entries name the file {line(name, 100)} of {repository}; name it once")


if __name__ == "__main__":
    sys.exit(stage_entry.main(DownloadStage, run, __doc__))
