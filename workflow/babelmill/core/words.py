"""Count words, and write numbers in sentences."""

from collections.abc import Iterable

UNSPACED = 40  # bytes per word beyond which whitespace does not separate words, as in Chinese

# Ends the message about a score that is no number, which is an error and never a missing score.
NOT_A_NUMBER = (
    "the weights of this model are damaged, or its training diverged; replace the model, or train it again with a lower"
    " train.learning_rate"
)


def plural(count: int, noun: str) -> str:
    """Return `1 model`, `2 models`, `12,000 models`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def count_words(texts: Iterable[str]) -> int:
    """Return the number of words of texts: what whitespace separates."""
    return sum(len(text.split()) for text in texts)


def words_of(words: int, size: int) -> str:
    """Return `, 12,345 words` for a text of `size` bytes; "" if its script does not separate words by whitespace."""
    return f", {plural(words, 'word')}" if words * UNSPACED > size else ""
