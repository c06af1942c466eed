"""Estimate how much text and how many parameters jobs will have, before any runs: their resources depend on it."""

import contextlib
import os
import re
from collections import Counter
from pathlib import Path
from typing import Any

from babelmill.config.inputs import SETTINGS
from babelmill.config.languages import WORD
from babelmill.config.model_size import parameters
from babelmill.config.model_source import ModelSource
from babelmill.config.resolve import Configuration
from babelmill.config.schema import OURS
from babelmill.core import manifest, outside
from babelmill.core.files import UserError, read_json

UNPACKED = 4  # bytes of text per byte of a compressed file or a Parquet file
TIER_BYTES = {1: 543e6, 2: 54.3e6, 3: 5.43e6}  # of English text in the BabyBabelLM tiers
DOCUMENT = 2000  # bytes per document, in English


def text_bytes(configuration: Configuration, code: str) -> float:
    """Return about how many bytes of text a language's corpus has; without a corpus, how many its input has."""
    corpus = Path("results/corpora", code, "train.parquet")
    return UNPACKED * corpus.stat().st_size if corpus.is_file() else input_bytes(configuration, code)


def input_bytes(configuration: Configuration, code: str) -> float:
    """Return about how many bytes a corpus will have, from local files, the download, the budget or the tier."""
    try:
        sources: dict[str, Any] = read_json(SETTINGS / code / "corpus.json")["sources"]
    except (UserError, KeyError):
        sources = {}
    local = sum(_unpacked(pattern, entry["bytes"]) for pattern, entry in sources.items() if "bytes" in entry)
    corpus = configuration.corpus(code).corpus
    if corpus.builtin or (corpus.files and local):
        return local
    return local + _to_download(configuration, code)  # local validation text may come with a dataset


def _to_download(configuration: Configuration, code: str) -> float:
    corpus, language = configuration.corpus(code).corpus, configuration.language(code)
    if found := _below(Path("results/downloads", code)):
        return found
    return budget_bytes(corpus.budget or TIER_BYTES[language.tier] / 1e6, language.byte_premium)


def budget_bytes(budget: float | str, byte_premium: float) -> float:
    """Return about how many bytes of text `corpus.budget` asks for."""
    if not isinstance(budget, str):
        return budget * 1e6 * byte_premium
    count, unit = budget.split(maxsplit=1)
    return int(count) * (DOCUMENT if unit == "documents" else WORD) * byte_premium


def _unpacked(name: str, size: int) -> float:
    return size * (UNPACKED if name.endswith((".gz", ".zst", ".parquet")) else 1)


def _below(folder: Path) -> float:
    """Return about how many bytes of text a folder's files hold."""
    files = (Path(at, name) for at, _, names in os.walk(folder) for name in names)
    return sum(_unpacked(path.name, path.stat().st_size) for path in files)


WEIGHTS = re.compile(r"(pytorch_)?model(-\d+-of-\d+)?\.(safetensors|bin)")


def parameters_of(configuration: Configuration, model: str) -> int | None:
    """Return about how many parameters a model has; None if this is known only when its source has been fetched."""
    of_root = configuration.model([model, *configuration.ancestors(model)][-1])
    if of_root.source:
        return _fetched(of_root.source) or (
            _in_folder(Path(of_root.source.name)) if of_root.source.kind == "folder" else None
        )
    entries = of_root.tokenizer.vocab_size
    if of_root.model.architecture in OURS:
        return parameters(of_root.model, entries)
    return None


def _fetched(source: ModelSource) -> int | None:
    """Return the count of the stage `base_model`; None if it has not run."""
    with contextlib.suppress(UserError, OSError, KeyError, TypeError):
        return int(manifest.read(source.weights)["figures"]["parameters"])
    return None


def _in_folder(folder: Path) -> int | None:
    """Return the most parameters that a folder's weights can hold: two bytes each, or four if config.json says so."""
    with contextlib.suppress(UserError, OSError, AttributeError):
        config = outside.read_object(folder / "config.json")
        each = 4 if "float32" in (config.get("dtype"), config.get("torch_dtype")) else 2
        sizes = Counter[str]()
        for path in folder.iterdir():
            if WEIGHTS.fullmatch(path.name):
                sizes[path.suffix] += path.stat().st_size
        return max(sizes.values(), default=0) // each or None
    return None
