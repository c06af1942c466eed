"""Clean transcripts, subtitles and prose: take out what nobody said or wrote as text (`corpus.cleaners`).

The steps follow BabyBabelLM's pipeline, which cleans each category of text in its own way. The patterns are narrower
than there. A speaker label is a name (`Mother:`), not everything before a colon (`He said:`). A tag is a name, perhaps
with attributes (`<i>`, `<a href="x">`), so that `a < b` and `if x <y and z> w` stay. The time of each step grows in
proportion to the text, however long a line is.
"""

import functools
import re
from collections.abc import Callable
from fnmatch import fnmatchcase

ANNOTATION = re.compile(r"^[ \t]{0,20}%[A-Za-z][A-Za-z ]{0,40}:.*\n?", re.MULTILINE)  # a line of CHAT: `%act: ...`
LABEL = re.compile(r"^([ \t]{0,20}(?:-[ \t]{0,20})?)([^:\n]{1,40}):[ \t]+", re.MULTILINE)
MUSIC = re.compile("[\u2669-\u266c]+[ \t]*")
STAGE_DIRECTION = re.compile(r"\[[^\[\]\n]{1,80}\][ \t]*")
TIME = r"\d{1,2}:\d\d:\d\d(?:[.,]\d{1,3})?"
TIMESTAMP = re.compile(
    rf"\[{TIME}\][ \t]*|\({TIME}\)[ \t]*|^[ \t]{{0,20}}{TIME}(?: --> {TIME})?(?:[ \t]+|$)|[ \t]{TIME}$", re.MULTILINE
)
# A tag is a name with attributes, or without. What is possessive (++) is never tried again, so no line takes long.
VALUE = r"""\s*+=\s*+(?:"[^"<>]*+"|'[^'<>]*+'|[^\s"'<>]++)"""
ATTRIBUTES = rf"(?:\s++[A-Za-z_:@][-\w:.]*+{VALUE})*+\s*+/?"
TAG = re.compile(rf"</?[A-Za-z][-\w:.]*+{ATTRIBUTES}>")
BLOCKS = (
    "address|article|aside|blockquote|body|br|caption|center|dd|div|dl|dt|figcaption|figure|footer|form|h[1-6]|head"
    "|header|hr|html|li|main|nav|ol|option|p|pre|section|table|tbody|td|tfoot|th|thead|title|tr|ul"
)
BLOCK = re.compile(rf"\n?(?:</?(?:{BLOCKS})(?![-\w:.]){ATTRIBUTES}>)++\n?", re.IGNORECASE)  # begins or ends a line
# Scripts that write no spaces, and closing punctuation, end a web address.
URL = re.compile(r"(?:https?://|(?<![0-9A-Za-z])www\.)[!#-;=?-~\u00c0-\u052f]*[#$%&*+/0-9=@A-Za-z_~\u00c0-\u052f-]")
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
    """Return whether a text may be the name of a speaker: up to three words, each with a capital letter first.

    In a script without capital letters, nothing tells `قال أحمد:` (Ahmed said) from a name, so nothing counts as one.
    """
    words = label.split()
    return 0 < len(words) <= 3 and all(word[0].istitle() for word in words)


def without_tags(text: str) -> str:
    """Return a text without tags. Those that begin or end a line of the page become a line end."""
    lines = BLOCK.sub("\n", text)
    return TAG.sub("", text if lines == text else lines.strip("\n"))


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
    "tags": without_tags,
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


@functools.cache
def steps_of(cleaners: str, category: str | None) -> tuple[str, ...]:
    """Return the names of the steps for a document of a category. `cleaners` is `corpus.cleaners`."""
    return KINDS.get(kind_of(category) if cleaners == "by_category" else cleaners, ())
