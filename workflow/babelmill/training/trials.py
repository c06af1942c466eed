"""Measure a training that has done a share of its steps, so that it can be compared with others (`sweep: halving`).

A trial is the beginning of a training. It stops at a checkpoint, and the training continues from there as if it had
never stopped. Its result is one number: bits per byte of the validation text, which do not depend on the tokenizer.
They come from losses: nats per token, times the tokens of the text, over its bytes. They are about the weights as they
are, since their moving average lags behind in the middle of a training.

The validations of the record are of no use for this: how much text they measure, and how much of it is masked, depends
on settings that may vary in a sweep. So trials measure the same part of the text in all cells. `evaluate` measures the
final model in another way, so its numbers are not the same.
"""

import math
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from babelmill.config import schema
from babelmill.core import manifest
from babelmill.core.files import UserError
from babelmill.training.plan.objectives import Objective, objective_of

MEASURED_BYTES = 2_000_000  # of the validation text; more is measured on an evenly spread part of so many bytes
MASK_RATE = 0.15  # the share of tokens that masked rows hide


def step_of(until: Fraction, steps: int) -> int:
    """Return the step at which a trial stops: a share of all, rounded up; raise a UserError if there are too few."""
    if steps < until.denominator:
        raise UserError(
            f"the training has {steps} steps, too few to stop it at {until} of them, as sweep: halving does;"
            " train longer, or set sweep: all"
        )
    return math.ceil(until * steps)


def measured_in(folder: Path, step: int) -> Path:
    """Return the file in a run's folder with what was measured for a sweep after a step."""
    return folder / f"trial-{step:08}.json"


def share_of_text(shards: Sequence[Path]) -> float:
    """Return the share of the validation text that trials measure, the same for all tokenizers and batch sizes."""
    size = sum(manifest.read(folder)["figures"]["bytes"]["validation"] for folder in shards)
    return min(1.0, MEASURED_BYTES / size) if size else 1.0


def hiding(train: schema.Train) -> Objective:
    """Return what the rows of trials hide: masked rows as many tokens in all cells."""
    return objective_of(train.model_copy(update={"mask_rate_end": MASK_RATE}))


def bits_per_byte(
    line: dict[str, Any], kinds: Sequence[str], languages: Sequence[str], shards: Sequence[Path]
) -> dict[str, float | None]:
    """Return the bits per byte of each kind of rows, over the validation text of all languages.

    `line` is what was measured, as the record says validations.
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
