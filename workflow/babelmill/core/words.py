"""Count words, write numbers in sentences, and quote the errors of libraries."""

from collections.abc import Iterable

SPACED = 40  # bytes per word up to which whitespace separates words, in a language whose script is not known

# Ends the message about a score that is no number, which is an error and never a missing score.
NOT_A_NUMBER = (
    "the weights of this model are damaged, or its training diverged; replace the model, or train it again with a lower"
    " train.learning_rate"
)


def plural(count: int, noun: str) -> str:
    """Return `1 model`, `2 models`, `12,000 models`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def first_line(error: object, otherwise: str = "no message") -> str:
    """Return the first line of what an error of a library says, or `otherwise` if it says nothing."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), otherwise)


def short(number: float) -> str:
    """Return a number of bytes, tokens or parameters in short: `950`, `8.9 k`, `31.4 M`."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.1f} {letter}"
    return f"{number:.0f}"


def count_words(texts: Iterable[str]) -> int:
    """Return the number of words of texts: what whitespace separates."""
    return sum(len(text.split()) for text in texts)


def and_words(words: int, size: int, bytes_per_word: float | None = None) -> str:
    """Return `, 12,345 words` for a text of `size` bytes with so many words between whitespace.

    If `bytes_per_word` says so (`Language.bytes_per_word`), so many bytes are a word: `, about 12,345 words`. It is ""
    if whitespace does not seem to separate words.
    """
    if bytes_per_word:
        return f", about {plural(round(size / bytes_per_word), 'word')}"
    return f", {plural(words, 'word')}" if words * SPACED > size else ""
