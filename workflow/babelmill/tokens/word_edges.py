"""Say where words begin in a stream of tokens, so that whole words can be masked (`train.masking: words`).

A word is a run of letters and digits, or a run of other signs, with the white space before it. Each entry of a
vocabulary has two edges: the classes of its first and its last character. A word begins where they meet:

* `the| cat|s|,| un|happi|ly`: letters after letters continue a word, and everything continues white space.
* Han, kana, Thai and other scripts put no spaces between words. There, each token that begins with a character of the
  script begins a word, so a word is one token, and the bytes that complete its last character.

The classes come from the entries of `tokenizer.json`, in all their forms: byte-level BPE, SentencePiece (`▁` is a
space), and WordPiece and word-level models (entries without `##` begin with a space that is not written).
"""

import json
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np

from babelmill.core.files import read_json
from babelmill.tokens.vocabulary import Vocabulary

SPACE, LETTER, OTHER, ALONE, INSIDE = range(5)  # INSIDE: bytes that continue a character
# The first words of the names of characters that are written without spaces between words.
SPACELESS = {"CJK", "HIRAGANA", "KATAKANA", "BOPOMOFO", "YI", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN", "TAI"}
JOINERS = "'’-·״"  # as in `pretokenizer.py`: before a letter they belong to the word
VISIBLE = [*range(33, 127), *range(161, 173), *range(174, 256)]  # bytes that byte-level BPE writes as themselves


def word_edges(path: Path, vocabulary: Vocabulary) -> np.ndarray:
    """Return the class of the first and of the last character of each entry of a tokenizer.json, [2, size] int64.

    Special tokens are words of their own.
    """
    edges = np.full((2, vocabulary.size), OTHER, dtype=np.int64)
    for token, content in _contents(path).items():
        edges[:, token] = _first(content), _last(content)
    edges[:, list(vocabulary.special)] = ALONE  # so letters and signs after them begin words, too
    return edges


def begins_word(first: Any, before: Any) -> Any:
    """Return whether words begin at tokens with these first edges. `before`: the last edges of the tokens before them.

    Both are tensors or arrays.
    """
    return (before != SPACE) & (first != INSIDE) & ((first == ALONE) | (first != before))


def _contents(path: Path) -> dict[int, bytes]:
    """Return the text of each entry of a tokenizer, in UTF-8. An entry may begin or end within a character."""
    file = read_json(path)
    model, around = file["model"], json.dumps([file.get("pre_tokenizer"), file.get("decoder")])
    listed = model["vocab"]
    entries = listed if isinstance(listed, dict) else {piece: i for i, (piece, _) in enumerate(listed)}
    added = {token["id"]: token["content"].encode() for token in file.get("added_tokens", [])}
    if '"ByteLevel"' in around:
        others = sorted(set(range(256)) - set(VISIBLE))
        codes = {chr(byte): byte for byte in VISIBLE} | {chr(256 + i): byte for i, byte in enumerate(others)}
        found = {i: bytes(codes[char] for char in piece if char in codes) for piece, i in entries.items()}
    elif model.get("type") in ("WordPiece", "WordLevel"):
        prefix = model.get("continuing_subword_prefix") or "\0"
        found = {
            i: (piece.removeprefix(prefix) if piece.startswith(prefix) else f" {piece}").encode()
            for piece, i in entries.items()
        }
    else:
        found = {i: _piece(piece) for piece, i in entries.items()}
    return found | added


def _piece(piece: str) -> bytes:
    """Return the text of an entry of SentencePiece, in which `<0xE4>` is a byte."""
    if len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">"):
        return bytes.fromhex(piece[3:5])
    return piece.replace("▁", " ").encode()


def _first(content: bytes) -> int:
    if content[:1] and content[0] & 0xC0 == 0x80:
        return INSIDE
    text = content.decode(errors="replace")
    return _class(text[1] if text[:1] in JOINERS and text[1:2].isalpha() else text[:1], content[:1])


def _last(content: bytes) -> int:
    cut = content.rstrip(bytes(range(0x80, 0xC0)))[-1:]  # the first byte of the last character
    return _class(content.decode(errors="replace")[-1:], cut)


def _class(char: str, lead: bytes) -> int:
    """Return the class of a character, of which only the first byte `lead` is known if `char` is U+FFFD."""
    if char == "\ufffd":  # most characters that begin so are Han and kana, signs and emoji, or else letters
        return ALONE if b"\xe3" <= lead <= b"\xe9" else OTHER if lead in (b"\xe2", b"\xf0") else LETTER
    if char.isspace():
        return SPACE
    if not char or (unicodedata.category(char)[0] not in "LMN" and char not in "_\u200c\u200d"):
        return OTHER
    return ALONE if unicodedata.name(char, "").replace("-", " ").split(" ")[0] in SPACELESS else LETTER
