"""How many tokens a training will have, before its text is read: counted on shards, or estimated from what is there."""

from pathlib import Path

from babelmill.commands.why import explain
from babelmill.config.resolve import Configuration
from babelmill.core.files import read_json
from babelmill.core.formats import split_name
from babelmill.core.globs import expand_glob
from babelmill.corpus.sampling import WORD, Budget

TIER_WORDS = {1: 100e6, 2: 10e6, 3: 1e6}  # English-equivalent words of the BabyBabelLM tiers
BYTES_PER_TOKEN = 4.2  # of English, vocabularies of 8,192 to 32,768; other languages: times the byte premium
BUILTIN_BYTES = 2.26e6  # of Python 3.11
PACKED = 3  # how much text a byte of a compressed file or of Parquet holds


def text_bytes(configuration: Configuration, code: str, built: bool) -> tuple[float, str]:
    """Return the bytes of a language's text, and what they are estimated from; `built`: its present corpus is there."""
    language, corpus = configuration.language(code), configuration.corpus(code).corpus
    if built:
        return read_json(Path("results/corpora", code, "manifest.json"))["figures"]["bytes"]["train"], "corpus"
    size, source = TIER_WORDS[language.tier] * WORD * language.byte_premium, f"tier {language.tier}"
    paths = [path for pattern in corpus.files for path in expand_glob(pattern)]
    if paths:
        size = sum(Path(path).stat().st_size * (PACKED if is_packed(path) else 1) for path in paths)
        source = "files"
    elif corpus.builtin:
        size, source = BUILTIN_BYTES, "files"
    if corpus.budget:
        budget = Budget.parse(corpus.budget, language.byte_premium)
        elsewhere = source.startswith("tier") and corpus.hub != configuration.defaults["corpus"]["hub"]
        if budget.unit == "bytes" and (budget.limit < size or elsewhere):  # a tier tells the size of its own text alone
            return budget.limit, "budget"
    return size, source


def is_packed(path: str) -> bool:
    """Return whether a file holds more text than bytes."""
    suffix, compression = split_name(path)
    return compression is not None or suffix == ".parquet"


def training_tokens(configuration: Configuration, model: str) -> tuple[int, str, float]:
    """Return the tokens of a model's training text, what they are counted on or estimated from, and which share of them
    belongs to no prompt, as far as that is known."""
    total, prompts, sources = 0.0, 0, []
    outdated = {(job.stage.name, job.language) for job in explain(configuration, model) if job.reasons}
    for code in configuration.languages_of(model):
        shards, corpus = (Path("results", *at, code, "manifest.json") for at in (("shards", model), ("corpora",)))
        built = corpus.is_file() and ("corpus", code) not in outdated
        if shards.is_file() and (built or ("shards", code) not in outdated):
            figures = read_json(shards)["figures"]
            total += figures["tokens"]["train"]
            prompts += figures.get("prompt_tokens", {"train": 0})["train"]
            sources.append("old shards" if ("shards", code) in outdated else "shards")
        else:
            size, source = text_bytes(configuration, code, built)
            total += size / (BYTES_PER_TOKEN * configuration.language(code).byte_premium)
            sources.append(source)
    return int(total), "+".join(sorted(set(sources))), 1 - prompts / max(1.0, total)
