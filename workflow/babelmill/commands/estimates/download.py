"""Estimate the download of a language's text on the Hub from its repository's listing. Only the card is fetched."""

import functools
from dataclasses import dataclass
from pathlib import Path

from babelmill.commands.why import explain
from babelmill.config.inputs import hub_datasets
from babelmill.config.resolve import Configuration
from babelmill.core.files import UserError
from babelmill.core.formats import split_name
from babelmill.corpus.sampling import Budget

PACKED = 3  # bytes of text per byte of a compressed file or of Parquet
DOCUMENT = 2000  # bytes per document, assumed if a budget counts documents and no document has been read


@dataclass(frozen=True)
class HubText:
    """The files of a language's text on the Hub.

    Attributes:
        files: number of files that will be downloaded; of: number of all files.
        bytes: size of the files that will be downloaded.
        text: bytes of text for training in them.
    """

    files: int
    of: int
    bytes: int
    text: float


@functools.cache
def hub_text(configuration: Configuration, code: str) -> HubText | str | None:
    """Return what the Hub lists for a language's text.

    The result is None if the text comes from elsewhere, or the error message if the Hub cannot be asked.
    """
    if not hub_datasets(configuration, code):
        return None
    try:
        return _listed(configuration, code)
    except UserError as error:
        return str(error)


def _listed(configuration: Configuration, code: str) -> HubText:
    from babelmill.download import HELD_OUT, MARGIN, open_part, wanted  # import the Hub's client only if needed
    from babelmill.hub.client import impatiently

    corpus = configuration.corpus(code).corpus
    with impatiently():
        parts = [open_part(source, key) for key, source in hub_datasets(configuration, code)]
    everything = {split: wanted(parts, split) for split in ("train", "validation")}
    limits, text = {"train": float("inf"), "validation": float("inf")}, float("inf")
    if corpus.budget:
        text = budget_bytes(corpus.budget, configuration.language(code).byte_premium)
        limits = {"train": MARGIN * text, "validation": HELD_OUT * text}
    total, count, held = 0, 0, 0.0
    for split, files in everything.items():
        found = 0.0
        for part, name in files:
            if found >= limits[split]:
                break
            found += packed_text(name, part.sizes[name])
            total += part.sizes[name]
            count += 1
        held = found if split == "train" else held
    return HubText(count, sum(map(len, everything.values())), total, min(text, held))


def outdated(configuration: Configuration, code: str) -> bool:
    """Return whether a language's download was made with other settings."""
    return any(job.stage.name == "download" and job.reasons for job in explain(configuration, code))


def download_notes(configuration: Configuration, codes: list[str], bytes_per_token: float) -> list[str]:
    """Return a plan's lines about downloads still to do. If the Hub cannot be asked, one line says why."""
    notes = []
    for code in codes:
        if Path("results/downloads", code, "manifest.json").is_file() and not outdated(configuration, code):
            continue
        found = hub_text(configuration, code)
        if isinstance(found, str):
            return [*notes, f"{code}: the size of the download is not known: {found}"]
        if found:
            notes.append(
                f"{code}: downloads {found.files:,} of {found.of:,} files, {amount(found.bytes)}; the text takes about"
                f" {amount(found.text / PACKED)} more on disk, its shards {amount(2 * found.text / bytes_per_token)}."
            )
    return notes


def budget_bytes(asked: float | str, byte_premium: float) -> float:
    """Return the approximate bytes of text that `corpus.budget` asks for."""
    budget = Budget.parse(asked, byte_premium)
    return budget.limit * (DOCUMENT if budget.unit == "documents" else 1.0)


def packed_text(path: str, size: int) -> float:
    """Return the approximate bytes of text in a file of `size` bytes; a compressed file holds more than its size."""
    suffix, compression = split_name(path)
    return size * (PACKED if compression is not None or suffix == ".parquet" else 1)


def amount(count: float) -> str:
    """Return bytes as "12 MB" or "3.4 GB"."""
    return f"{count / 1e9:,.1f} GB" if count >= 1e9 else f"{count / 1e6:,.0f} MB" if count >= 1e6 else "1 MB"
