"""Find how much text a training reads: count its shards, or estimate it from its corpus, files, the Hub or its tier."""

import functools
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from babelmill.commands.progress.jobs import explain
from babelmill.config.inputs import hub_datasets, set_aside
from babelmill.config.resolve import Configuration
from babelmill.core import manifest
from babelmill.core.files import UserError
from babelmill.core.formats import split_name
from babelmill.core.globs import expand_glob
from babelmill.corpus.sampling import WORD, Budget
from babelmill.training.plan.schedule import proportions

TIER_WORDS = {1: 100e6, 2: 10e6, 3: 1e6}  # English-equivalent words of the BabyBabelLM tiers
BYTES_PER_TOKEN = 4.2  # in English, for 8,192 to 32,768 entries; in other languages, multiplied by the byte premium
BYTES_PER_DESCRIPTION = 60  # bytes of a row of labelled text, with its codes
BYTES_PER_DOCUMENT = 2000  # assumed if a budget counts documents and no document has been read
PACKED = 3  # bytes of text per byte of a compressed file or of Parquet
MOST_FILES, BEGINNING = 100, 10**6  # how many files are looked at for bytes per word, and how many bytes of each
BUILTIN_BYTES = 2.26e6  # size of `python-docs` in Python 3.11

Outdated = set[tuple[str, str]]  # (stage, language) of all results of a model that will be made again


@dataclass(frozen=True)
class TrainingText:
    """The text that a model learns.

    Attributes:
        tokens: number of tokens. For a label model, each description counts as a whole row, as it does in training.
        source: what the tokens are counted on (`shards`) or estimated from.
        learnt: the share of the tokens that belongs to no prompt; prompts are known only from shards.
        words_per_token: mean number of words per token; languages count by their share of the training.
        words_counted: whether both words and tokens are counted, not estimated.
    """

    tokens: int
    source: str
    learnt: float
    words_per_token: float
    words_counted: bool


def training_text(configuration: Configuration, model: str) -> TrainingText:
    """Return what is known about the training text of a model."""
    outdated = {(job.stage.name, job.part) for job in explain(configuration, model) if job.reasons}
    codes = configuration.languages_of(model)
    tokens, sources, prompts = zip(*(tokens_of(configuration, model, code, outdated) for code in codes), strict=True)
    words, counted = zip(*(words_of(configuration, code, outdated) for code in codes), strict=True)
    shares = proportions(np.maximum(1, tokens).tolist(), float(configuration.model(model).mixture.weights))
    return TrainingText(
        tokens=int(sum(tokens)),
        source="+".join(sorted({*sources})),
        learnt=1 - sum(prompts) / max(1.0, sum(tokens)),
        words_per_token=float(shares @ (np.array(words) / np.maximum(1, tokens))) / shares.sum(),
        words_counted=all(counted) and {*sources} == {"shards"},
    )


def tokens_of(configuration: Configuration, model: str, code: str, outdated: Outdated) -> tuple[float, str, int]:
    """Return the number of tokens of one language of a model, their source, and how many of them are prompts."""
    train = configuration.model(model).train
    row = train.sequence_lengths[0] if train.objective == "labels" else None
    shards, corpus = Path("results/shards", model, code), built_corpus(code, outdated)
    if (shards / manifest.NAME).is_file() and (corpus or ("shards", code) not in outdated):
        figures, source = manifest.read(shards)["figures"], "old shards" if ("shards", code) in outdated else "shards"
        if row:
            return figures["documents"]["train"] * row, source, 0
        return figures["tokens"]["train"], source, figures.get("prompt_tokens", {"train": 0})["train"]
    if row and corpus:
        return manifest.read(corpus)["figures"]["documents"]["train"] * row, "corpus", 0
    size, source = text_bytes(configuration, code, corpus)
    per_token = BYTES_PER_DESCRIPTION / row if row else BYTES_PER_TOKEN
    return size / (per_token * configuration.language(code).byte_premium), source, 0


def words_of(configuration: Configuration, code: str, outdated: Outdated) -> tuple[float, bool]:
    """Return the number of words of a language's training text, and whether it was counted when the corpus was made.

    Results of earlier releases have no such count, but their bytes are known.
    """
    language, asked = configuration.language(code), configuration.corpus(code).corpus
    corpus, per_word = built_corpus(code, outdated), language.bytes_per_word
    if corpus and per_word is None and "words" in (figures := manifest.read(corpus)["figures"]):
        return figures["words"]["train"], True
    size, source = text_bytes(configuration, code, corpus)
    learnt = 1.0 if corpus or asked.validation_files else 1 - asked.validation_share
    if per_word is not None:
        return learnt * size / per_word, corpus is not None
    files = asked.files if source in ("files", "budget") else []
    return learnt * size / (bytes_per_word(files, asked.format) or WORD * language.byte_premium), False


def built_corpus(code: str, outdated: Outdated) -> Path | None:
    """Return the folder of a language's corpus; None if it is missing or will be made again."""
    folder = Path("results/corpora", code)
    return folder if (folder / manifest.NAME).is_file() and ("corpus", code) not in outdated else None


def text_bytes(configuration: Configuration, code: str, corpus: Path | None) -> tuple[float, str]:
    """Return the bytes of a language's text, and what they are counted on or estimated from."""
    if corpus:
        return manifest.read(corpus)["figures"]["bytes"]["train"], "corpus"
    language, asked = configuration.language(code), configuration.corpus(code).corpus
    of_tier = TIER_WORDS[language.tier] * WORD * language.byte_premium
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


def budget_bytes(asked: float | str, byte_premium: float) -> float:
    """Return the approximate bytes of text that `corpus.budget` asks for."""
    budget = Budget.parse(asked, byte_premium)
    return budget.limit * (BYTES_PER_DOCUMENT if budget.unit == "documents" else 1.0)


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


def validation_tokens(configuration: Configuration, model: str, tokens: float) -> float:
    """Return the number of tokens of a model's validation text: from its shards, or estimated.

    `tokens` is the number of tokens of its training text.
    """
    folders = [Path("results/shards", model, code) for code in configuration.languages_of(model)]
    if all((folder / manifest.NAME).is_file() for folder in folders):
        return sum(manifest.read(folder)["figures"]["tokens"]["validation"] for folder in folders)
    share = set_aside(configuration, model)
    return tokens * share / (1 - share) if share < 1 else tokens


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
            parts = [open_part(source, key) for key, source in datasets]
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
                f"{code}: downloads {found.files:,} of {found.of:,} files, {on_disk(found.bytes)}; the text takes about"
                f" {on_disk(found.text / PACKED)} more on disk, its shards {on_disk(2 * found.text / BYTES_PER_TOKEN)}."
            )
    return notes


def on_disk(size: float) -> str:
    """Return bytes as "12 MB" or "3.4 GB"."""
    return f"{size / 1e9:,.1f} GB" if size >= 1e9 else f"{max(size, 1e6) / 1e6:,.0f} MB"
