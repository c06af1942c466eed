"""Read the numbers that `babelmill corpus` wrote about texts, for a section of a report.

They are no result of a stage: they lie beside the pages, in `reports/corpora/{language}.json`. So a look at a text
never makes anything run again.
"""

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from babelmill.core import manifest
from babelmill.core.files import UserError, read_json, sha256

FOLDER = Path("reports/corpora")
SOURCE, MADE = "source", "corpus"  # which text was looked at: before or after the stage `corpus`
EARLIER = "an earlier corpus"  # for a reader, if the corpus was made again since


def surveys(codes: Iterable[str], corpora: Collection[Path] = ()) -> dict[str, dict[str, Any]]:
    """Return {language: numbers} of the languages whose text was looked at. Damaged files count as missing.

    `corpora`: the corpora that are used now; numbers of others are of an earlier corpus.
    """
    found: dict[str, dict[str, Any]] = {}
    present = {sha256(path) for folder in corpora if (path := folder / manifest.NAME).is_file()}
    for code in codes:
        path = FOLDER / f"{code}.json"
        if not path.is_file():
            continue
        try:
            figures = read_json(path)
            found[code] = line_of(figures)
            if figures["of"] == MADE and figures["manifest"] not in present:
                found[code]["of"] = EARLIER
        except (UserError, LookupError, TypeError, ValueError, AttributeError):
            continue
    return found


def line_of(figures: dict[str, Any]) -> dict[str, Any]:
    """Return the main numbers of a text; "of" says which text was looked at, and "median" is in characters.

    "script" and "language" are the most frequent one with its share of the documents. "copies", "shared_lines", "odd"
    and "mojibake" are shares.
    """
    documents, judged, lines = figures["documents"], figures["judged"], figures["lines"]
    languages = {code: each["documents"] for code, each in figures["languages"].items()}
    return {
        "of": figures["of"],
        "documents": documents,
        "words": figures["words"],
        "median": figures["lengths"]["characters"]["50%"],
        "script": most_frequent(figures["scripts"], documents),
        "language": most_frequent(languages, judged),
        "copies": share(figures["near_copies"]["documents"], documents),
        "shared_lines": share(lines["in_several_documents"], lines["in_documents"]),
        "odd": share(figures["odd_characters"].get("any", {}).get("documents", 0), documents),
        "mojibake": share(figures["mojibake"]["documents"], judged),
    }


def share(part: float, whole: float) -> float:
    """Return a share; 0 of nothing."""
    return part / whole if whole else 0.0


def most_frequent(numbers: dict[str, int], whole: int) -> tuple[str, float]:
    """Return the most frequent name and its share of the whole."""
    name = max(numbers, key=lambda each: numbers[each], default="")
    return name, share(numbers.get(name, 0), whole)
