"""Clean a single text as the corpus does, so that a label model reads new texts in the form of its training texts.

`corpus/cleaning.py` does the same with whole columns.
"""

import re
import unicodedata
from typing import Literal, NamedTuple

# Unicode category Cc without white space: if a form feed or a next-line mark were removed, two words would become one.
CONTROL = "[\x00-\x08\x0e-\x1f\x7f-\u0084\u0086-\u009f]"
_CONTROL = re.compile(CONTROL)


class Cleaning(NamedTuple):
    """Says what to change in a text."""

    normalization: Literal["none", "NFC"] = "none"  # the value of `corpus.normalization`
    control_characters: Literal["keep", "remove"] = "keep"  # the value of `corpus.control_characters`

    def of(self, text: str) -> str:
        """Return a text as the corpus would clean it."""
        if self.control_characters == "remove":
            text = _CONTROL.sub("", text)
        if self.normalization != "none" and not text.isascii():
            text = unicodedata.normalize(self.normalization, text)
        return text
