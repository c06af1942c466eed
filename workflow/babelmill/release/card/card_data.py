"""Write what a model card says about the text that a model was trained on."""

from typing import Any

from babelmill.config.languages import UNSPACED
from babelmill.core import escape
from babelmill.core.escape import Markdown, code, markdown
from babelmill.core.words import plural
from babelmill.release.card.card_table import table

PROMPTS = (
    "{count:,} of the documents are a prompt and a response, with nothing between them. The model learnt only the"
    " response, and read the prompt as context. To generate, give it a prompt that ends like those of the training"
    " data."
)


def datasets_of(corpus: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the Hub datasets that the text of a corpus came from, each with repository and commit."""
    hub = corpus["figures"].get("hub") or []
    return hub if isinstance(hub, list) else [hub]


def origin(corpus: dict[str, Any]) -> Markdown:
    """Return where the training text of a corpus manifest came from."""
    settings = corpus["settings"]["corpus"]
    files = training_files(corpus)
    parts = [plural(files, "local file")] if files else []
    parts += [markdown(settings["builtin"])] if settings.get("builtin") else []
    datasets = {(dataset["repository"], dataset["commit"]) for dataset in datasets_of(corpus)}
    parts += [f"{code(repository)} at {code(commit)}" for repository, commit in sorted(datasets)]
    budget = settings.get("budget")
    if budget is not None:
        size = budget if isinstance(budget, str) else f"{budget:g} MB of English-equivalent text"
        return Markdown(f"{' and '.join(parts)}, a sample of {markdown(size)}")
    return Markdown(" and ".join(parts))


def training_files(corpus: dict[str, Any]) -> int:
    """Return how many local files a corpus manifest lists, without those of `corpus.validation_files`."""
    aside = corpus["settings"]["corpus"].get("validation_files", [])
    held_out = sum(listed["files"] for glob, listed in corpus["settings"].get("sources", {}).items() if glob in aside)
    return len(corpus["figures"].get("sources") or []) - held_out


def licences(corpus: dict[str, Any]) -> str:
    """Return the licences that the documents of a corpus name; if no document names one, those of the datasets."""
    if named := corpus["figures"].get("licenses"):
        return escape.some(sorted(named))
    declared = [dataset.get("license") for dataset in datasets_of(corpus)]
    said = sorted(f"{name} (the dataset's card)" if name else "unknown" for name in set(declared))
    return escape.some(said) or "unknown"


def separates_words(language: dict[str, Any]) -> bool:
    """Return whether whitespace separates the words of a language, {"script"}."""
    return language.get("script") not in UNSPACED


def words_cell(corpus: dict[str, Any], language: dict[str, Any], tokenizer: dict[str, Any] | None) -> int | str:
    """Return the number of words of a corpus's training text; "" if it is not known, or if no spaces separate words.

    Corpora of earlier versions have only bytes. Then the number is estimated from the bytes per word of the validation
    text.

    Args:
        corpus: the manifest of the corpus.
        language: its language, {"script"}.
        tokenizer: the tokenizer's figures on the validation text, if they are known.
    """
    figures = corpus["figures"]
    if not separates_words(language):
        return ""
    if "words" in figures:
        return figures["words"]["train"]
    if not tokenizer:
        return ""
    words = figures["bytes"]["train"] / (tokenizer["bytes_per_token"] * tokenizer["tokens_per_word"])
    return f"about {float(f'{words:.2g}'):,.0f}"


def with_prompt(corpora: dict[str, dict[str, Any]] | None) -> int:
    """Return how many training documents are a prompt and a response."""
    every = (corpora or {}).values()
    return sum(manifest["figures"].get("with_prompt", {"train": 0})["train"] for manifest in every)


def training_data(
    corpora: dict[str, dict[str, Any]],
    languages: dict[str, Any],
    evaluation: dict[str, Any] | None,
    shares: dict[str, float] | None,
) -> str:
    """Return the table of size, origin and licence of each language's text, and a note if it has prompts.

    Args:
        corpora: {language: manifest of its corpus}.
        languages: {language: {"name", "script"}}.
        evaluation: evaluation.json.
        shares: {language: its share of what the model was trained on}, if it is known.
    """
    tokenizers = (evaluation or {}).get("tokenizer", {})
    columns: dict[str, list[Any]] = {
        "language": [languages[name]["name"] for name in corpora],
        "source": [origin(made) for made in corpora.values()],
        "documents": [made["figures"]["documents"]["train"] for made in corpora.values()],
        "words": [words_cell(made, languages[name], tokenizers.get(name)) for name, made in corpora.items()],
        "MB": [made["figures"]["bytes"]["train"] / 1e6 for made in corpora.values()],
        "share of training": [f"{100 * shares[name]:.1f} %" for name in corpora] if shares else [],
        "licence of the text": [licences(made) for made in corpora.values()],
    }
    known = {name: values for name, values in columns.items() if any(values)}
    text = table(list(known), [list(row) for row in zip(*known.values(), strict=True)])
    count = with_prompt(corpora)
    return f"{text}\n\n{PROMPTS.format(count=count)}" if count else text
