"""Find how much text a training reads: count its shards, or estimate it from its corpus, files, the Hub or its tier."""

import functools
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from babelmill.config.inputs import bytes_per_word as counted_in_bytes
from babelmill.config.inputs import hub_datasets, set_aside
from babelmill.config.job_sizes import TIER_BYTES, budget_bytes
from babelmill.config.languages import WORD
from babelmill.config.resolve import Configuration
from babelmill.core import manifest
from babelmill.core.files import UserError
from babelmill.core.formats import split_name
from babelmill.core.local_sources import expand_glob
from babelmill.core.words import short
from babelmill.graph import explain
from babelmill.training.plan.schedule import proportions

BYTES_PER_TOKEN = 4.2  # in English, for 8,192 to 32,768 entries; in other languages, multiplied by the byte premium
BYTES_PER_DESCRIPTION = 60  # bytes of a row of labelled text, with its codes
PACKED = 3  # bytes of text per byte of a compressed file or of Parquet
MOST_FILES, BEGINNING = 100, 10**6  # how many files are looked at for bytes per word, and how many bytes of each
BUILTIN_BYTES = 2.26e6  # size of `python-docs` in Python 3.11


class TrainingText(NamedTuple):
    """The text that a model learns, or its part in one language; by default, English of which nothing else is known."""

    tokens: float  # number of tokens. For a label model, each description counts as a whole row, as it does in training
    source: str  # what the tokens are counted on (`shards`) or estimated from
    prompts: int = 0  # number of tokens of prompts, which are not learnt; they are known only from shards
    # Mean number of words per token; languages count by their share of the training.
    words_per_token: float = BYTES_PER_TOKEN / WORD
    words_counted: bool = False  # whether both words and tokens are counted, not estimated
    validation: float = 0.0  # number of tokens of the validation text


def training_text(configuration: Configuration, model: str) -> TrainingText:
    """Return what is known about the training text of a model."""
    outdated = {(job.stage.name, job.part) for job in explain(configuration, model) if job.reasons}
    codes = configuration.languages_of(model)
    texts = [text_of_language(configuration, model, code, outdated) for code in codes]
    tokens = int(sum(text.tokens for text in texts))
    weights = float(configuration.model(model).mixture.weights)
    shares = proportions(np.maximum(1, [text.tokens for text in texts]).tolist(), weights)
    share = set_aside(configuration, model)
    validation = tokens * share / (1 - share) if share < 1 else tokens
    shards = [figures_in(Path("results/shards", model, code)) for code in codes]
    if all(shards):
        validation = sum(made["tokens"]["validation"] for made in shards if made)
    return TrainingText(
        tokens=tokens,
        source="+".join(sorted({text.source for text in texts})),
        prompts=sum(text.prompts for text in texts),
        words_per_token=float(shares @ [text.words_per_token for text in texts]) / shares.sum(),
        words_counted=all(text.words_counted for text in texts),
        validation=validation,
    )


def text_of_language(
    configuration: Configuration, model: str, code: str, outdated: set[tuple[str, str]]
) -> TrainingText:
    """Return what is known about the text of one language of a model, without its validation text.

    `outdated`: (stage, language) of all results of the model that will be made again.
    """
    language, asked = configuration.language(code), configuration.corpus(code).corpus
    per_word = counted_in_bytes(configuration, model).get(code)
    corpus = figures_in(Path("results/corpora", code)) if ("corpus", code) not in outdated else None
    shards = figures_in(Path("results/shards", model, code)) if corpus or ("shards", code) not in outdated else None
    size, source = (corpus["bytes"]["train"], "corpus") if corpus else estimated_bytes(configuration, code)

    learnt = 1.0 if corpus or asked.validation_files else 1 - asked.validation_share
    words_counted = corpus is not None and (per_word is not None or "words" in corpus)
    if per_word is not None:
        words = learnt * size / per_word
    elif corpus and words_counted:
        words = corpus["words"]["train"]
    else:
        files = asked.files if source in ("files", "budget") else []
        words = learnt * size / (bytes_per_word(files, asked.format) or WORD * language.byte_premium)

    train, prompts = configuration.model(model).train, 0
    row = train.sequence_lengths[0] if train.objective == "labels" else None
    if shards:
        source = "old shards" if ("shards", code) in outdated else "shards"
    if row and (made := shards or corpus):
        tokens = made["documents"]["train"] * row
    elif shards:
        tokens, prompts = shards["tokens"]["train"], shards.get("prompt_tokens", {"train": 0})["train"]
    else:
        tokens = size / ((BYTES_PER_DESCRIPTION / row if row else BYTES_PER_TOKEN) * language.byte_premium)
    return TrainingText(tokens, source, prompts, words / max(1, tokens), words_counted and source == "shards")


def figures_in(folder: Path) -> dict[str, Any] | None:
    """Return the figures of the results in a folder; None if there are no results."""
    return manifest.read(folder)["figures"] if (folder / manifest.NAME).is_file() else None


def estimated_bytes(configuration: Configuration, code: str) -> tuple[float, str]:
    """Return the bytes of a language's text before its corpus is made, and what they are estimated from."""
    language, asked = configuration.language(code), configuration.corpus(code).corpus
    of_tier = TIER_BYTES[language.tier] * language.byte_premium
    size, source = of_tier, f"tier {language.tier}"
    paths = [path for pattern in asked.files for path in expand_glob(pattern)]
    if paths:
        size, source = sum(unpacked(path, Path(path).stat().st_size) for path in paths), "files"
    elif asked.builtin:
        size, source = BUILTIN_BYTES, "files"
    elif asked.hub != configuration.defaults["corpus"]["hub"]:  # a tier gives only the size of its own text
        listed = hub_text(configuration, code)
        if isinstance(listed, HubText):
            return listed.text, "budget" if asked.budget else "listing"
        size = float("inf")
    if asked.budget and (wanted := budget_bytes(asked.budget, language.byte_premium)) < size:
        return wanted, "budget"
    return (size if size < float("inf") else of_tier), source


def unpacked(path: str, size: int) -> float:
    """Return the approximate bytes of text in a file of `size` bytes; a compressed file holds more than its size."""
    suffix, compression = split_name(path)
    return size * (PACKED if compression is not None or suffix == ".parquet" else 1)


def bytes_per_word(patterns: list[str], file_format: str | None) -> float | None:
    """Return the bytes per word of plain text files, from the beginnings of some of them; None if there are none.

    `file_format` is `corpus.format`.
    """
    every = [path for pattern in patterns for path in expand_glob(pattern)]
    paths = [path for path in every if split_name(path, file_format) == (".txt", None)]
    size = words = 0
    for path in paths[:: max(1, len(paths) // MOST_FILES)]:
        with open(path, "rb") as file:
            text = file.read(BEGINNING)
        size, words = size + len(text), words + len(text.split())
    return size / words if words else None


class HubText(NamedTuple):
    """The files of a language's text on the Hub."""

    files: int  # number of files that will be downloaded
    of: int  # number of all files
    bytes: int  # size of the files that will be downloaded
    text: float  # bytes of text for training in them


@functools.cache
def hub_text(configuration: Configuration, code: str) -> HubText | str | None:
    """Return what the Hub lists for a language's text. Of the repository, only the card is fetched.

    The result is None if the text comes from elsewhere, or the error message if the Hub cannot be asked.
    """
    datasets = hub_datasets(configuration, code)
    if not datasets:
        return None
    from babelmill.download import HELD_OUT, MARGIN, open_part, wanted  # import the Hub's client only if needed
    from babelmill.hub.client import impatiently

    try:
        with impatiently():
            parts = [open_part(source) for source in datasets]
        files = {split: wanted(parts, split) for split in ("train", "validation")}
    except UserError as error:
        return str(error)
    budget, text = configuration.corpus(code).corpus.budget, float("inf")
    if budget:
        text = budget_bytes(budget, configuration.language(code).byte_premium)
    sizes, texts = list[int](), {"train": 0.0, "validation": 0.0}
    for split, limit in (("train", MARGIN * text), ("validation", HELD_OUT * text)):
        for part, name in files[split]:
            if texts[split] >= limit:
                break
            sizes.append(part.source.sizes[name])
            texts[split] += unpacked(name, sizes[-1])
    return HubText(len(sizes), sum(map(len, files.values())), sum(sizes), min(text, texts["train"]))


def download_notes(configuration: Configuration, codes: list[str]) -> list[str]:
    """Return a plan's lines about downloads still to do. If the Hub cannot be asked, one line says why."""
    notes = []
    for code in codes:
        outdated = any(job.stage.name == "download" and job.reasons for job in explain(configuration, code))
        if Path("results/downloads", code, manifest.NAME).is_file() and not outdated:
            continue
        found = hub_text(configuration, code)
        if isinstance(found, str):
            return [*notes, f"{code}: the size of the download is not known: {found}"]
        if found:
            notes.append(
                f"{code}: downloads {found.files:,} of {found.of:,} files, {short(found.bytes)}B; the text takes about"
                f" {short(found.text / PACKED)}B more on disk, its shards {short(2 * found.text / BYTES_PER_TOKEN)}B."
            )
    return notes
