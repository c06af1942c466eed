"""Find which files of a dataset repository are text for training, and which are for validation.

A repository may declare *configurations*, each with its data files by split, in the front matter of its card (the key
`configs`, as the library `datasets` reads it). If it declares none, words in the paths tell the splits, as in
`datasets`: where a file has the word `train`, all other files are no training text.
"""

import fnmatch
import hashlib
import logging
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from babelmill.core.escape import line, some
from babelmill.core.files import UserError
from babelmill.core.formats import FORMATS, split_name
from babelmill.core.yaml_file import front_matter

# If a dataset has several formats, the first of these is taken: the others are usually the same data again, or no data
# at all (requirements.txt).
PREFERRED = (".parquet", ".jsonl", ".csv", ".tsv", ".txt", ".json")
NO_DATA = {"dataset_infos.json", "dataset_info.json", "state.json", "config.json", "manifest.json"}
BY_WORDS = ""  # used instead of a split's name: words in the paths tell the splits of these files
# `datasets` recognises a split by a word in the path that has no letter or digit directly before or after it.
VALIDATION = re.compile(r"(?<![a-z0-9])(validation|valid|val|dev)(?![a-z0-9])", re.IGNORECASE)
TEST = re.compile(r"(?<![a-z0-9])(test|testing|eval|evaluation)(?![a-z0-9])", re.IGNORECASE)
TRAIN = re.compile(r"(?<![a-z0-9])(train|training)(?![a-z0-9])", re.IGNORECASE)
# A part of a split for training, which its name begins with: `train`, or another one such as `train_gen`.
SHARD = re.compile(r"(?:^|/)(train(?:ing)?(?![a-z0-9])[^/]*?)-\d{5}-of-\d{5}[^/]*$", re.IGNORECASE)
SPLITS = ("train", "validation")
MAGIC = re.compile(r"[*?[]")

log = logging.getLogger("babelmill.download")


@dataclass(frozen=True)
class DataFiles:
    """Holds sorted names of files in a repository."""

    train: list[str]
    validation: list[str]

    def __str__(self) -> str:
        """Return the names of the first files of each split."""
        return "; ".join(f"{split}: {some(getattr(self, split))}" for split in SPLITS if getattr(self, split))


def configurations(card: Path | None, where: str) -> dict[str, dict[str, list[str]]]:
    """Return what a dataset's card declares: {configuration: {split: globs}}, which is empty without a card.

    Globs without a split belong to `train`. A card that cannot be read declares nothing, which a warning says. An entry
    that cannot be read is a configuration without files; one without a name is ignored.
    """
    try:
        # All is text: the configurations `no`, `010` and `1.10` have these names, and are not False, 8 and 1.1.
        front = front_matter(card, f"{where}: README.md", as_text=True) if card else {}
        declared = front.get("configs")
    except UserError as error:
        log.warning("%s; its configurations are not known, and names of files tell the splits", error)
        return {}
    entries = [entry for entry in declared if isinstance(entry, dict)] if isinstance(declared, list) else []
    return {name: _splits(entry) for entry in entries if isinstance(name := entry.get("config_name"), str)}


def _splits(entry: dict[str, Any]) -> dict[str, list[str]]:
    """Return the globs of a configuration by split, each under `data_dir`; {} if the entry cannot be read."""
    files, folder = entry.get("data_files", {BY_WORDS: "**"}), entry.get("data_dir", "")
    files, folder = (None if files in ("null", "~") else files), ("" if folder in ("null", "~") else folder)
    pairs: list[tuple[Any, Any]] = list(files.items()) if isinstance(files, dict) else [("train", files)]
    if isinstance(files, list) and files and isinstance(files[0], dict):
        pairs = [(item.get("split"), item.get("path")) if isinstance(item, dict) else (None, None) for item in files]
    globs: dict[str, list[str]] = {}
    for split, given in pairs:
        paths: list[Any] = given if isinstance(given, list) else [given]
        if not all(isinstance(each, str) for each in (split, folder, *paths)):
            return {}
        globs.setdefault(split, []).extend(f"{folder}/{path}" if folder else str(path) for path in paths)
    return globs


def matches(path: str, pattern: str) -> bool:
    """Return whether a path matches a glob, part by part: `*` stays within a folder, `**` crosses folders.

    The time grows with the number of parts of both: a card may contain many `**`.
    """
    names = PurePosixPath(path).parts
    fitting = {0}  # how many of the names the parts so far can stand for
    for part in PurePosixPath(pattern).parts:
        if part == "**":
            fitting = set(range(min(fitting), len(names) + 1))
        else:
            fitting = {n + 1 for n in fitting if n < len(names) and fnmatch.fnmatchcase(names[n], part)}
        if not fitting:
            return False
    return len(names) in fitting


def matching(names: Iterable[str], globs: list[str]) -> list[str]:
    """Return the names that one of the globs matches, in their order."""
    exact = {"/".join(PurePosixPath(glob).parts) for glob in globs if not MAGIC.search(glob)}
    patterns = [glob for glob in dict.fromkeys(globs) if MAGIC.search(glob)]
    return [name for name in names if name in exact or any(matches(name, pattern) for pattern in patterns)]


def data_files(names: list[str], part: dict[str, Any], card: Path | None, where: str) -> DataFiles:
    """Return the files of a repository that the user asks for by `part`, see `DatasetPart` in `config/schema.py`.

    Its `format` is that of the files that `files` names, if their names do not say it. A UserError says that the
    configuration does not exist, that there are several and the user names none, or that no file can be read. If the
    user names files, those for validation are enough: other text may be trained on.
    """
    declared, config, globs = configurations(card, where), part.get("config"), part.get("files")
    format = part.get("format") if globs else None  # without globs, a README would be data, too
    if config and config not in declared:
        known = f"there are {some(declared)}" if declared else "its card declares none; name files instead"
        raise UserError(f"{where} has no configuration {config!r}; {known}")
    if len(declared) > 1 and not config and not globs:
        raise UserError(
            f"{where} has several configurations: {some(declared)}; choose one in corpus.hub, for instance"
            f" [{{repository: {part['repository']}, config: {line(next(iter(declared)), 100)}}}]"
        )
    if not config and len(declared) == 1 and any(declared.values()):
        config = next(iter(declared))  # the only one, which tells what is text for training ...
        if globs and _training_split(declared[config]) is None:
            config = None  # ... except to a user who names files of a dataset without a split for training
    splits = declared[config] if config else None
    if globs and (splits is None or BY_WORDS in splits):
        found = chosen_by_words(matching(names, (splits or {BY_WORDS: ["**"]})[BY_WORDS]), globs, format)
    elif splits is not None:
        found = _of_configuration(matching(names, globs) if globs else names, splits, format)
    else:
        found = chosen_by_words(names, None, format)
    if not found.train and not (globs and found.validation):
        raise UserError(_nothing(matching(names, globs) if globs else names, part | {"config": config}, where, splits))
    return found


def _training_split(splits: dict[str, list[str]]) -> str | None:
    """Return the split for training: `train`, or the only one whose name begins with this word; None without one."""
    begun = [split for split in splits if re.match(r"train(ing)?(?![a-z0-9])", split, re.IGNORECASE)]
    for name in (BY_WORDS, "train"):
        if name in splits:
            return name
    return begun[0] if len(begun) == 1 else None


def _of_configuration(names: list[str], splits: dict[str, list[str]], format: str | None) -> DataFiles:
    """Return the readable files of a configuration's splits."""
    if (training := _training_split(splits)) is None:
        return DataFiles([], [])
    if training == BY_WORDS:
        return _by_words(matching(names, splits[BY_WORDS]), format)
    held_out = [glob for split, globs in splits.items() if VALIDATION.fullmatch(split) for glob in globs]
    data = [name for name in sorted(names) if _may_be_data(name, format)]
    return DataFiles(matching(data, splits[training]), matching(data, held_out))


def _may_be_data(name: str, format: str | None) -> bool:
    return split_name(name, format)[0] in FORMATS and PurePosixPath(name).name not in NO_DATA


def _by_words(names: list[str], format: str | None) -> DataFiles:
    """Return the readable files without test splits, of the preferred format; none if several splits are for training.

    Where files have the word `train`, only they are training text. If they are parts of several splits, such as
    `train-00000-of-00003` and `train_gen-00000-of-00003`, only the split `train` is.
    """
    found = _told_apart(names, format)
    split, train = _splits_for_training(found.train), found.train
    if len(set(split.values())) > 1:
        train = [name for name in train if split.get(name) == "train"]
    for kind in PREFERRED:
        if chosen := [name for name in train if split_name(name, format)[0] == kind]:
            return DataFiles(chosen, [name for name in found.validation if split_name(name, format)[0] == kind])
    return DataFiles([], [])


def _told_apart(names: list[str], format: str | None) -> DataFiles:
    """Return the readable files without test splits. Where files have the word `train`, all others are left out."""
    data = [name for name in sorted(names) if _may_be_data(name, format) and not TEST.search(name)]
    validation = [name for name in data if VALIDATION.search(name)]
    train = [name for name in data if not VALIDATION.search(name)]
    return DataFiles([name for name in train if TRAIN.search(name)] or train, validation)


def _splits_for_training(names: list[str]) -> dict[str, str]:
    """Return {name: split} of the files that are numbered parts of a split for training."""
    return {name: found[1].lower() for name in names if (found := SHARD.search(name))}


def chosen_by_words(names: list[str], globs: list[str] | None, format: str | None) -> DataFiles:
    """Return the files that words in their names choose.

    With the user's globs, these are files of any format, and words tell the splits among those of one glob.
    """
    if not globs:
        return _by_words(names, format)
    each = [_told_apart(matching(names, [glob]), format) for glob in globs]
    return DataFiles(*(sorted({name for one in each for name in getattr(one, split)}) for split in SPLITS))


def _nothing(names: list[str], part: dict[str, Any], where: str, splits: dict[str, list[str]] | None) -> str:
    """Return the error message for a repository without a file for training."""
    example = f"[{{repository: {part['repository']}, files: [data/*.parquet]}}]"
    if splits is not None and _training_split(splits) is None:
        return (
            f"{where}: its configuration {line(part['config'], 100)} has no split `train`; it has"
            f" {some(splits) or 'none'}; name the files to train on in corpus.hub, for instance {example}"
        )
    if len(several := sorted(set(_splits_for_training(_told_apart(names, None).train).values()))) > 1:
        return (
            f"{where} has several splits for training, {some(several)}: name the files of one in corpus.hub, {example}"
        )
    known = ", ".join(f"{kind}[.gz|.zst]" for kind in PREFERRED)
    asked = f" that corpus.hub asks for (files: {some(part['files'])})" if part.get("files") else ""
    return (
        f"{where} has no training data{asked} in a supported format ({known}; test splits do not count); it contains"
        f" {some(sorted(names)) or 'no such file'}"
    )


def in_order(names: list[str]) -> list[str]:
    """Return files in the order of a hash of their names: it is the same for every user, and mixes their contents."""
    return sorted(names, key=lambda name: hashlib.sha256(name.encode()).digest())
