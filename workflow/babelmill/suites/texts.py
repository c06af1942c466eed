"""Put prompts and options of choices together. The stages `suite` and `score` share nothing else of a suite."""

import pyarrow as pa


def texts_of(items: pa.Table) -> list[list[str]]:
    """Return the texts of each item of choices: prompt and option together."""
    both = zip(items["prompts"].to_pylist(), items["options"].to_pylist(), strict=True)
    return [[prompt + option for prompt, option in zip(*each, strict=True)] for each in both]
