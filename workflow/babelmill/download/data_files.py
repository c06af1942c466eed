"""Find which files of a dataset repository are text for training, and which are for validation.

A repository may declare *configurations*, each with its data files by split, in the front matter of its card (the key
`configs`, as the library `datasets` reads it). If it declares none, words in the paths tell the splits.
"""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import yaml
from huggingface_hub.repocard import metadata_load

from babelmill.core import escape
from babelmill.core.files import UserError
from babelmill.core.formats import FORMATS, split_name
from babelmill.core.globs import matches

# If a dataset has several formats, the first of these is taken: the others are usually the same data again, or no data
# at all (requirements.txt).
PREFERRED = (".parquet", ".jsonl", ".csv", ".tsv", ".txt", ".json")
NO_DATA = {"dataset_infos.json", "dataset_info.json", "state.json", "config.json", "manifest.json"}
BY_WORDS = ""  # used instead of a split's name: words in the paths tell the splits of these files
# `datasets` recognises a split by a word in the path that has no letter or digit directly before or after it.
VALIDATION = re.compile(r"(?<![a-z0-9])(validation|valid|val|dev)(?![a-z0-9])", re.IGNORECASE)
TEST = re.compile(r"(?<![a-z0-9])(test|testing|eval|evaluation)(?![a-z0-9])", re.IGNORECASE)


@dataclass(frozen=True)
class DataFiles:
    """Holds sorted names of files in a repository."""

    train: list[str]
    validation: list[str]


def configurations(card: Path | None) -> dict[str, dict[str, list[str]]]:
    """Return what a dataset's card declares: {configuration: {split: globs}}, which is empty without a card.

    Globs without a split belong to `train`. A card whose front matter cannot be read declares nothing. An entry that
    cannot be read is a configuration without files.
    """
    try:
        declared = ((metadata_load(card) if card else None) or {}).get("configs") or []
    except (ValueError, AttributeError, yaml.YAMLError):
        return {}
    entries = [entry for entry in declared if isinstance(entry, dict)] if isinstance(declared, list) else []
    return {str(entry["config_name"]): _splits(entry) for entry in entries if "config_name" in entry}


def _splits(entry: dict[str, Any]) -> dict[str, list[str]]:
    """Return the globs of a configuration by split, each under `data_dir`."""
    files, folder = entry.get("data_files", {BY_WORDS: "**"}), entry.get("data_dir")
    try:
        if isinstance(files, list) and files and isinstance(files[0], dict):
            files = {item["split"]: item["path"] for item in files}
        by_split = files if isinstance(files, dict) else {"train": files}
        globs = {str(split): [path] if isinstance(path, str) else list(path) for split, path in by_split.items()}
    except (KeyError, TypeError):
        return {}
    return {split: [f"{folder}/{path}" if folder else path for path in paths] for split, paths in globs.items()}


def data_files(names: list[str], part: dict[str, Any], card: Path | None, where: str) -> DataFiles:
    """Return the files of a repository that the user asks for.

    Args:
        names: names of all its files.
        part: `config` and `files`, if the user gave them; see `DatasetPart` in `config/schema.py`.
        card: path of its README.md.
        where: the repository's name in errors.

    Raises:
        UserError: the configuration does not exist; there are several and the user names none; or no file can be read.
    """
    declared, config, globs = configurations(card), part.get("config"), part.get("files")
    if config and config not in declared:
        known = f"there are {escape.some(declared)}" if declared else "its card declares none; name files instead"
        raise UserError(f"{where} has no configuration {config!r}; {known}")
    if len(declared) > 1 and not config and not globs:
        raise UserError(
            f"{where} has several configurations: {escape.some(declared)}; choose one in corpus.hub, for instance"
            f" [{{repository: {part['repository']}, config: {next(iter(declared))}}}]"
        )
    if globs:
        names = [name for name in names if any(matches(name, pattern) for pattern in globs)]
    if not config and len(declared) == 1 and "train" in next(iter(declared.values())):
        config = next(iter(declared))  # the only configuration declares the files for training
    found = _of_configuration(names, declared[config]) if config else _by_words(names, bool(globs))
    if not found.train:
        raise UserError(_nothing(names, part, where, declared.get(config or "")))
    return found


def _of_configuration(names: list[str], splits: dict[str, list[str]]) -> DataFiles:
    """Return the readable files of a configuration's splits."""

    def of(wanted: list[str]) -> list[str]:
        return sorted(name for name in names if _may_be_data(name) and any(matches(name, glob) for glob in wanted))

    if BY_WORDS in splits:
        return _by_words([name for name in names if any(matches(name, glob) for glob in splits[BY_WORDS])], False)

    held_out = [glob for split, globs in splits.items() if VALIDATION.fullmatch(split) for glob in globs]
    return DataFiles(of(splits.get("train", [])), of(held_out))


def _may_be_data(name: str) -> bool:
    return split_name(name)[0] in FORMATS and PurePosixPath(name).name not in NO_DATA


def _by_words(names: list[str], chosen: bool) -> DataFiles:
    """Return the readable files without test splits: those of the preferred format, or all if the user chose them."""
    data = [name for name in sorted(names) if _may_be_data(name) and not TEST.search(name)]
    formats = (set(FORMATS),) if chosen else tuple({kind} for kind in PREFERRED)
    for kinds in formats:
        if found := [name for name in data if split_name(name)[0] in kinds]:
            validation = [name for name in found if VALIDATION.search(name)]
            return DataFiles([name for name in found if name not in validation], validation)
    return DataFiles([], [])


def _nothing(names: list[str], part: dict[str, Any], where: str, splits: dict[str, list[str]] | None) -> str:
    """Return the error message for a repository without a file for training."""
    if splits is not None and not splits.keys() & {"train", BY_WORDS}:
        return (
            f"{where}: its configuration {part['config']} has no split `train`; it has {escape.some(splits) or 'none'}"
        )
    known = ", ".join(f"{kind}[.gz|.zst]" for kind in PREFERRED)
    asked = f" that corpus.hub asks for (files: {escape.some(part['files'])})" if part.get("files") else ""
    return (
        f"{where} has no training data{asked} in a supported format ({known}; test splits do not count); it contains"
        f" {escape.some(sorted(names)) or 'no such file'}"
    )


def in_order(names: list[str]) -> list[str]:
    """Return files in the order of a hash of their names: it is the same for every user, and mixes their contents."""
    return sorted(names, key=lambda name: hashlib.sha256(name.encode()).digest())
