"""Cut texts into words, and give each word a hash of 64 bits.

A word is a run of characters without white space and without the punctuation of ASCII. In scripts that put no spaces
between words (Chinese, Japanese, Thai, Lao, Khmer, Burmese, Tibetan), each character counts as a word. Upper and lower
case differ.

The functions work on the UTF-8 bytes of many texts at once. They depend on no table of Unicode and no library's hash
function, so a text has the same words on any machine and in any version of Python.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

PIECE = 1 << 18  # bytes that are hashed at a time
_ODD = np.uint64(0x9E3779B97F4A7C15)
_MIX = np.uint64(0xBF58476D1CE4E5B9)
_SHIFT = np.uint64(29)


def _powers(base: int) -> np.ndarray:
    """Return base^i mod 2^64 for each i up to `PIECE`, uint64."""
    found = np.full(PIECE + 1, base, np.uint64)
    found[0] = 1
    return np.multiply.accumulate(found)


_BASE = 0x5851F42D4C957F2D  # odd, so that it has an inverse mod 2^64
_POWERS, _INVERSE = _powers(_BASE), _powers(pow(_BASE, -1, 2**64))
_BYTES = np.arange(256)
_SEPARATES = np.array([byte < 128 and not chr(byte).isalnum() for byte in range(256)])
# A different odd number for each byte; 0 for what stands between words.
_NUMBERS = np.where(_SEPARATES, np.uint64(0), (_BYTES.astype(np.uint64) + np.uint64(1)) * _ODD | np.uint64(1))
# The first bytes of the characters U+3000 to U+9FFF; of the others the second byte tells.
_STANDS_ALONE = (_BYTES >= 0xE3) & (_BYTES <= 0xE9)
_MAY_STAND_ALONE = (_BYTES == 0xE0) | (_BYTES == 0xE1) | (_BYTES == 0xF0)


def stand_alone(data: np.ndarray) -> np.ndarray:
    """Return which UTF-8 bytes begin a character that counts as a word, bool [bytes]."""
    alone = _STANDS_ALONE[data]
    at = np.flatnonzero(_MAY_STAND_ALONE[data[:-1]])
    first, second = data[at], data[at + 1]
    south = (first == 0xE0) & (second >= 0xB8)  # Thai, Lao, Tibetan
    burmese_or_khmer = (first == 0xE1) & ((second == 0x80) | (second == 0x81) | (second == 0x9E) | (second == 0x9F))
    rare_chinese = (first == 0xF0) & (second >= 0xA0) & (second <= 0xAF)
    alone[at[south | burmese_or_khmer | rare_chinese]] = True
    return alone


def _begins(data: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Return the places where words begin in the UTF-8 bytes of texts that begin at `starts`, int64."""
    separates = _SEPARATES[data]
    begins = ~separates
    begins[1:] &= separates[:-1]
    begins[starts] = ~separates[starts]
    if data.max(initial=0) < 0xE0:
        return np.flatnonzero(begins)
    alone = stand_alone(data)
    begins |= alone
    longer = np.flatnonzero(alone & (data == 0xF0))
    alone[longer] = False
    begins[3:] |= alone[:-3] & ~separates[3:]  # the character after one of three bytes
    after = longer[longer + 4 < len(data)] + 4
    begins[after] |= ~separates[after]
    return np.flatnonzero(begins)


def words_of(data: np.ndarray, starts: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield hashes of words, and where each begins, in pieces of the UTF-8 bytes of texts that begin at `starts`."""
    at = 0
    while at < len(data):
        piece = data[at : at + PIECE]
        inside = starts[np.searchsorted(starts, at) : np.searchsorted(starts, at + len(piece))] - at
        begins = _begins(piece, inside)
        end = len(piece)
        if at + end < len(data) and len(begins) > 1:
            begins, end = begins[:-1], int(begins[-1])  # the last word may be longer than the piece
        sums = np.zeros(len(piece) + 1, np.uint64)
        np.cumsum(_NUMBERS[piece] * _POWERS[: len(piece)], out=sums[1:])
        of_words = np.diff(sums[np.append(begins, end)]) * _INVERSE[begins]
        yield (of_words ^ (of_words >> _SHIFT)) * _MIX, begins + at
        at += end


def bytes_of(text: pa.StringArray) -> tuple[np.ndarray, np.ndarray]:
    """Return the UTF-8 bytes of texts, uint8, and where each text begins and ends in them, int64 [N + 1].

    Nulls are not allowed.
    """
    _, offsets, raw = text.buffers()
    if raw is None or not len(text):
        return np.empty(0, np.uint8), np.zeros(len(text) + 1, np.int64)
    bounds = np.frombuffer(offsets, np.int32)[text.offset : text.offset + len(text) + 1].astype(np.int64)
    return np.frombuffer(raw, np.uint8)[bounds[0] : bounds[-1]], bounds - bounds[0]


def with_word(hashes: np.ndarray, words: np.ndarray) -> np.ndarray:
    """Return the hashes of sequences of words with one more word each, uint64. That of one word is the word's own."""
    return (hashes ^ (hashes >> _SHIFT)) * _ODD + words


def mixed(hashes: np.ndarray) -> np.ndarray:
    """Return hashes of sequences whose high bits depend on all of their bits, too."""
    return (hashes ^ (hashes >> _SHIFT)) * _MIX
