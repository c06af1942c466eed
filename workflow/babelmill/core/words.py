"""Count words, write numbers, times and tables for people, and quote the errors of libraries."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from babelmill.core.escape import some

T = TypeVar("T")
PART = 1 << 20  # characters that are worked on at once
SPACED = 40  # bytes per word up to which whitespace separates words, in a language whose script is not known

# Ends the message about a score that is no number, which is an error and never a missing score.
NOT_A_NUMBER = (
    "the weights of this model are damaged, or its training diverged; replace the model, or train it again with a lower"
    " train.learning_rate"
)


def portions(texts: Iterable[T], size: Callable[[T], int]) -> Iterator[list[T]]:
    """Yield texts in order, some at a time: of at most `PART` characters together, or one longer text."""
    portion, total = list[T](), 0
    for text in texts:
        if portion and total + size(text) > PART:
            yield portion
            portion, total = [], 0
        portion.append(text)
        total += size(text)
    if portion:
        yield portion


def plural(count: int, noun: str) -> str:
    """Return `1 model`, `2 models`, `12,000 models`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def said_once(notes: Iterable[tuple[str, str]]) -> list[str]:
    """Return a line for each note, which begins with the models that it is about; `notes`: (model, note)."""
    models: dict[str, dict[str, None]] = {}
    for model, note in notes:
        models.setdefault(note, {})[model] = None
    return [f"{some(names, 3)}: {note}" for note, names in models.items()]


def first_line(error: object, otherwise: str = "no message") -> str:
    """Return the first line of what an error of a library says, or `otherwise` if it says nothing."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), otherwise)


def short(number: float) -> str:
    """Return a number of bytes, tokens or parameters in short: `950`, `8.9 k`, `31.4 M`."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.1f} {letter}"
    return f"{number:.0f}"


def span(values: Iterable[float]) -> str:
    """Return a number as text, or the smallest and the largest of several."""
    low, high = f"{min(values := [*values]):.2f}", f"{max(values):.2f}"
    return low if low == high else f"{low} to {high}"


def clock(seconds: float) -> str:
    """Return seconds as hours, minutes and seconds: 12345 as 3:25:45."""
    whole = int(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"


def duration(seconds: float) -> str:
    """Return seconds as text: `8 s`, `3:05` (minutes), `12:03:05` (hours)."""
    whole = round(seconds)
    return f"{whole} s" if whole < 60 else clock(whole).removeprefix("0:").removeprefix("0")


def tenths(number: float) -> str:
    """Return a number such as hours in short: `12.3`, `0.4`, `0.03`, `< 0.01`."""
    return f"{number:,.1f}" if number >= 1 else f"{number:.1g}" if number >= 0.01 else "< 0.01"


def aligned(rows: Sequence[Sequence[str]], right: Iterable[bool]) -> list[str]:
    """Return one line per row of a table; `right` says for each column whether its cells are right-aligned."""
    from tabulate import tabulate  # takes long to import

    sides = ["right" if each else "left" for each in right]
    return [x.rstrip() for x in tabulate(rows, tablefmt="plain", disable_numparse=True, colalign=sides).splitlines()]


def words_in(text: str) -> int:
    """Return the number of words of a text: what whitespace separates.

    A long text is counted in parts, since a list of its words takes ten times its memory.
    """
    if len(text) <= PART:
        return len(text.split())
    starts = range(0, len(text), PART)
    cut = sum(not (text[start - 1].isspace() or text[start].isspace()) for start in starts[1:])
    return sum(len(text[start : start + PART].split()) for start in starts) - cut


def count_words(texts: Iterable[str]) -> int:
    """Return the number of words of texts."""
    return sum(map(words_in, texts))


def and_words(words: int, size: int, bytes_per_word: float | None = None) -> str:
    """Return `, 12,345 words` for a text of `size` bytes with so many words between whitespace.

    If `bytes_per_word` says so (`Language.bytes_per_word`), so many bytes are a word: `, about 12,345 words`. It is ""
    if whitespace does not seem to separate words.
    """
    if bytes_per_word:
        return f", about {plural(round(size / bytes_per_word), 'word')}"
    return f", {plural(words, 'word')}" if words * SPACED > size else ""
