"""Write numbers in sentences."""

# Ends the message about a score that is no number, which is an error and never a missing score.
NOT_A_NUMBER = (
    "the weights of this model are damaged, or its training diverged; replace the model, or train it again with a lower"
    " train.learning_rate"
)


def plural(count: int, noun: str) -> str:
    """Return `1 model`, `2 models`, `12,000 models`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
