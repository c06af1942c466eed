"""Find the tokens and words of a training before its text is read: count shards, or estimate from existing files."""

from pathlib import Path

import numpy as np

from babelmill.commands.estimates.download import HubText, budget_bytes, hub_text, packed_text
from babelmill.commands.progress.jobs import explain
from babelmill.config.inputs import set_aside
from babelmill.config.resolve import Configuration
from babelmill.core import manifest
from babelmill.core.formats import split_name
from babelmill.core.globs import expand_glob
from babelmill.corpus.sampling import WORD
from babelmill.training.plan.schedule import proportions

TIER_WORDS = {1: 100e6, 2: 10e6, 3: 1e6}  # English-equivalent words of the BabyBabelLM tiers
BYTES_PER_TOKEN = 4.2  # in English, for 8,192 to 32,768 entries; in other languages, multiplied by the byte premium
BYTES_PER_DESCRIPTION = 60  # bytes of a row of labelled text, with its codes
MOST_FILES, BEGINNING = 100, 10**6  # how many files are looked at for bytes per word, and how many bytes of each
BUILTIN_BYTES = 2.26e6  # size of `python-docs` in Python 3.11

Outdated = set[tuple[str, str]]  # of `outdated_of`


def text_bytes(configuration: Configuration, code: str, built: bool) -> tuple[float, str]:
    """Return the bytes of a language's text, and what they are estimated from.

    `built`: whether its corpus is up to date.
    """
    language, corpus = configuration.language(code), configuration.corpus(code).corpus
    if built:
        return manifest.read(Path("results/corpora", code))["figures"]["bytes"]["train"], "corpus"
    size, source = TIER_WORDS[language.tier] * WORD * language.byte_premium, f"tier {language.tier}"
    paths = [path for pattern in corpus.files for path in expand_glob(pattern)]
    if paths:
        size, source = sum(packed_text(path, Path(path).stat().st_size) for path in paths), "files"
    elif corpus.builtin:
        size, source = BUILTIN_BYTES, "files"
    elif corpus.hub != configuration.defaults["corpus"]["hub"]:  # a tier gives only the size of its own text
        listed = hub_text(configuration, code)
        if isinstance(listed, HubText):
            return listed.text, "budget" if corpus.budget else "listing"
        size = float("inf")
    if corpus.budget and (wanted := budget_bytes(corpus.budget, language.byte_premium)) < size:
        return wanted, "budget"
    if size == float("inf"):
        size = TIER_WORDS[language.tier] * WORD * language.byte_premium
    return size, source


def training_tokens(configuration: Configuration, model: str) -> tuple[int, str, float]:
    """Return the number of tokens of a model's training text, their source, and the share that belongs to no prompt.

    The source says what the tokens are counted on or estimated from; prompts are known only from shards. For a model of
    labels, each description counts as a whole row, as it does in training.
    """
    outdated = outdated_of(configuration, model)
    each = [tokens_of(configuration, model, code, outdated) for code in configuration.languages_of(model)]
    total, sources = sum(tokens for tokens, _, _ in each), {source for _, source, _ in each}
    return int(total), "+".join(sorted(sources)), 1 - sum(prompts for _, _, prompts in each) / max(1.0, total)


def outdated_of(configuration: Configuration, model: str) -> Outdated:
    """Return (stage, language) of all results of a model that will be made again."""
    return {(job.stage.name, job.part) for job in explain(configuration, model) if job.reasons}


def tokens_of(configuration: Configuration, model: str, code: str, outdated: Outdated) -> tuple[float, str, int]:
    """Return the number of tokens of one language of a model, their source, and how many of them are prompts.

    `outdated`: see `outdated_of`.
    """
    train = configuration.model(model).train
    row = train.sequence_lengths[0] if train.objective == "labels" else None
    shards, corpus = (Path("results", *at, code) for at in (("shards", model), ("corpora",)))
    built = (corpus / manifest.NAME).is_file() and ("corpus", code) not in outdated
    if (shards / manifest.NAME).is_file() and (built or ("shards", code) not in outdated):
        figures, source = manifest.read(shards)["figures"], "old shards" if ("shards", code) in outdated else "shards"
        if row:
            return figures["documents"]["train"] * row, source, 0
        return figures["tokens"]["train"], source, figures.get("prompt_tokens", {"train": 0})["train"]
    if row and built:
        return manifest.read(corpus)["figures"]["documents"]["train"] * row, "corpus", 0
    size, source = text_bytes(configuration, code, built)
    per_token = BYTES_PER_DESCRIPTION / row if row else BYTES_PER_TOKEN
    return size / (per_token * configuration.language(code).byte_premium), source, 0


def estimated_words_per_token(configuration: Configuration, model: str) -> tuple[float, bool]:
    """Return the mean number of words per token of a model's training, and whether both are counted, not estimated.

    Languages count by their share of the training (`mixture.weights`).
    """
    outdated, each = outdated_of(configuration, model), list[tuple[float, float, bool]]()
    for code in configuration.languages_of(model):
        tokens, source, _ = tokens_of(configuration, model, code, outdated)
        words, counted = estimated_words(configuration, code, ("corpus", code) in outdated)
        each.append((words, tokens, counted and source == "shards"))
    words, tokens, exact = (np.array(values) for values in zip(*each, strict=True))
    shares = proportions(np.maximum(1, tokens).tolist(), float(configuration.model(model).mixture.weights))
    per_token = float(shares @ (words / np.maximum(1, tokens))) / shares.sum()
    return per_token, bool(exact.all())


def estimated_words(configuration: Configuration, code: str, outdated: bool) -> tuple[float, bool]:
    """Return the number of words of a language's training text, and whether it was counted when the corpus was made.

    Results of earlier releases have no such count, but their bytes are known. `outdated`: whether the corpus will be
    made again.
    """
    language, corpus = configuration.language(code), configuration.corpus(code).corpus
    folder = Path("results/corpora", code)
    built = (folder / manifest.NAME).is_file() and not outdated
    figures = manifest.read(folder)["figures"] if built else {}
    if "words" in figures and language.bytes_per_word is None:
        return figures["words"]["train"], True
    size, source = text_bytes(configuration, code, built)
    learned = 1.0 if built or corpus.validation_files else 1 - corpus.validation_share
    per_word = language.bytes_per_word
    exact = built and per_word is not None
    if per_word is None:
        files = corpus.files if source in ("files", "budget") else []
        per_word = bytes_per_word(files, corpus.format) or WORD * language.byte_premium
    return learned * size / per_word, exact


def bytes_per_word(patterns: list[str], said: str | None) -> float | None:
    """Return the bytes per word of plain text files, from the beginnings of some of them; None if there are none.

    `said` is `corpus.format`.
    """
    paths = [path for pattern in patterns for path in expand_glob(pattern) if split_name(path, said) == (".txt", None)]
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
