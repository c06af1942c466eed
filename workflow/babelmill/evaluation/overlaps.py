"""Say in words how many test items stand in a model's training text: what the stage `score` wrote to overlap.json.

The last line of a score, the card and the report say it in the same words.
"""

from pathlib import Path
from typing import Any

from babelmill.core import manifest
from babelmill.core.words import plural

OVERLAP = "overlap.json"
# What counts, for readers who see only the numbers.
MEANING = (
    "An item is in the training text if all words of one of its texts stand there in a row, or any 13 of them if it has"
    " more. Case and punctuation do not matter. Texts of fewer than 4 words are too short to tell."
)


def overlap_of(folder: Path) -> Path | None:
    """Return overlap.json of a score; None if it has none; raise a UserError if the file is missing or damaged."""
    if OVERLAP not in manifest.read(folder)["files"]:
        return None
    manifest.verify(folder, OVERLAP)
    return folder / OVERLAP


def in_training_text(overlap: dict[str, Any], code: str) -> str:
    """Return how many items of a language stand in the training text, and the score without them."""
    about = overlap["languages"][code]
    found, items = about["found"], plural(about["items"], overlap["item"])
    text = f"{found:,} of {items} {'stands' if found == 1 else 'stand'} in the training text"
    if about["short"]:
        text += f" ({about['short']:,} {'is' if about['short'] == 1 else 'are'} too short to tell)"
    if found and (without := about["without"]):
        low, high = (100 * end for end in without["interval"])
        them = "it" if found == 1 else "them"
        text += f"; without {them} {100 * without['score']:.1f} ({low:.1f} to {high:.1f}, n = {without['n']:,})"
    elif found:
        text += "; without them nothing is left to score"
    return text
