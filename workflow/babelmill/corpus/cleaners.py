"""Clean transcripts, subtitles and prose: take out what nobody said or wrote as text (`corpus.cleaners`).

The steps follow BabyBabelLM's pipeline, which cleans each category of text in its own way. The patterns are narrower
than there. A speaker label is a name (`Mother:`), not everything before a colon (`He said:`). A tag begins with a
letter (`<i>`), so that `a < b` stays. The time of each step grows in proportion to the text, however long a line is.
"""

import re
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase

ANNOTATION = re.compile(r"^[ \t]{0,20}%[A-Za-z][A-Za-z ]{0,40}:.*\n?", re.MULTILINE)  # a line of CHAT: `%act: ...`
LABEL = re.compile(r"^([ \t]{0,20}(?:-[ \t]{0,20})?)([^:\n]{1,40}):[ \t]+", re.MULTILINE)
MUSIC = re.compile("[\u2669-\u266c]+[ \t]*")
STAGE_DIRECTION = re.compile(r"\[[^\[\]\n]{1,80}\][ \t]*")
TIME = r"\d{1,2}:\d\d:\d\d(?:[.,]\d{1,3})?"
TIMESTAMP = re.compile(
    rf"\[{TIME}\][ \t]*|\({TIME}\)[ \t]*|^[ \t]{{0,20}}{TIME}(?: --> {TIME})?(?:[ \t]+|$)|[ \t]{TIME}$", re.MULTILINE
)
TAG = re.compile(r"</?[A-Za-z][^<>\n]{0,200}>")
URL = re.compile(r"(?:https?://|\bwww\.)[^\s<>\"]+")
QUOTES = str.maketrans(
    dict.fromkeys("“”„‟❝❞〝〞＂«»", '"') | dict.fromkeys("‘’‚‛`´′‵", "'") | dict.fromkeys("–—‐‑", "-")
)
ELLIPSIS = re.compile(r"[…‥]|\.(?:[ \t]?\.){2,}")
BLANKS = re.compile(r"[ \t]{2,}")
AT_EDGE = re.compile(r"^[ \t]|[ \t]$", re.MULTILINE)  # after BLANKS, a line has one at most


def without_labels(text: str) -> str:
    """Return a text without the names of speakers at the beginnings of its lines."""
    return LABEL.sub(lambda found: found[1] if is_name(found[2]) else found[0], text)


def is_name(label: str) -> bool:
    """Return whether a text may be the name of a speaker: up to three words, none with a small letter first."""
    words = label.split()
    return 0 < len(words) <= 3 and all(word[0].isalpha() and not word[0].islower() for word in words)


def plain_punctuation(text: str) -> str:
    """Return a text with plain quotes, dashes and ellipses."""
    return ELLIPSIS.sub("...", text.translate(QUOTES))


def single_spaces(text: str) -> str:
    """Return a text without repeated spaces and without spaces at the edges of its lines. A tab stays a tab."""
    return AT_EDGE.sub("", BLANKS.sub(lambda found: "\t" if "\t" in found[0] else " ", text))


STEPS: dict[str, Callable[[str], str]] = {
    "annotations": lambda text: ANNOTATION.sub("", text),
    "timestamps": lambda text: TIMESTAMP.sub("", text),
    "speaker_labels": without_labels,
    "music_notes": lambda text: MUSIC.sub("", text),
    "stage_directions": lambda text: STAGE_DIRECTION.sub("", text),
    "tags": lambda text: TAG.sub("", text),
    "urls": lambda text: URL.sub("", text),
    "punctuation": plain_punctuation,
    "spaces": single_spaces,
    "blank_lines": lambda text: re.sub(r"\n{2,}", "\n", text).strip("\n"),
}
KINDS = {
    "speech": ("annotations", "punctuation", "spaces", "blank_lines"),
    "subtitles": (
        *("timestamps", "speaker_labels", "music_notes", "stage_directions", "tags"),
        *("punctuation", "spaces", "blank_lines"),
    ),
    "dialogue": ("speaker_labels", "punctuation", "spaces", "blank_lines"),
    "prose": ("tags", "urls", "punctuation", "spaces"),
}
# The categories of BabyBabelLM, and their kinds of text.
CATEGORIES = {
    "child-directed-speech": "speech",
    "child-available-speech": "speech",
    "subtitles": "subtitles",
    "dialogue": "dialogue",
    **dict.fromkeys(("educational", "child-books", "child-wiki", "child-news", "simplified-text", "qed"), "prose"),
    "padding-*": "prose",
}


def kind_of(category: str | None) -> str:
    """Return the kind of text of a category; "" if the category is not known."""
    return next((kind for pattern, kind in CATEGORIES.items() if fnmatchcase(category or "", pattern)), "")


def steps_of(cleaners: str, categories: Iterable[str | None]) -> list[tuple[str, ...]]:
    """Return the names of the steps for each document, given its category. `cleaners` is `corpus.cleaners`."""
    kinds = [kind_of(category) if cleaners == "by_category" else cleaners for category in categories]
    return [KINDS.get(kind, ()) for kind in kinds]
