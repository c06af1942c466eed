"""Write numbers in sentences."""


def plural(count: int, noun: str) -> str:
    """Return `1 model`, `2 models`, `12,000 models`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def sample_of(masked_pairs: int | str, method: str) -> str:
    """Describe the sample of pairs that a method scored (`evaluation.masked_pairs`); "" if it scored all pairs."""
    everything = masked_pairs == "all" or method == "causal"
    return "" if everything else f"sample of {masked_pairs:,} pairs of each paradigm"
