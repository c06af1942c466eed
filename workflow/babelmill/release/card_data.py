"""Write what a model card says about the text that a model was trained on."""

from typing import Any

from babelmill.release.card_table import table

PROMPTS = (
    "{count:,} of the documents are a prompt and a response, with nothing between them. The model learnt only the"
    " response, and read the prompt as context. To generate, give it a prompt that ends like those of the training"
    " data."
)


def datasets_of(corpus: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the Hub datasets that the text of a corpus came from, each with repository and commit."""
    hub = corpus["figures"].get("hub") or []
    return hub if isinstance(hub, list) else [hub]


def origin(corpus: dict[str, Any]) -> str:
    """Return where the text of a corpus manifest came from."""
    files, settings = corpus["figures"].get("sources"), corpus["settings"]["corpus"]
    parts = [f"{len(files):,} local file{'s' * (len(files) > 1)}"] if files else []
    parts += [settings["builtin"]] if settings.get("builtin") else []
    datasets = {(dataset["repository"], dataset["commit"]) for dataset in datasets_of(corpus)}
    parts += [f"`{repository}` at `{commit}`" for repository, commit in sorted(datasets)]
    budget = settings.get("budget")
    if budget is not None:
        size = budget if isinstance(budget, str) else f"{budget:g} MB of English-equivalent text"
        return f"{' and '.join(parts)}, a sample of {size}"
    return " and ".join(parts)


def licences(corpus: dict[str, Any]) -> str:
    """Return the licences that the documents of a corpus name; if no document names one, those of the datasets."""
    if named := corpus["figures"].get("licenses"):
        return ", ".join(sorted(named))
    declared = [dataset.get("license") for dataset in datasets_of(corpus)]
    said = sorted(f"{name} (the dataset's card)" if name else "unknown" for name in set(declared))
    return ", ".join(said) or "unknown"


def training_data(corpora: dict[str, dict[str, Any]], languages: dict[str, Any]) -> str:
    """Return the table of size, origin and licence of each language's text, and a note if it has prompts."""
    rows = []
    for code, manifest in corpora.items():
        figures = manifest["figures"]
        documents, size = figures["documents"]["train"], figures["bytes"]["train"]
        rows.append([languages[code]["name"], origin(manifest), documents, size / 1e6, licences(manifest)])
    made = table(["language", "source", "documents", "MB", "licence of the text"], rows)
    with_prompt = sum(manifest["figures"].get("with_prompt", {"train": 0})["train"] for manifest in corpora.values())
    return f"{made}\n\n{PROMPTS.format(count=with_prompt)}" if with_prompt else made
