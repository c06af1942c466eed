"""Count words, and write numbers in sentences."""

from collections.abc import Iterable

UNSPACED = 40  # bytes per word beyond which whitespace does not separate words, as in Chinese


def plural(count: int, noun: str) -> str:
    """Return `1 model`, `2 models`, `12,000 models`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def count_words(texts: Iterable[str]) -> int:
    """Return the number of words of texts: what whitespace separates."""
    return sum(len(text.split()) for text in texts)


def words_of(words: int, size: int) -> str:
    """Return `, 12,345 words` for a text of `size` bytes; "" if its script does not separate words by whitespace."""
    return f", {plural(words, 'word')}" if words * UNSPACED > size else ""


def sample_of(masked_pairs: int | str, method: str) -> str:
    """Describe the sample of pairs that a method scored (`evaluation.masked_pairs`); "" if it scored all pairs."""
    everything = masked_pairs == "all" or method == "causal"
    return "" if everything else f"sample of {masked_pairs:,} pairs of each paradigm"
