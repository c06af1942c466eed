"""Measure a training that has done a share of its steps, so that it can be compared with others (`sweep: halving`).

A trial is the beginning of a training. It stops at a checkpoint, and the training continues from there as if it had
never stopped. Its result is one number: bits per byte of the validation text, which do not depend on the tokenizer.
They come from the validation losses of the record: nats per token, times the tokens of the text, over its bytes. They
are about the weights as they are, since their moving average lags behind in the middle of a training. `evaluate`
measures the final model in another way, so its numbers are not the same.
"""

import json
import math
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from babelmill.core import manifest
from babelmill.core.files import UserError


def step_of(until: Fraction, steps: int) -> int:
    """Return the step at which a trial stops: the share `until` of all `steps`, rounded up.

    Raises:
        UserError: the training has too few steps for trials.
    """
    if steps < until.denominator:
        raise UserError(
            f"the training has {steps} steps, too few to stop it at {until} of them, as sweep: halving does;"
            " train longer, or set sweep: all"
        )
    return math.ceil(until * steps)


def validation_at(record: Path, step: int) -> dict[str, Any] | None:
    """Return the validation line after a step in a record (see `runtime/record.py`); None if there is none."""
    lines = record.read_text(encoding="utf-8").splitlines() if record.is_file() else []
    found = None
    for line in lines:
        try:
            entry = json.loads(line)
        except ValueError:
            break  # a process died while it wrote the last line
        if entry["step"] == step and entry["kind"] == "validation":
            found = entry
    return found


def bits_per_byte(
    line: dict[str, Any], kinds: Sequence[str], languages: Sequence[str], shards: Sequence[Path]
) -> dict[str, float | None]:
    """Return the bits per byte of each kind of rows, over the validation text of all languages.

    Args:
        line: the validation line of the record.
        kinds: the names of the kinds of rows.
        languages: the languages of the model.
        shards: the folder of each language's shards.
    """
    figures = [manifest.read(folder)["figures"] for folder in shards]
    # Every token is predicted but the first one of a document.
    tokens = [about["tokens"]["validation"] - about["documents"]["validation"] for about in figures]
    size = sum(about["bytes"]["validation"] for about in figures)
    parts = [line["languages"][language] for language in languages] if len(languages) > 1 else [line]
    found: dict[str, float | None] = {}
    for kind in kinds:
        losses = [part[f"loss_{kind}"] for part in parts]
        known = [loss * count for loss, count in zip(losses, tokens, strict=True) if loss is not None]
        found[kind] = sum(known) / math.log(2) / size if len(known) == len(losses) else None
    return found


def mean_of(kinds: dict[str, float | None]) -> float | None:
    """Return the mean over the kinds of rows, by which trials are compared; None if a loss was not finite."""
    values = [value for value in kinds.values() if value is not None]
    return sum(values) / len(values) if values and len(values) == len(kinds) else None
