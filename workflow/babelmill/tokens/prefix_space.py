"""Put a space before each text, so that its first word gets the same token as the same word after a space.

`tokenizer.prefix_space` asks for this. It is a part of `tokenizer.json`, so every program that loads the file does it:

* A normalizer puts the space before a text, also before each text of a pair. The empty text stays empty.
* The decoder takes away one space at the beginning. So decoding the tokens of a whole text restores it exactly. But a
  text that is decoded from its middle, and a single token, lose the space at their beginning.
* Special tokens are searched in the text after the space was put there, so that no space comes after a special token
  inside a text. (By default, they are searched before, and the normalizer sees the text between them in pieces.) A
  normalizer also changes the names that are searched. So it must leave these names as they are, and a text that begins
  with one gets no space.

The added space counts for the first character, so the offsets of tokens are about the text without it.
"""

import functools
import json
import re
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, normalizers

from babelmill.core.files import read_json
from babelmill.tokens.vocabulary import SPECIAL_TOKENS

SPACE = " "
BEFORE_SPECIAL = rf"\A{SPACE}(?={'|'.join(map(re.escape, SPECIAL_TOKENS))})"


@functools.cache
def _normalizer() -> normalizers.Normalizer:
    return normalizers.Sequence([normalizers.Prepend(SPACE), normalizers.Replace(Regex(BEFORE_SPECIAL), "")])


def put(tokenizer: Tokenizer) -> None:
    """Make a byte-level tokenizer put a space before each text. Its special tokens must have `normalized=True`."""
    tokenizer.normalizer = _normalizer()
    tokenizer.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(SPACE, 1, 0)])


def is_put(tokenizer: Tokenizer) -> bool:
    """Return whether `put` made the tokenizer put a space before each text."""
    found = tokenizer.normalizer
    return found is not None and json.loads(found.__getstate__()) == json.loads(_normalizer().__getstate__())


def is_put_in(path: Path) -> bool:
    """Return whether `put` made the tokenizer in a tokenizer.json; False if there is no such file."""
    return path.is_file() and read_json(path).get("normalizer") == json.loads(_normalizer().__getstate__())


def with_space(text: str) -> str:
    """Return a text with the space that the tokenizer puts before it."""
    return _normalizer().normalize_str(text)


@functools.lru_cache(maxsize=1)  # batches of documents need the same one again and again
def without(tokenizer: Tokenizer) -> Tokenizer:
    """Return a copy of a tokenizer that puts no space before a text, and takes none away."""
    found = Tokenizer.from_str(tokenizer.to_str())
    found.normalizer = None
    found.decoder = decoders.ByteLevel()
    found.encode_special_tokens = tokenizer.encode_special_tokens
    return found
