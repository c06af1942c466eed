"""Find downloads, and corpora of downloads, that an earlier release would make otherwise now.

Only then do settings files say that the rule is another one, so that only such results are made again. The results
that are made then keep this in their settings.
"""

import glob
from pathlib import Path
from typing import Any

from babelmill.config.quotation_marks import in_settings
from babelmill.config.schema import Corpus
from babelmill.core import manifest
from babelmill.core.files import UserError, read_json
from babelmill.hub.data_files import chosen_by_words


def quoting_of_download(corpus: Corpus, made: Path, download: Path) -> str | None:
    """Return `format` if a corpus read a .tsv of a download with quoting, and would not now; None otherwise.

    Args:
        corpus: its section.
        made: the folder of the corpus.
        download: the folder of the download.
    """
    about = manifest_of(made)
    if about.get("settings", {}).get("corpus", {}).get("quoting") == "format":
        return "format"
    if not _is_earlier(about):
        return None
    return in_settings("format", downloaded(download), said=corpus.format)


def chosen_otherwise(download: Path) -> bool:
    """Return whether a download has files that words in their names leave out now. (A card may have named them.)"""
    about = manifest_of(download)
    if about.get("settings", {}).get("chosen_again"):
        return True
    if not _is_earlier(about):
        return False
    figures = about.get("figures", {})
    return any(map(_drops_files, figures.get("parts") or [figures]))


def _drops_files(part: dict[str, Any]) -> bool:
    if part.get("config") or not part.get("train"):
        return False
    names = [*part["train"], *part.get("validation", [])]
    return chosen_by_words(names, part.get("files"), part.get("format")).train != sorted(part["train"])


def downloaded(download: Path) -> list[str]:
    """Return globs for the files of a download."""
    return [glob.escape(str(download / name)) for name in manifest_of(download).get("files", {})]


def manifest_of(folder: Path) -> dict[str, Any]:
    """Return the manifest of a folder; {} without one, or if it is damaged, which is an error when it is used."""
    path = folder / manifest.NAME
    try:
        content = read_json(path)
        manifest.unsealed(content, path, "")
    except UserError:
        return {}
    return content if isinstance(content, dict) else {}


def _is_earlier(about: dict[str, Any]) -> bool:
    """Return whether release 0.2.0 wrote a manifest, which had no sha256 of its own."""
    return bool(about) and "sha256" not in about
