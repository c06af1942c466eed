"""Download datasets of the Hugging Face Hub, each at one commit, as files on disk (stage `download`).

    python -m babelmill.download --settings results/settings/eng/download.json --out results/downloads/eng

A branch such as `main` is resolved to a commit once. The manifest states this commit, and `revisions.py` remembers it.
So a branch that moves later changes no run.

Without a budget the stage fetches all data files. With `corpus.budget` it fetches them in the order of a hash of their
names, and reads them as they arrive, until they hold 1.25 times the budget. Which files it fetches depends only on the
repository, the budget and the text. So an interrupted download continues, and a larger budget adds to the files of a
smaller one: files in the user's Hugging Face cache are not fetched again.

Files come through that cache (`HF_HOME`) and are hard links into it where the file system allows. `HF_ENDPOINT`,
`HF_TOKEN` and `HF_HUB_OFFLINE` mean what they mean to huggingface_hub. This stage adds two things that the client does
not do: it repeats requests if the server asks to try again later, and it checks the sha256 of each file.

The stage needs a network, which compute nodes often lack. The stage `corpus` reads its files.
"""

import argparse
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from huggingface_hub.utils import disable_progress_bars

from babelmill.config.stage_settings import DownloadSettings
from babelmill.core import manifest, stage_entry
from babelmill.core.bars import Bar
from babelmill.core.escape import line
from babelmill.core.files import UserError, atomic_folder, link_or_copy
from babelmill.core.words import plural
from babelmill.corpus.columns import Columns
from babelmill.download.counting import HELD_OUT, MARGIN, Counter, check_columns, how_many
from babelmill.download.parts import Part, open_part, wanted
from babelmill.hub import revisions
from babelmill.hub.data_files import DataFiles
from babelmill.settings import read_settings

log = logging.getLogger("babelmill.download")


class Arriving:
    """Shows the progress bar of a download.

    Args:
        total: the number at which the bar is full.
        text: returns the bar's text, which says what has been fetched so far.
        of_bytes: whether the bar counts bytes; if not, the caller sets `done`.

    Attributes:
        done: how much of the total is done.
    """

    def __init__(self, total: float, text: Callable[[], str], of_bytes: bool = False):
        self.done, self._total, self._text, self._of_bytes = 0.0, total, text, of_bytes
        self._bar, self._megabytes, self._lock = Bar(total), 0.0, threading.Lock()

    def bytes(self, count: int) -> None:
        """Count bytes that have arrived."""
        with self._lock:  # several files arrive at once
            self._megabytes += count / 1e6
            if self._of_bytes:
                self.done = min(self.done + count, 0.999 * self._total)  # full only after the check of all files
            self._bar.show(self.done, f"{self._text()}, {self._megabytes:,.1f} MB")

    def end(self) -> None:
        """Show that all files are there. (Files that were in the cache do not count as arrived.)"""
        self._bar.show(self._total, f"{self._text()}, {self._megabytes:,.1f} MB")
        self._bar.close()


def until_full(parts: list[Part], split: str, limit: float, counter: Counter) -> Iterator[tuple[Part, str, int]]:
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


def take(parts: list[Part], counter: Counter) -> list[Part]:
    """Fetch the files that a budget needs. Return the parts with only these files."""
    limits = {"train": MARGIN * counter.budget.limit, "validation": HELD_OUT * counter.budget.limit}
    taken = {
        split: [(part, name) for part, name, _ in until_full(parts, split, limit, counter)]
        for split, limit in limits.items()
    }

    def of(part: Part, split: str) -> list[str]:
        return sorted(name for owner, name in taken[split] if owner is part)

    return [replace(part, files=DataFiles(of(part, "train"), of(part, "validation"))) for part in parts]


def take_all(parts: list[Part], asked: dict[str, Any]) -> None:
    """Fetch all data files. The smallest file of each part is the first, so that its columns are checked early."""
    size = sum(part.sizes[name] for part in parts for name in part.files.train + part.files.validation)
    count = plural(sum(len(part.files.train + part.files.validation) for part in parts), "file")
    arriving = Arriving(size, lambda: f"download of {count}", of_bytes=True)
    for part in parts:
        smallest = min(part.files.train, key=lambda name: (not part.sizes[name], part.sizes[name], name))
        columns = columns_of(asked, part.asked.get("text_column"))
        check_columns(part.fetch([smallest], arriving.bytes)[smallest], columns)
    for part in parts:
        part.fetch(part.files.train + part.files.validation, arriving.bytes)
    arriving.end()


def columns_of(asked: dict[str, Any], text: str | None) -> Columns:
    """Return the columns to read, from keys of the section `corpus`. If given, `text` replaces the column of text."""
    said = {"text": text or asked.get("text_column"), "prompt": asked.get("prompt_column")}
    said |= {"labels": tuple(asked.get("label_columns", ())), "context": asked.get("context_column")}
    said |= {key: asked.get(key) for key in ("delimiter", "encoding", "format", "quoting")}
    return Columns(**{key: value for key, value in said.items() if value is not None})


def describe(settings: DownloadSettings, parts: list[Part]) -> dict[str, Any]:
    """Return the manifest's figures: where the files come from, and which they are."""
    described = [
        {key: value for key, value in part.asked.items() if value}
        | {"commit": part.commit, "train": part.files.train, "validation": part.files.validation}
        | ({"license": part.license} if part.license else {})
        for part in parts
    ]
    return {"parts": described} if settings.parts else described[0]


def run(args: argparse.Namespace) -> None:
    """Download the text of a language."""
    settings = read_settings(args.settings, DownloadSettings)
    disable_progress_bars()  # the client's own bars, for lists of files
    asked = [(part, revisions.dataset_key(part["repository"], part["revision"])) for part in settings.parts]
    if settings.source:
        asked = [(settings.source, settings.name)]
    parts = [open_part(part, key) for part, key in asked]
    refuse_repeats(parts)
    with atomic_folder(args.out) as folder:
        if settings.counted is not None:
            parts = take(parts, Counter(settings.counted, settings.byte_premium or 1.0, folder))
        else:
            take_all(parts, settings.columns)
        names = []
        for part in parts:
            for name, path in part.fetch(part.files.train + part.files.validation).items():
                names.append(f"{part.repository}/{name}" if settings.parts else name)
                (folder / names[-1]).parent.mkdir(parents=True, exist_ok=True)
                link_or_copy(path.resolve(), folder / names[-1])
        manifest.write(folder, settings, names, figures=describe(settings, parts))
    for part, (source, key) in zip(parts, asked, strict=True):
        revisions.record(key, part.repository, source["revision"], part.commit)


def refuse_repeats(parts: list[Part]) -> None:
    """Raise a UserError if two parts share a file, whose text the corpus would contain twice."""
    seen: set[tuple[str, str]] = set()
    for part in parts:
        files = {(part.repository, name) for name in part.files.train + part.files.validation}
        if twice := seen & files:
            raise UserError(
                f"corpus.hub: two entries name the file {line(min(twice)[1], 100)} of {part.repository}; name it once"
            )
        seen |= files


def main() -> None:
    """Run the stage from the command line."""
    parser = stage_entry.arguments(__doc__)
    parser.add_argument(
        "--out", required=True, type=stage_entry.folder, help="output folder, results/downloads/{language}"
    )
    sys.exit(stage_entry.run(run, parser.parse_args()))


if __name__ == "__main__":
    main()
