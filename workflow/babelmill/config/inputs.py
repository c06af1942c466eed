"""Find where a stage's input comes from: local files, a repository on the Hub, a tokenizer, a table to predict.

These facts about files and repositories belong in settings files, beside the sections of the configuration.
"""

import json
import platform
import re
from pathlib import Path
from typing import Any

from babelmill.config.datasets import require_evaluation_data
from babelmill.config.languages import WORD
from babelmill.config.models import OBJECTIVES, lacks_config
from babelmill.config.resolve import Configuration, ResolvedCorpus, ResolvedModel, is_folder
from babelmill.config.schema import OURS, Corpus, Labels, words_of_document
from babelmill.core.files import UserError, not_found, sha256
from babelmill.core.formats import split_name
from babelmill.core.local_sources import matched, of_files
from babelmill.core.words import first_line, plural

KEYS = ("files", "validation_files")  # keys of the section `corpus` that name local text
MODEL_FILE = re.compile(r"^(?!\.).*\.(json|safetensors|bin)$|^README\.md$")
# Steps of the stage `corpus` that the stage which fetches the files does not take: it has no model, and it does not
# read all files first.
UNCOUNTED_STEPS = ("decontaminate", "language_filter", "near_duplicates")
# Keys of `corpus` that are not used to count how much text a file holds, with the values that stand for them.
UNCOUNTED: dict[str, Any] = {
    **Corpus.neutral(*UNCOUNTED_STEPS),
    **{"files": [], "builtin": None, "hub": None, "revision": "", "validation_files": [], "validation_share": 0.0},
}
OF_TRAINING = Labels.neutral("blocks_weight", "decoder_layers")  # not of reading codes
HUB_NAME = re.compile(r"\w[\w.-]*(/[\w.-]+)?")
BYTES_OF_WORD = 6  # with the space after it, about
FEW = 3  # documents for validation; if fewer are expected, there may be none


def hub_datasets(resolved: ResolvedCorpus) -> list[dict[str, Any]]:
    """Return the datasets that a language's text comes from.

    A dataset is {"repository", "revision"} with the other keys of its entry in `corpus.hub`. The list is empty if the
    text is local or built in.
    """
    corpus = resolved.corpus
    if corpus.files or corpus.builtin or not corpus.hub:
        return []
    common = {"revision": corpus.revision} | ({"format": corpus.format} if corpus.format else {})
    entries = (
        [{"repository": corpus.hub}] if isinstance(corpus.hub, str) else [part.model_dump() for part in corpus.hub]
    )
    parts = [{key: value for key, value in entry.items() if value} | common for entry in entries]
    return json.loads(json.dumps(parts).replace("{language}", resolved.name))


def counted(corpus: Corpus) -> dict[str, Any]:
    """Return the keys of the section `corpus` that decide how much text a file yields, as settings files hold them."""
    return {key: value for key, value in corpus.written().items() if key not in UNCOUNTED}


def characters(resolved: ResolvedModel) -> int | None:
    """Return how many characters a model from scratch can read at once, if its tokens are characters; else None."""
    model = resolved.model
    if model.source or resolved.tokenizer.source or (model.config or {}).get("model_type") != "canine":
        return None
    return model.max_position_embeddings


def check(configuration: Configuration, model: str) -> None:
    """Raise a UserError if a model needs labels, validation text, or files of a challenge that are not there."""
    resolved = configuration.model(model)
    for code in resolved.languages:
        text = configuration.corpus(code)
        if not (text.corpus.validation_share or text.corpus.validation_files or hub_datasets(text)):
            allowed = f"no text is set aside for validation: {set_aside(text.corpus)}"
            raise text.refused("corpus.validation_share", allowed)
        if resolved.learns_labels and not text.corpus.label_columns:
            raise resolved.refused("train.objective", f"languages.{code}.corpus.label_columns is expected")
    require_evaluation_data(configuration, model)


def base_model(resolved: ResolvedModel) -> dict[str, Any]:
    """Return the content of the settings of `base_model` (see `BaseModelStage`).

    A UserError says that the model continues none of elsewhere, or that its folder holds no model.
    """
    source = resolved.model.source
    if source is None or resolved.continued:
        raise UserError(f"model {resolved.name}: model.source is no folder or repository: there is nothing to fetch")
    asked: dict[str, Any] = {"shape": resolved.beside}
    if not resolved.trained:
        asked = {"shape": {}, "unchanged": True}
    elif resolved.model.architecture == "transformers":
        asked["auto_class"] = OBJECTIVES[resolved.train.objective].auto_class
    elif resolved.model.architecture == "norbert4":
        asked["architecture"] = "norbert4"
    if not is_folder(source):
        repository = {"repository": source, "revision": resolved.model.revision}
        return asked | {"source": repository, "sources": {}}
    if not (files := model_files(source)):
        raise resolved.refused("model.source", lacks_config(Path(source)))
    return asked | {"source": None, "sources": {source: of_files(files)}}


def model_files(folder: str) -> list[str]:
    """Return the files of a folder that may define a model, sorted; an empty list without a config.json."""
    names = sorted(path.name for path in Path(folder).glob("*") if path.is_file() and MODEL_FILE.search(path.name))
    return [str(Path(folder, name)) for name in names] if "config.json" in names else []


def corpus_sources(resolved: ResolvedCorpus) -> dict[str, Any]:
    """Return the local text of a language: what each glob matches (see `local_sources.py`), and Python's built-in text.

    A UserError says that the language has no text at all, or that a glob matches no file.
    """
    corpus, where = resolved.corpus, resolved.origins["corpus.files"]
    if not corpus.files and not corpus.builtin and not corpus.hub:
        raise UserError(f"{where}: corpus of {resolved.name}: files, a dataset of the Hub (hub) or builtin is expected")
    sources: dict[str, Any] = {
        pattern: matched(pattern, f"{resolved.origins[f'corpus.{key}']}: corpus file", corpus.format)
        for key in KEYS
        for pattern in getattr(corpus, key)
    }
    if corpus.builtin:
        sources[corpus.builtin] = platform.python_version()
    return sources


def few_documents(resolved: ResolvedCorpus) -> str | None:
    """Return what to set if none of a language's documents may be set aside for validation, where that is known.

    It is known of local plain text whose documents are files or many words.
    """
    corpus, sources = resolved.corpus, corpus_sources(resolved)
    if corpus.validation_files or hub_datasets(resolved):
        return None
    words = words_of_document(corpus.document)
    plain = all(split_name(pattern, corpus.format)[0] == ".txt" for pattern in corpus.files)
    if corpus.builtin or not plain or not (words or corpus.document == "file"):
        return None
    files, size = (sum(each[key] for each in sources.values()) for key in ("files", "bytes"))
    return too_few(corpus, max(files, size // (BYTES_OF_WORD * words)) if words else files)


def too_few(corpus: Corpus, documents: int) -> str | None:
    """Return what to set if none of so many documents may be set aside; None if there are enough."""
    if documents * corpus.validation_share >= FEW or not corpus.validation_share:
        return None
    of = f"corpus.validation_share = {corpus.validation_share:g} of {plural(documents, 'document')}"
    return f"too few documents to set any aside: {of}; {set_aside(corpus)}"


def set_aside(corpus: Corpus) -> str:
    """Return what to set so that there is text for validation."""
    plain = any(split_name(pattern, corpus.format)[0] == ".txt" for pattern in corpus.files)
    smaller = "corpus.document: 300 words (or paragraph, or line), " if plain and corpus.document != "line" else ""
    return f"set {smaller}a larger corpus.validation_share, or corpus.validation_files"


def tokenizer_source(resolved: ResolvedModel) -> dict[str, Any]:
    """Return where a tokenizer comes from, for its settings: `source` on the Hub, or the sha256 of a local file."""
    name = resolved.tokenizer.source or ""
    if Path(name).is_file():
        return {"source": None, "sources": {name: sha256(name)}}
    if HUB_NAME.fullmatch(name) and not name.endswith(".json"):
        return {"source": {"repository": name, "revision": resolved.tokenizer.revision}, "sources": {}}
    if name:
        expected = f"a tokenizer.json or a repository (owner/name) is expected; {not_found(name)}"
        raise resolved.refused("tokenizer.source", expected)
    return {"source": None, "sources": {}}


def architecture_name(resolved: ResolvedModel) -> str:
    """Return the architecture of a model for the name of its repository: gptbert, gpt2, llada-8b-base."""
    if resolved.model.architecture in OURS:
        return resolved.model.architecture.replace("_", "")
    root = resolved.chain()[-1]
    if root.model.source:
        return re.sub(r"[^\w.-]", "", Path(root.model.source).name.lower()).strip("-._") or "transformers"
    return str((root.model.config or {}).get("model_type", "transformers"))


def repository(resolved: ResolvedModel) -> str:
    """Return where a model is published, `owner/name`; `{username}` stays in it if it means the token's account.

    A UserError says that this cannot be the name of a repository.
    """
    from huggingface_hub.utils import validate_repo_id  # takes a moment to import

    publish = resolved.publish
    fields = {
        "username": publish.username or "{username}",
        "architecture": architecture_name(resolved),
        "model": resolved.name,
        "causal_suffix": OBJECTIVES[resolved.train.objective].suffix,
        "variant_suffix": "-ema" if resolved.export.variants == ["ema"] else "",
    }
    name = publish.repo_template.format(**fields)
    try:
        validate_repo_id(name.replace("{username}", "x"))
    except ValueError as error:
        raise resolved.refused("publish.repo_template", f"{name} is no name on the Hub: {first_line(error)}") from None
    return name


def bytes_per_word(resolved: ResolvedModel) -> dict[str, float]:
    """Return {code: bytes per word} of the languages of a model whose words are counted in bytes.

    These are languages whose script does not separate words, and with `train.max_words` all languages of a mixture: its
    words are English-equivalent, as in budgets.
    """
    rows = resolved.rows.values()
    if resolved.train.max_words and len(rows) > 1:
        return {row.code: WORD * row.byte_premium for row in rows}
    return {row.code: row.bytes_per_word for row in rows if row.bytes_per_word is not None}


def how_codes_are_read(resolved: ResolvedModel) -> dict[str, Any]:
    """Return the settings for reading codes, without those for learning them; nothing for a model without labels."""
    if not resolved.learns_labels:
        return {}
    path = resolved.labels.codes
    if path and not Path(path).is_file():
        raise UserError(f"labels.codes = {path}: {not_found(path)}")
    labels = resolved.labels.model_copy(update=OF_TRAINING)
    return {"labels": labels, "labelled": True} | ({"code_list": sha256(path)} if path else {})
