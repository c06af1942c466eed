"""Find which files of a dataset repository are text for training, and which are for validation.

A repository may declare *configurations*, each with its data files by split, in the front matter of its card (the key
`configs`, as the library `datasets` reads it). If it declares none, words in the paths tell the splits, as in
`datasets`: where a file has the word `train`, all other files are no training text.
"""

import fnmatch
import hashlib
import logging
import re
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
# `datasets` recognises a split by a word in the path that has no letter or digit directly before or after it.
VALIDATION = re.compile(r"(?<![a-z0-9])(validation|valid|val|dev)(?![a-z0-9])", re.IGNORECASE)
TEST = re.compile(r"(?<![a-z0-9])(test|testing|eval|evaluation)(?![a-z0-9])", re.IGNORECASE)
TRAIN = re.compile(r"(?<![a-z0-9])(train|training)(?![a-z0-9])", re.IGNORECASE)
# A part of another split than `train`, such as train_gen-00000-of-00003.
OTHER = re.compile(r"(?:^|/)train(?:ing)?[^a-z0-9/][^/]*?-\d{5}-of-\d{5}[^/]*$", re.IGNORECASE)
SPLITS = ("train", "validation")
MAGIC = re.compile(r"[*?[]")

log = logging.getLogger("babelmill.download")


def configurations(card: Path | None, where: str) -> dict[str, dict[str, list[str]]]:
    """Return what a dataset's card declares: {configuration: {split: globs}}, which is empty without a card.

    A configuration without a list of files has the globs of the split "", whose files tell their splits by words. A
    card that cannot be read declares nothing, which a warning says; an entry that cannot be read has no files.
    """
    try:
        # All is text: the configurations `no`, `010` and `1.10` have these names, and are not False, 8 and 1.1.
        declared = front_matter(card, f"{where}: README.md", as_text=True).get("configs") if card else None
    except UserError as error:
        log.warning("%s; its configurations are not known, and names of files tell the splits", error)
        return {}
    entries = [entry for entry in declared if isinstance(entry, dict)] if isinstance(declared, list) else []
    return {name: _splits(entry) for entry in entries if isinstance(name := entry.get("config_name"), str)}


def _splits(entry: dict[str, Any]) -> dict[str, list[str]]:
    """Return the globs of a configuration by split, each under `data_dir`; {} if the entry cannot be read."""
    folder = PurePosixPath("" if entry.get("data_dir") in ("null", "~") else str(entry.get("data_dir", "")))
    files = entry.get("data_files", {"": "**"})
    if isinstance(files, list) and files and all(isinstance(item, dict) for item in files):
        pairs = [(item.get("split"), item.get("path")) for item in files]
    else:
        pairs = list(files.items()) if isinstance(files, dict) else [("train", files)]
    globs: dict[str, list[str]] = {}
    for split, given in pairs:
        paths = given if isinstance(given, list) else [given]
        if not all(isinstance(each, str) and each not in ("null", "~") for each in (split, *paths)):
            return {}
        globs.setdefault(split, []).extend(str(folder / path) for path in paths)
    return globs


def matches(path: str, pattern: str) -> bool:
    """Return whether a path matches a glob, part by part: `*` stays within a folder, `**` crosses folders.

    The time grows with the number of parts of both: a card may contain many `**`.
    """
    names = PurePosixPath(path).parts
    fitting = {0}  # how many of the names the parts so far can stand for
    for part in PurePosixPath(pattern).parts:
        if part == "**":
            fitting = set(range(min(fitting, default=len(names) + 1), len(names) + 1))
        else:
            fitting = {n + 1 for n in fitting if n < len(names) and fnmatch.fnmatchcase(names[n], part)}
    return len(names) in fitting


def matching(names: list[str], globs: list[str]) -> list[str]:
    """Return the names that one of the globs matches, in their order."""
    exact = {str(PurePosixPath(glob)) for glob in globs if not MAGIC.search(glob)}
    patterns = [glob for glob in dict.fromkeys(globs) if MAGIC.search(glob)]
    return [name for name in names if name in exact or any(matches(name, pattern) for pattern in patterns)]


def data_files(names: list[str], part: dict[str, Any], card: Path | None, where: str) -> dict[str, list[str]]:
    """Return {split: sorted names} of a repository's files that a user asks for by `part` (`schema.DatasetPart`).

    Its `format` is that of the files that `files` names, if their names do not say it. A UserError says that the
    configuration does not exist, that there are several and the user names none, or that no file can be read. If the
    user names files, those for validation are enough: other text may be trained on.
    """
    declared, config, globs = configurations(card, where), part.get("config"), part.get("files")
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
        if globs and not declared[config].keys() & {"", "train"}:
            config = None  # ... except to a user who names files of a dataset without a split for training
    splits = declared[config] if config else {"": ["**"]}
    asked = matching(names, globs) if globs else sorted(names)
    format = part.get("format") if globs else None  # without globs, a README would be data, too
    data = [name for name in asked if split_name(name, format)[0] in FORMATS and Path(name).name not in NO_DATA]
    if "" not in splits:
        held_out = [glob for split, globs in splits.items() if VALIDATION.fullmatch(split) for glob in globs]
        found = {"train": matching(data, splits.get("train", [])), "validation": matching(data, held_out)}
    else:
        # Words tell the splits; with the user's globs, among the files of one glob, which may have any format.
        data = matching(data, splits[""])
        each = [_told_apart(matching(data, [glob])) for glob in globs] if globs else [_told_apart(data)]
        found = {split: sorted({name for one in each for name in one[split]}) for split in SPLITS}
        if not globs:
            found["train"] = [name for name in found["train"] if not OTHER.search(name)]
            kinds = {split_name(name)[0] for name in found["train"]}
            kind = next((kind for kind in PREFERRED if kind in kinds), None)
            found = {split: [n for n in names if split_name(n)[0] == kind] for split, names in found.items()}
    if not found["train"] and not (globs and found["validation"]):
        remedy = (
            f"name files in corpus.hub, for instance [{{repository: {part['repository']}, files: [data/*.parquet]}}]"
        )
        if not splits.keys() & {"", "train"}:
            has = f"has no split `train`; it has {some(splits) or 'none'}"
            raise UserError(f"{where}: its configuration {line(config, 100)} {has}; {remedy}")
        named = f" in files: {some(globs)}" if globs else ""
        kinds = f"a supported format ({', '.join(PREFERRED)}; test splits do not count)"
        raise UserError(
            f"{where} has no training data{named} in {kinds}; it contains {some(sorted(names)) or 'no file'}; {remedy}"
        )
    return found


def _told_apart(names: list[str]) -> dict[str, list[str]]:
    """Return the files without test splits. Where files have the word `train`, only they are training text."""
    data = [name for name in sorted(names) if not TEST.search(name)]
    train = [name for name in data if not VALIDATION.search(name)]
    train = [name for name in train if TRAIN.search(name)] or train
    return {"train": train, "validation": [name for name in data if VALIDATION.search(name)]}


def in_order(names: list[str]) -> list[str]:
    """Return files in the order of a hash of their names: it is the same for every user, and mixes their contents."""
    return sorted(names, key=lambda name: hashlib.sha256(name.encode()).digest())
