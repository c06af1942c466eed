"""What a language's text on the Hub will take, from the listing of its repository: nothing but the card is fetched."""

import functools
from dataclasses import dataclass
from pathlib import Path

from babelmill.commands.why import explain
from babelmill.config.inputs import hub_datasets
from babelmill.config.resolve import Configuration
from babelmill.core.files import UserError
from babelmill.core.formats import split_name
from babelmill.corpus.sampling import Budget

PACKED = 3  # how much text a byte of a compressed file or of Parquet holds
DOCUMENT = 2000  # bytes of a document, where a budget counts documents and none has been read


@dataclass(frozen=True)
class HubText:
    """Files of a language's text that the Hub has.

    Attributes:
        files: how many will be downloaded, `of` so many.
        bytes: of those files.
        text: bytes of text for training that they will give.
    """

    files: int
    of: int
    bytes: int
    text: float


@functools.cache
def hub_text(configuration: Configuration, code: str) -> HubText | str | None:
    """Return what the Hub lists of a language's text: None if it comes from elsewhere, or the error if it cannot be
    asked."""
    if not hub_datasets(configuration, code):
        return None
    try:
        return _listed(configuration, code)
    except UserError as error:
        return str(error)


def _listed(configuration: Configuration, code: str) -> HubText:
    from babelmill.download.counting import HELD_OUT, MARGIN  # with the client of the Hub, which other plans go without
    from babelmill.download.parts import open_part, wanted
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
    """Return the lines of a plan about downloads that are to come. If the Hub cannot be asked, one line says why."""
    notes = []
    for code in codes:
        if Path("results/downloads", code, "manifest.json").is_file() and not outdated(configuration, code):
            continue
        found = hub_text(configuration, code)
        if isinstance(found, str):
            return [*notes, f"{code}: what will be downloaded is not known: {found}"]
        if found:
            notes.append(
                f"{code}: downloads {found.files:,} of {found.of:,} files, {amount(found.bytes)}; the text takes about"
                f" {amount(found.text / PACKED)} more on disk, its shards {amount(2 * found.text / bytes_per_token)}."
            )
    return notes


def budget_bytes(asked: float | str, byte_premium: float) -> float:
    """Return about how many bytes of text `corpus.budget` asks for."""
    budget = Budget.parse(asked, byte_premium)
    return budget.limit * (DOCUMENT if budget.unit == "documents" else 1.0)


def packed_text(path: str, size: int) -> float:
    """Return about how many bytes of text a file of so many bytes holds: more, where it is compressed."""
    suffix, compression = split_name(path)
    return size * (PACKED if compression is not None or suffix == ".parquet" else 1)


def amount(count: float) -> str:
    """Return bytes as "12 MB" or "3.4 GB"."""
    return f"{count / 1e9:,.1f} GB" if count >= 1e9 else f"{count / 1e6:,.0f} MB" if count >= 1e6 else "1 MB"
