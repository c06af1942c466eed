"""Say in how many parts a corpus is made, and where they are (`corpus.parts`).

A part is no stage of its own: its job has the settings file of the stage `corpus`, and the name of its folder holds a
digest of that file. So parts of other settings are never taken for those of the present ones. Snakemake deletes the
parts when the corpus is made.
"""

import hashlib
import math
import re
from pathlib import Path
from typing import Any

from babelmill.config.inputs import SETTINGS
from babelmill.config.job_sizes import input_bytes
from babelmill.config.resolve import Configuration
from babelmill.core.files import UserError, canonical_json, read_json, sha256, write_json

FOLDER = Path("results/corpus_parts")
EACH = 40e9  # bytes of text in a part, for `auto`: about an hour of eight processes with the slowest steps
MOST = 2000  # parts, as in the schema: their names must fit into one command
NAME = re.compile(r"([0-9a-f]{8})-([1-9]\d*)-of-([1-9]\d*)")


def settings_digest(path: str | Path) -> str:
    """Return the digest of a settings file that the names of parts hold."""
    return sha256(path)[:8]


def digest_of(settings: dict[str, Any]) -> str:
    """Return `settings_digest` of the file that has these settings."""
    return hashlib.sha256(canonical_json(settings).encode()).hexdigest()[:8]


def number_of(name: str) -> tuple[str, int, int]:
    """Return what the name of a part says: the digest of its settings, its number (from 1), and how many there are.

    A UserError says that it is no such name.
    """
    if not (found := NAME.fullmatch(name)) or int(found[2]) > int(found[3]):
        raise UserError(f"{name}: not the name of a part of a corpus, such as 3f2a91c0-3-of-7")
    return found[1], int(found[2]), int(found[3])


def names_of(code: str) -> list[str]:
    """Return the names of the parts that `plan` has written down for a language; [] if it is made in one job."""
    path = SETTINGS / code / "corpus_parts.json"
    return read_json(path) if path.is_file() else []


def plan(configuration: Configuration, code: str) -> list[str]:
    """Return the names of the parts of a language's corpus, and write them down; [] if one job makes it.

    Its settings file must be written already. `auto` keeps an earlier number as long as the settings stay the same: how
    large a dataset is may be known better now, but finished parts must be of use.
    """
    corpus, path = configuration.corpus(code).corpus, SETTINGS / code / "corpus_parts.json"
    digest, before = settings_digest(SETTINGS / code / "corpus.json"), names_of(code)
    auto = corpus.parts == "auto"
    count = min(MOST, math.ceil(input_bytes(configuration, code) / EACH)) if auto else int(corpus.parts)
    if auto and before and before[0].startswith(digest):
        count = len(before)
    if corpus.files or corpus.builtin:  # a part has whole files; how many a download has is known only later
        sources = read_json(SETTINGS / code / "corpus.json")["sources"]
        count = min(count, sum(sources[pattern]["files"] for pattern in corpus.files))
    names = [f"{digest}-{number}-of-{count}" for number in range(1, count + 1)] if count > 1 else []
    if names != before:
        if names:
            write_json(path, names)
        else:
            path.unlink(missing_ok=True)
    return names
