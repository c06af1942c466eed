"""The pieces into which the tokenizer cuts a text before it merges bytes, and cutting long texts without a trace.

A token never crosses a piece, and training keeps every different piece in memory, so pieces have at most 24 characters:
text without spaces would otherwise take time and memory that grow faster than the text. On real text in 11 languages
they give up to 11 % fewer tokens than those of GPT-BERT, and never more (`benchmarks/tokenizer.py`). Newlines stay out
of words, though that costs 2 %: the first word of a line is then the token that a text begins with, which models learn
so much better.
"""

import json
import re
from collections.abc import Iterator

from tokenizers import Regex, Tokenizer, pre_tokenizers

# Letters with the marks that belong to them, and the two joiners that Persian and Indic words contain.
LETTER = r"[\p{L}\p{M}\u200C\u200D]"
OTHER = r"[^\s\p{L}\p{M}\p{N}\u200C\u200D]"
PIECE = "|".join(
    [
        # A word with the space and one sign before it; apostrophe, hyphen, middle dot and gershayim join its parts.
        rf" ?{OTHER}?{LETTER}(?:{LETTER}|['’\-·״](?={LETTER})){{0,21}}",
        rf" ?{OTHER}?\p{{N}}",  # digits stand alone: 1234 is four tokens, as arithmetic wants it
        rf" ?{OTHER}{{1,16}}[\r\n]{{0,7}}",
        r"\s{1,24}(?!\S)",  # white space but for the last of it, which belongs to the word that follows
        r"\s{1,24}",
    ]
)

PART = 1 << 16  # characters
# Where no piece crosses and what comes before does not depend on what follows: before a space between words, and before
# a newline after a letter or a digit.
SAFE_CUT = re.compile(r"(?<=\S)(?= \S)|(?<=[^\W_])(?=\n)")


def pre_tokenizer() -> pre_tokenizers.PreTokenizer:
    """Cuts a text into pieces and writes their bytes as characters."""
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECE), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def parts(text: str) -> Iterator[str]:
    """A text in parts of about 64,000 characters, which have the pieces that the text has."""
    start = 0
    while len(text) - start > 2 * PART and (cut := SAFE_CUT.search(text, start + PART)):
        yield text[start : cut.start()]
        start = cut.start()
    yield text[start:]


def parts_are_the_text(tokenizer: Tokenizer) -> bool:
    """Whether a tokenizer gives the parts of a text the tokens that it gives the text: it does with our pieces."""
    if tokenizer.normalizer is not None or tokenizer.pre_tokenizer is None:
        return False
    return json.loads(tokenizer.pre_tokenizer.__getstate__()) == json.loads(pre_tokenizer().__getstate__())
