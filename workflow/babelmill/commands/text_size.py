"""Find the number of tokens of a training before its text is read: count shards, or estimate from existing files."""

from pathlib import Path

from babelmill.commands.plan_download import HubText, budget_bytes, hub_text, packed_text
from babelmill.commands.why import explain
from babelmill.config.resolve import Configuration
from babelmill.core import manifest
from babelmill.core.globs import expand_glob
from babelmill.corpus.sampling import WORD

TIER_WORDS = {1: 100e6, 2: 10e6, 3: 1e6}  # English-equivalent words of the BabyBabelLM tiers
BYTES_PER_TOKEN = 4.2  # in English, for 8,192 to 32,768 entries; in other languages, multiplied by the byte premium
BYTES_PER_DESCRIPTION = 60  # bytes of a row of labelled text, with its codes
BUILTIN_BYTES = 2.26e6  # size of `python-docs` in Python 3.11


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
    train, total, prompts, sources = configuration.model(model).train, 0.0, 0, []
    row = train.sequence_lengths[0] if train.objective == "labels" else None
    outdated = {(job.stage.name, job.part) for job in explain(configuration, model) if job.reasons}
    for code in configuration.languages_of(model):
        shards, corpus = (Path("results", *at, code) for at in (("shards", model), ("corpora",)))
        built = (corpus / manifest.NAME).is_file() and ("corpus", code) not in outdated
        if (shards / manifest.NAME).is_file() and (built or ("shards", code) not in outdated):
            figures = manifest.read(shards)["figures"]
            total += figures["documents"]["train"] * row if row else figures["tokens"]["train"]
            prompts += figures.get("prompt_tokens", {"train": 0})["train"] if not row else 0
            sources.append("old shards" if ("shards", code) in outdated else "shards")
        elif row and built:
            total += manifest.read(corpus)["figures"]["documents"]["train"] * row
            sources.append("corpus")
        else:
            size, source = text_bytes(configuration, code, built)
            per_token = BYTES_PER_DESCRIPTION / row if row else BYTES_PER_TOKEN
            total += size / (per_token * configuration.language(code).byte_premium)
            sources.append(source)
    return int(total), "+".join(sorted(set(sources))), 1 - prompts / max(1.0, total)
