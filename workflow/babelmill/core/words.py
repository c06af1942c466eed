"""Write numbers in sentences."""


def plural(count: int, noun: str) -> str:
    """Return `1 model`, `2 models`, `12,000 models`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def sample_of(masked_pairs: int | str, method: str) -> str:
    """Return which sample the scores of a method are from (`evaluation.masked_pairs`); "" if from all pairs."""
    everything = masked_pairs == "all" or method == "causal"
    return "" if everything else f"sample of {masked_pairs:,} pairs of each paradigm"
