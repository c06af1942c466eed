"""Cut a text into pieces before the tokenizer merges bytes, and cut long texts without changing their tokens.

A token never crosses the end of a piece, and the tokenizer's training keeps every different piece in memory. So pieces
have at most 24 characters: otherwise the time and memory for text without spaces would grow faster than the text. On
real text in 11 languages, these pieces give up to 11 % fewer tokens than those of GPT-BERT, and never more
(`benchmarks/tokenizer.py`). Newlines are never part of words, although this costs 2 %. So the first word of a line is
the same token as at the beginning of a text (unless a space is put before texts), and models learn it much better.
"""

import json
import re
import unicodedata
from collections.abc import Iterator

from tokenizers import Regex, Tokenizer, pre_tokenizers

# Letters with their combining marks, and the two joiners that Persian and Indic words contain.
LETTER = r"[\p{L}\p{M}\u200C\u200D]"
OTHER = r"[^\s\p{L}\p{M}\p{N}\u200C\u200D]"
PIECE = "|".join(
    [
        # A word, with the space and one sign before it. Apostrophe, hyphen, middle dot and gershayim join its parts.
        rf" ?{OTHER}?{LETTER}(?:{LETTER}|['’\-·״](?={LETTER})){{0,21}}",
        rf" ?{OTHER}?\p{{N}}",  # each digit is a piece: 1234 is four tokens, which helps arithmetic
        rf" ?{OTHER}{{1,16}}[\r\n]{{0,7}}",
        r"\s{1,24}(?!\S)",  # white space except its last character, which belongs to the next word
        r"\s{1,24}",
    ]
)

PART = 1 << 16  # characters
# Places where a text can be cut: no piece crosses them, and the pieces before them do not depend on the text after
# them. They are before a space between words, and before a newline after a letter or a digit.
SAFE_CUT = re.compile(r"(?<=\S)(?= \S)|(?<=[^\W_])(?=\n)")
MARGIN = 64  # characters; a piece ends at most so far after it begins, and sees no further
JOINERS = "'’-·״"


SPLIT = pre_tokenizers.Split(Regex(PIECE), "isolated")


def pre_tokenizer() -> pre_tokenizers.PreTokenizer:
    """Return the pre-tokenizer, which cuts a text into pieces and represents their bytes by characters."""
    return pre_tokenizers.Sequence([SPLIT, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def sections(text: str) -> Iterator[str]:
    """Yield parts of a text between places that `SAFE_CUT` finds. Each has about 64,000 characters, or many more.

    The training of a tokenizer samples sections, so they must stay as they are.
    """
    start = 0
    while len(text) - start > 2 * PART and (cut := SAFE_CUT.search(text, start + PART)):
        yield text[start : cut.start()]
        start = cut.start()
    yield text[start:]


def parts(text: str) -> Iterator[str]:
    """Yield parts of a text, each of at most about 131,000 characters. Together they have the same pieces as the text.

    Text without spaces (Chinese, Thai, base64) can be one section. It is cut where the pre-tokenizer ends a piece. (It
    stays whole if there is no such place, as in a megabyte of `a-a-a-`.)
    """
    for section in sections(text):
        start = 0
        while len(section) - start > 2 * PART + MARGIN and (end := _last_cut(section[start : start + PART + MARGIN])):
            yield section[start : start + end]
            start += end
        yield section[start:]


def _last_cut(text: str) -> int:
    """Return the last place, before the margin, where a text that begins like this can be cut; 0 if there is none."""
    place = found = 0
    for piece, _ in SPLIT.pre_tokenize_str(text):
        place += len(piece)
        if place > len(text) - MARGIN:
            break
        if _can_end(piece, text[place]):
            found = place
    return found


def _can_end(piece: str, after: str) -> bool:
    """Return whether a piece stays the same if the text ends after it, as far as the character `after` it decides.

    White space leaves its last character to a word that follows. A joiner belongs to a word only if a letter follows.
    """
    if piece[-1].isspace():
        return after.isspace() and after not in "\x1c\x1d\x1e\x1f"  # no white space for the pre-tokenizer
    return piece[-1] not in JOINERS or not any(
        unicodedata.category(each)[0] in "LM" or each in "\u200c\u200d" for each in piece
    )


def parts_are_the_text(tokenizer: Tokenizer) -> bool:
    """Return whether a tokenizer gives a text and its parts the same tokens. It does if it uses our pre-tokenizer."""
    if tokenizer.normalizer is not None or tokenizer.pre_tokenizer is None:
        return False
    return json.loads(tokenizer.pre_tokenizer.__getstate__()) == json.loads(pre_tokenizer().__getstate__())
